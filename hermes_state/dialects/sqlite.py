"""SQLite's own SQL."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from hermes_state.dialects import sqlite_files
from hermes_state.dialects.base import DialectOperations
from hermes_state.errors import StoreCorruptError
from hermes_state.models import CARRIER_PREDICATE_SQLITE
from hermes_state.reports import Size

# The last "type" key decides, as in Python's json; only a JSON string counts.
# json_each cuts text at an escaped NUL; ``->`` hands it out as it is written.
_IS_CHECKPOINT = r"""element.type = 'object' AND CASE
    WHEN instr(element.value, '\u0000') > 0 THEN (element.value -> '$.type') IS '"compaction"'
    ELSE 'compaction' IS (
        SELECT CASE attribute.type WHEN 'text' THEN attribute.value END FROM json_each(element.value) AS attribute
        WHERE attribute.key = 'type' ORDER BY attribute.id DESC LIMIT 1) END"""

# The list of a carrier, else an empty one. CASE fixes the order of evaluation: json_each must never see malformed text, nor
# take an object for a list.
_LIST = """CASE WHEN NOT json_valid(carrier.codex_reasoning_items) THEN '[]'
    WHEN json_type(carrier.codex_reasoning_items) <> 'array' THEN '[]' ELSE carrier.codex_reasoning_items END"""

_NEWEST_CARRIER = f"""
SELECT carrier.id FROM messages AS carrier
WHERE carrier.session_id = :session_id AND {CARRIER_PREDICATE_SQLITE}
AND EXISTS (SELECT 1 FROM json_each({_LIST}) AS element WHERE {_IS_CHECKPOINT})
ORDER BY carrier.id DESC LIMIT 1
"""

# Each item of each shadowed carrier is looked at once: NULL for a checkpoint, else its text as it is written. Items are
# taken with ->, because json(value) fails on bare strings (house-style.md, trap 11). A row without a checkpoint keeps its text
# to the letter. ``newest`` is looked for only where the caller does not know it.
_STRIP = f"""
UPDATE messages SET codex_reasoning_items = stripped.items
FROM (
    WITH shadowed AS MATERIALIZED (
        SELECT carrier.id, CASE WHEN {_IS_CHECKPOINT} THEN NULL
            ELSE carrier.codex_reasoning_items -> element.fullkey END AS item
        FROM messages AS carrier, json_each({_LIST}) AS element
        WHERE carrier.session_id = :session_id AND {CARRIER_PREDICATE_SQLITE}
        AND carrier.id < coalesce(:newest, ({_NEWEST_CARRIER}))
        ORDER BY carrier.id, element.key)
    SELECT id, '[' || group_concat(item, ',') || ']' AS items FROM shadowed GROUP BY id HAVING count(item) < count(*)
) AS stripped
WHERE messages.session_id = :session_id AND messages.id = stripped.id
"""


_KNOWS_SIZES = "SELECT 1 FROM pragma_module_list WHERE name = 'dbstat'"
_SIZES = """
SELECT used.name, coalesce(known.tbl_name, used.name), used.pgsize
FROM dbstat AS used LEFT JOIN sqlite_master AS known ON known.name = used.name
WHERE used.aggregate = TRUE ORDER BY used.pgsize DESC, used.name
"""


class SqliteOperations(DialectOperations):
    """SQLite's forms; see the base class for what each does."""

    placeholder = "?"
    is_embedded = True

    def strip_shadowed_checkpoints(
        self, conn: sa.Connection, session_id: str, newest: int | None = None
    ) -> None:
        """Removes the checkpoints that the newest active carrier shadows."""
        conn.exec_driver_sql(_STRIP, {"session_id": session_id, "newest": newest})

    def newest_carrier(self, conn: sa.Connection, session_id: str) -> int | None:
        """By the carrier index, then by the items themselves."""
        row = conn.exec_driver_sql(_NEWEST_CARRIER, {"session_id": session_id}).first()
        return None if row is None else row[0]

    @property
    def looks_like_carrier(self) -> sa.ColumnElement[bool]:
        """As the partial index has it."""
        return sa.literal_column(CARRIER_PREDICATE_SQLITE, sa.Boolean())

    def text_bytes(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
        """``length`` counts characters of text, bytes of a BLOB."""
        return sa.func.length(sa.cast(column, sa.LargeBinary), type_=sa.BigInteger)

    def damages(self, conn: sa.Connection) -> list[str]:
        """By ``integrity_check``, at most 100 lines; it ends itself where it meets a damaged search index."""
        try:
            found = [str(row[0]) for row in conn.exec_driver_sql("PRAGMA integrity_check(100)")]
        except StoreCorruptError as error:
            return [error.reason]
        return [] if found == ["ok"] else found

    def ascii_lower(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[str]:
        """``lower`` knows ASCII only."""
        return sa.func.lower(column, type_=sa.Text)

    def day_of(self, epoch: sa.ColumnElement[Any]) -> sa.ColumnElement[str]:
        """By ``strftime``, which gives NULL for the years it does not know."""
        return sa.func.strftime("%Y-%m-%d", epoch, "unixepoch", type_=sa.Text)

    def sizes(self, conn: sa.Connection) -> list[Size]:
        """From ``dbstat``, which reads every page once; not every build of SQLite has it."""
        if not conn.exec_driver_sql(_KNOWS_SIZES).all():
            return []
        return [Size(*row) for row in conn.exec_driver_sql(_SIZES)]

    def free_share(self, conn: sa.Connection) -> float:
        """By the free list, which a deletion fills."""
        free, pages = (
            conn.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in ("freelist_count", "page_count")
        )
        return float(free / max(pages, 1))

    def vacuum(self, engine: sa.Engine) -> str:
        """``rewritten``, ``incremental`` or ``kept``: see ``sqlite_files.vacuum``."""
        return sqlite_files.vacuum(engine)

    def is_any_of(
        self, column: sa.ColumnElement[Any], parameter: str, values: Iterable[Any] | None = None
    ) -> sa.ColumnElement[bool]:
        """The list travels as one JSON text; SQLite has no arrays."""
        each = sa.func.json_each(
            sa.bindparam(parameter, None if values is None else self.list_value(values))
        ).table_valued("value", name="wanted")
        return column.in_(sa.select(each.c.value))

    def list_value(self, values: Iterable[Any]) -> str:
        """The JSON text of the list, without BLOBs, which another program may have stored: no text equals one."""
        return json.dumps([value for value in values if not isinstance(value, bytes)])

    def list_length(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
        """CASE fixes the order: the JSON functions fail on malformed text."""
        is_list = sa.func.json_type(column) == sa.literal_column("'array'")
        length = sa.case((is_list, sa.func.json_array_length(column)))
        return sa.case((sa.func.json_valid(column) == sa.literal_column("1"), length))

    def clock(self) -> sa.ColumnElement[float]:
        """The clock of the machine that all writers of the file run on."""
        return sa.literal(time.time(), sa.Double())

    def insert(self, table: sa.Table) -> sqlite.Insert:
        """The INSERT construct that knows ON CONFLICT."""
        return sqlite.insert(table)
