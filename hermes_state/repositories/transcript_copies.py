"""Copying rows from one session into another: the prefix of a branch, the late tail of a continuation."""

from __future__ import annotations

from collections.abc import Sequence
from secrets import token_hex
from typing import cast

import sqlalchemy as sa

from hermes_state.codec import MESSAGE_COLUMNS, PLACE, EncodedMessage
from hermes_state.decoding import READ_COLUMNS
from hermes_state.payloads import same_payload, tool_call_count
from hermes_state.repositories import rows
from hermes_state.repositories.base import Transaction
from hermes_state.repositories.counters import SessionCounters

_MESSAGES = rows.MESSAGES
_ID = _MESSAGES.c.id
_UID, _CALLS = PLACE["message_uid"], PLACE["tool_calls"]
# The uid of a copy is made by the database: it is another message (CONTRACT.md section 3, rule 8).
_COPIED = [name for name in MESSAGE_COLUMNS if name not in ("session_id", "message_uid")]

Row = rows.Row


def copy_active(
    transaction: Transaction, session_id: str, into: str, up_to: int, chunk_rows: int
) -> tuple[int, int]:
    """Copies the active rows with ids of at most ``up_to`` inside the database; returns how many rows and tool calls.

    Two statements for each ``chunk_rows`` rows; no row passes through here, only its tool calls, which must be counted.
    """
    copied, calls, after = 0, 0, -1
    while (last := _last_of_chunk(transaction, session_id, (after, up_to), chunk_rows)) is not None:
        chunk = sa.select(sa.literal(into), *[_MESSAGES.c[name] for name in _COPIED]).where(
            _MESSAGES.c.session_id == session_id, rows.ACTIVE, after < _ID, last >= _ID
        )
        stmt = (
            sa.insert(_MESSAGES)
            .from_select(["session_id", *_COPIED], chunk.order_by(_ID), include_defaults=False)
            .returning(_MESSAGES.c.tool_calls)
        )
        found = transaction.conn.execute(stmt).scalars().all()
        copied += len(found)
        calls += sum(map(tool_call_count, found))
        after = last
    return copied, calls


def active_above(transaction: Transaction, session_id: str, watermark: int) -> list[Row]:
    """The active rows with ids above ``watermark``, whole, in insertion order."""
    stmt = rows.select(rows.ACTIVE, sa.literal(watermark, sa.BigInteger) < _ID)
    return list(transaction.conn.execute(stmt, {"session_id": session_id}))


def clone(
    transaction: Transaction, into: str, present: Sequence[EncodedMessage], late: Sequence[Row]
) -> list[Row]:
    """Inserts the ``late`` rows with their uids behind the rows ``present`` in the session; returns those inserted.

    One that stands there already is left out. A different message that took its uid does not cost the late one its
    place: that gets a new uid.
    """
    taken = {message.values[_UID]: message.values for message in present}
    cloned: list[Row] = []
    for row in late:
        values = list(row[1:])
        if values[_UID] in taken:
            if same_payload(values, taken[values[_UID]]):
                continue
            values[_UID] = token_hex(16)
        values[PLACE["session_id"]] = into
        cloned.append(values)
    if cloned:
        transaction.operations.insert_messages(transaction.conn, MESSAGE_COLUMNS, cloned)
    return cloned


def calls_of(cloned: Sequence[Row]) -> int:
    """The number of tool calls in rows in ``MESSAGE_COLUMNS`` order."""
    return sum(tool_call_count(values[_CALLS]) for values in cloned)


def rewind(transaction: Transaction, session_id: str, late: Sequence[Row]) -> None:
    """Takes rows that went on elsewhere out of the session's display, and out of its counters."""
    operations = transaction.operations
    is_wanted = operations.is_any_of(_ID, "wanted")
    stmt = sa.update(_MESSAGES).where(_MESSAGES.c.session_id == session_id, is_wanted).values(active=False)
    place = READ_COLUMNS.index("id")
    transaction.conn.execute(stmt, {"wanted": operations.list_value(row[place] for row in late)})
    counters = SessionCounters(transaction.conn, operations, session_id)
    counters.take_back(len(late), calls_of([row[1:] for row in late]))


def _last_of_chunk(
    transaction: Transaction, session_id: str, bounds: tuple[int, int], chunk_rows: int
) -> int | None:
    after, up_to = bounds
    chunk = (
        sa.select(_ID)
        .where(_MESSAGES.c.session_id == session_id, rows.ACTIVE, after < _ID, up_to >= _ID)
        .order_by(_ID)
        .limit(chunk_rows)
        .subquery()
    )
    return cast("int | None", transaction.conn.scalar(sa.select(sa.func.max(chunk.c.id))))
