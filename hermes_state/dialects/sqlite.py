"""SQLite's own SQL."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from hermes_state.dialects.base import DialectOperations
from hermes_state.models import CARRIER_PREDICATE_SQLITE

# The last "type" key decides, as in Python's json; only a JSON string counts.
# json_each cuts text at an escaped NUL; ``->`` hands it out as it is written.
_IS_CHECKPOINT = r"""element.type = 'object' AND CASE
    WHEN instr(element.value, '\u0000') > 0 THEN (element.value -> '$.type') IS '"compaction"'
    ELSE 'compaction' IS (
        SELECT CASE attribute.type WHEN 'text' THEN attribute.value END FROM json_each(element.value) AS attribute
        WHERE attribute.key = 'type' ORDER BY attribute.id DESC LIMIT 1) END"""

# CASE fixes the order of evaluation: json_each must never see malformed text, nor take an object for a list.
_HOLDS_CHECKPOINT = f"""CASE WHEN NOT json_valid({{row}}.codex_reasoning_items) THEN 0
    WHEN json_type({{row}}.codex_reasoning_items) <> 'array' THEN 0
    ELSE EXISTS (SELECT 1 FROM json_each({{row}}.codex_reasoning_items) AS element WHERE {_IS_CHECKPOINT}) END"""

_NEWEST_CARRIER = f"""
SELECT newest.id FROM messages AS newest
WHERE newest.session_id = ? AND {CARRIER_PREDICATE_SQLITE} AND {_HOLDS_CHECKPOINT.format(row="newest")}
ORDER BY newest.id DESC LIMIT 1
"""

# Items are taken with ->, which copies their text: json(value) fails on bare strings (house-style.md, trap 11).
_STRIP = f"""
UPDATE messages SET codex_reasoning_items = (
    SELECT '[' || group_concat(kept.item, ',') || ']' FROM (
        SELECT messages.codex_reasoning_items -> element.fullkey AS item
        FROM json_each(messages.codex_reasoning_items) AS element
        WHERE NOT ({_IS_CHECKPOINT}) ORDER BY element.key) AS kept)
WHERE session_id = ? AND {CARRIER_PREDICATE_SQLITE}
AND id < ({_NEWEST_CARRIER}) AND {_HOLDS_CHECKPOINT.format(row="messages")}
"""


class SqliteOperations(DialectOperations):
    """SQLite's forms; see the base class for what each does."""

    placeholder = "?"
    is_embedded = True

    def strip_shadowed_checkpoints(self, conn: sa.Connection, session_id: str) -> None:
        """Removes the checkpoints that the newest active carrier shadows."""
        conn.exec_driver_sql(_STRIP, (session_id, session_id))

    def is_any_of(self, column: sa.ColumnElement[Any], parameter: str) -> sa.ColumnElement[bool]:
        """The list travels as one JSON text; SQLite has no arrays."""
        each = sa.func.json_each(sa.bindparam(parameter)).table_valued("value", name="wanted")
        return column.in_(sa.select(each.c.value))

    def list_value(self, values: Iterable[Any]) -> str:
        """The JSON text of the list."""
        return json.dumps(list(values))

    def clock(self) -> sa.ColumnElement[float]:
        """The clock of the machine that all writers of the file run on."""
        return sa.literal(time.time(), sa.Double())

    def insert(self, table: sa.Table) -> sqlite.Insert:
        """The INSERT construct that knows ON CONFLICT."""
        return sqlite.insert(table)
