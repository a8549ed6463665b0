"""Tables whose rows belong to a session and go with it, such as usage: what an export carries besides messages and reactions.

They are found in the metadata, so a new one travels along without being named here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from hermes_state.errors import InvalidArgumentError
from hermes_state.models import MessageReactionRow, MessageRow, SessionRow, metadata
from hermes_state.repositories.column_values import column_value
from hermes_state.repositories.fitting import Fitter
from hermes_state.text import MAX_ID_CHARACTERS, is_usable_id

Rows = dict[str, list[dict[str, Any]]]


def _owner(table: sa.Table) -> str | None:
    """The column that names the session which a row dies with."""
    keys = (key for key in table.foreign_key_constraints if key.ondelete == "CASCADE")
    found = (key.column_keys[0] for key in keys if key.referred_table.name == SessionRow.__tablename__)
    return next(found, None)


OWNERS: dict[sa.Table, str] = {
    table: owner
    for table in metadata.sorted_tables
    if table.name not in (MessageRow.__tablename__, MessageReactionRow.__tablename__)
    and (owner := _owner(table)) is not None
}
"""The tables, each with the column that names the session."""

_FITTERS = {table: Fitter(table) for table in OWNERS}


def exported_rows(conn: sa.Connection, session_id: str) -> Rows:
    """The rows of the session by table, without the column that names it; tables without any are left out."""
    found: Rows = {}
    for table, owner in OWNERS.items():
        columns = [column for column in table.columns if column.name != owner]
        stmt = sa.select(*columns).where(table.c[owner] == session_id)
        rows = [_exported(table, row) for row in conn.execute(stmt).mappings()]
        if rows:
            # In Python, because the databases sort texts differently.
            found[table.name] = sorted(rows, key=lambda row: _key(table, row))
    return found


def checked_rows(session: Mapping[Any, Any], max_text_bytes: int) -> Rows:
    """The rows that a session dict brings; ``InvalidArgumentError`` for what the tables do not hold."""
    found: Rows = {}
    for table, owner in OWNERS.items():
        given = session.get(table.name)
        if given is None:
            continue
        if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Sequence):
            raise InvalidArgumentError(table.name, "it must be a list")
        found[table.name] = rows = [_checked(table, owner, row, max_text_bytes) for row in given]
        if len({_key(table, row) for row in rows}) < len(rows):
            raise InvalidArgumentError(table.name, "two rows have the same key")
    return found


def insert_rows(conn: sa.Connection, session_id: str, rows: Rows) -> None:
    """Gives the rows to a new session."""
    for table, owner in OWNERS.items():
        if rows.get(table.name):
            for row in rows[table.name]:  # each has columns of its own
                conn.execute(sa.insert(table).values({**row, owner: session_id}))


def _exported(table: sa.Table, row: Mapping[Any, Any]) -> dict[str, Any]:
    values = {name: _FITTERS[table].fit(name, value) for name, value in row.items()}
    # Another program may have stored a negative counter.
    return {name: max(0, value) if type(value) is int else value for name, value in values.items()}


def _checked(table: sa.Table, owner: str, row: Any, max_text_bytes: int) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise InvalidArgumentError(table.name, "a row must be a dict")
    values: dict[str, Any] = {}
    for column in table.columns:
        value = row.get(column.name)
        if column.name == owner:
            continue
        if value is not None:
            values[column.name] = value = column_value(column, value, max_text_bytes)
        if column.primary_key and not (value is None and column.server_default is not None):
            _require_key(table, column.name, value)
    return values


def _require_key(table: sa.Table, name: str, value: Any) -> None:
    is_id = any(str(constraint.name).endswith(f"__{name}_length") for constraint in table.constraints)
    if is_id and not is_usable_id(value):
        raise InvalidArgumentError(
            f"{table.name}.{name}", f"it must have 1 to {MAX_ID_CHARACTERS} characters"
        )
    if value is None or (isinstance(value, str) and len(value) > MAX_ID_CHARACTERS):
        raise InvalidArgumentError(f"{table.name}.{name}", "a row needs it, as a short text or a number")


def _key(table: sa.Table, row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(row.get(column.name)) for column in table.primary_key.columns)
