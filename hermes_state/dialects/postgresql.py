"""PostgreSQL's own SQL."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from hermes_state.dialects.base import DialectOperations
from hermes_state.models import CARRIER_PREDICATE_POSTGRESQL, doubled_percents, metadata
from hermes_state.reports import Size
from hermes_state.types import EpochNow

# ->> fails on an element that holds \u0000 or a lone surrogate anywhere, so such escapes are taken out before the
# type is read; an escaped backslash is consumed first, because what follows it is no escape. The regular
# expression is quoted for standard_conforming_strings = on.
_READABLE = r"""regexp_replace(given.element::text,
    '(?<!\\)((?:\\\\)*)\\u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2})', '\1\\ufffd', 'g')::json"""
_IS_CHECKPOINT = rf"""CASE WHEN json_typeof(given.element) <> 'object' THEN false
    WHEN strpos(given.element::text, '\u') > 0 THEN coalesce({_READABLE} ->> 'type' = 'compaction', false)
    ELSE coalesce(given.element ->> 'type' = 'compaction', false) END"""
_ITEMS = "json_array_elements({row}.codex_reasoning_items) WITH ORDINALITY AS given (element, position)"
_HOLDS_CHECKPOINT = f"""CASE WHEN json_typeof({{row}}.codex_reasoning_items) <> 'array' THEN false
    ELSE EXISTS (SELECT FROM {_ITEMS} WHERE {_IS_CHECKPOINT}) END"""


def _for_row(template: str, row: str) -> str:
    return template.replace("{row}", row)


_PREDICATE = doubled_percents(CARRIER_PREDICATE_POSTGRESQL)
_NEWEST_CARRIER = f"""
SELECT newest.id FROM messages AS newest
WHERE newest.session_id = %(session_id)s AND {_PREDICATE} AND {_for_row(_HOLDS_CHECKPOINT, "newest")}
ORDER BY newest.id DESC LIMIT 1
"""
_STRIP = f"""
UPDATE messages SET codex_reasoning_items = (
    SELECT json_agg(given.element ORDER BY given.position)
    FROM {_for_row(_ITEMS, "messages")} WHERE NOT ({_IS_CHECKPOINT}))
WHERE session_id = %(session_id)s AND {_PREDICATE}
AND id < coalesce(%(newest)s, ({_NEWEST_CARRIER})) AND {_for_row(_HOLDS_CHECKPOINT, "messages")}
"""


_SIZES = """
SELECT relation.relname, coalesce(of_table.relname, relation.relname),
    CASE relation.relkind WHEN 'i' THEN pg_relation_size(relation.oid) ELSE pg_table_size(relation.oid) END AS size_bytes
FROM pg_class AS relation
LEFT JOIN pg_index ON pg_index.indexrelid = relation.oid
LEFT JOIN pg_class AS of_table ON of_table.oid = pg_index.indrelid
WHERE relation.relkind IN ('r', 'i') AND relation.relnamespace = current_schema()::regnamespace
ORDER BY size_bytes DESC, relation.relname
"""


class PostgresqlOperations(DialectOperations):
    """PostgreSQL's forms; see the base class for what each does."""

    placeholder = "%s"
    is_embedded = False

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
        return sa.literal_column(CARRIER_PREDICATE_POSTGRESQL, sa.Boolean())

    def text_bytes(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
        """Of the text, which takes less space as it is stored."""
        return sa.func.octet_length(sa.cast(column, sa.Text), type_=sa.BigInteger)

    def damages(self, conn: sa.Connection) -> list[str]:
        """Nothing: the server has page checksums and ``amcheck`` for that, which need rights of their own."""
        del conn
        return []

    def ascii_lower(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[str]:
        """``lower`` under the collation C knows ASCII only."""
        return sa.func.lower(sa.collate(column, "C"), type_=sa.Text)

    def day_of(self, epoch: sa.ColumnElement[Any]) -> sa.ColumnElement[str]:
        """By ``to_char``, for the years that have four digits."""
        moment = sa.func.timezone("UTC", sa.func.to_timestamp(epoch))
        return sa.case((epoch.between(0, 253402300799), sa.func.to_char(moment, "YYYY-MM-DD", type_=sa.Text)))

    def sizes(self, conn: sa.Connection) -> list[Size]:
        """A table's bytes include those of its long values (TOAST)."""
        return [Size(*row) for row in conn.exec_driver_sql(_SIZES)]

    def free_share(self, _conn: sa.Connection) -> float:
        """Autovacuum frees what was deleted."""
        return 0.0

    def vacuum(self, engine: sa.Engine) -> str:
        """``vacuumed``: space becomes free for new rows, and the end of a table goes back to the system."""
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
            conn.exec_driver_sql("SET statement_timeout = 0")
            for table in metadata.tables:
                conn.exec_driver_sql(f"VACUUM (ANALYZE) {conn.dialect.identifier_preparer.quote(table)}")
            conn.exec_driver_sql("RESET statement_timeout")
        return "vacuumed"

    def is_any_of(
        self, column: sa.ColumnElement[Any], parameter: str, values: Iterable[Any] | None = None
    ) -> sa.ColumnElement[bool]:
        """The list travels as one array."""
        given = None if values is None else self.list_value(values)
        return column == sa.any_(sa.bindparam(parameter, given, type_=postgresql.ARRAY(column.type)))

    def list_value(self, values: Iterable[Any]) -> list[Any]:
        """The list itself; psycopg makes it an array."""
        return list(values)

    def list_length(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
        """A json column holds valid text only; CASE fixes the order, since the length of another value is an error."""
        is_list = sa.func.json_typeof(column) == sa.literal_column("'array'")
        return sa.case((is_list, sa.func.json_array_length(column)))

    def clock(self) -> sa.ColumnElement[float]:
        """The server's clock."""
        return EpochNow()

    def insert(self, table: sa.Table) -> postgresql.Insert:
        """The INSERT construct that knows ON CONFLICT."""
        return postgresql.insert(table)
