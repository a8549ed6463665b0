"""Copying rows from one session into another: the prefix of a branch, the late tail of a continuation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from secrets import token_hex
from typing import Any, cast

import sqlalchemy as sa

from hermes_state.codec import MESSAGE_COLUMNS, PLACE
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
        chunk = rows.select(rows.ACTIVE, after < _ID, last >= _ID, columns=_COPIED)
        stmt = (
            sa.insert(_MESSAGES)
            .from_select(
                ["session_id", *_COPIED],
                chunk.with_only_columns(sa.literal(into), *chunk.selected_columns),
                include_defaults=False,
            )
            .returning(_MESSAGES.c.tool_calls)
        )
        found = transaction.conn.execute(stmt, {"session_id": session_id}).scalars().all()
        copied += len(found)
        calls += sum(map(tool_call_count, found))
        after = last
    return copied, calls


def active_above(transaction: Transaction, session_id: str, watermark: int) -> list[Row]:
    """The active rows with ids above ``watermark``, whole, in insertion order."""
    stmt = rows.select(rows.ACTIVE, sa.literal(watermark, sa.BigInteger) < _ID)
    return list(transaction.conn.execute(stmt, {"session_id": session_id}))


def move(
    transaction: Transaction,
    late: Sequence[Row],
    sessions: tuple[str, str],
    present: Mapping[str, tuple[Sequence[Any], int]],
) -> tuple[int, int]:
    """Moves the ``late`` rows from the first session to the end of the second; returns how many rows and calls came.

    They keep their uids, and in the first session they become rewound and name their successor. ``present``: the rows of
    the second session by uid, with their ids. A late row that stands there already is that one; a different message
    that took its uid does not cost it its place: then it gets a new uid.
    """
    source, into = sessions
    uids: dict[int, str] = {}
    cloned: list[list[Any]] = []
    for row_id, *values in late:
        uid = values[_UID]
        if uid not in present or not same_payload(values, present[uid][0]):
            values[_UID] = uid if uid not in present else token_hex(16)
            values[PLACE["session_id"]] = into
            cloned.append(values)
        uids[row_id] = values[_UID]
    ids = {uid: row_id for uid, (_, row_id) in present.items()}
    if cloned:
        ids |= transaction.operations.insert_messages(transaction.conn, cloned)
    if late:
        _supersede(transaction, source, {row_id: ids[uid] for row_id, uid in uids.items()})
        gone = sum(tool_call_count(row[1:][_CALLS]) for row in late)
        SessionCounters(transaction.conn, transaction.operations, source).take_back(len(late), gone)
    return len(cloned), sum(tool_call_count(values[_CALLS]) for values in cloned)


def _supersede(transaction: Transaction, session_id: str, successors: dict[int, int]) -> None:
    def build() -> sa.Executable:
        stmt = sa.update(_MESSAGES).where(rows.OF_SESSION, sa.bindparam("row_id") == _ID)
        return stmt.values(active=sa.false(), superseded_by=sa.bindparam("successor"))

    stmt = transaction.operations.compiled("copies.supersede", build)
    values = [{"session_id": session_id, "row_id": old, "successor": new} for old, new in successors.items()]
    stmt.execute_many(transaction.conn, values)


def _last_of_chunk(
    transaction: Transaction, session_id: str, bounds: tuple[int, int], chunk_rows: int
) -> int | None:
    after, up_to = bounds
    ids = rows.select(rows.ACTIVE, after < _ID, up_to >= _ID, columns=("id",)).limit(chunk_rows).subquery()
    last = transaction.conn.scalar(sa.select(sa.func.max(ids.c.id)), {"session_id": session_id})
    return cast("int | None", last)
