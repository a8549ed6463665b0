"""The session row as message verbs see it: its lock, its guards, its counters.

On PostgreSQL the session row is locked before any of its messages is touched, so ids are in commit order within a
session, and counters and strip are exact under READ COMMITTED (DESIGN.md, decision 5).
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from hermes_state.dialects import DialectOperations
from hermes_state.errors import CompressionSessionClosedError, SessionNotFoundError, SessionTurnLeaseLostError
from hermes_state.models import MessageRow, SessionRow, SessionTurnLeaseRow
from hermes_state.payloads import tool_call_count
from hermes_state.repositories import rows
from hermes_state.repositories.base import require_id, table_of
from hermes_state.repositories.lease_rows import LeaseRows, require_seconds
from hermes_state.text import is_usable_id

_SESSIONS = table_of(SessionRow)
_MESSAGES = table_of(MessageRow)
_TURN_LEASES = table_of(SessionTurnLeaseRow)
_COMPRESSION = "compression"
_OTHER = 2**40
_ACTIVE_OF_SESSION = sa.and_(
    _MESSAGES.c.session_id == sa.bindparam("session_id"), sa.literal_column("messages.active")
)


class SessionCounters:
    """Locks, checks and counts one session inside a transaction."""

    def __init__(self, conn: sa.Connection, operations: DialectOperations, session_id: str) -> None:
        self._conn = conn
        self._operations = operations
        self._session_id = session_id
        if not is_usable_id(session_id):
            raise SessionNotFoundError(session_id)

    def lock(self, turn_lease_holder: str | None = None, turn_lease_ttl_seconds: float = 300.0) -> None:
        """Locks the row and applies the guards of CONTRACT.md section 3, rule 6; raises their errors.

        A turn lease that is presented stays its holder's until the transaction ends; one that had expired, and that
        nobody claimed, is renewed for ``turn_lease_ttl_seconds``.
        """
        row = self._locked_row()
        if row is None:
            raise SessionNotFoundError(self._session_id)
        if row.ended_at is not None and row.end_reason == _COMPRESSION:
            raise CompressionSessionClosedError(self._session_id)
        if turn_lease_holder is not None:
            conversation = row.root_session_id or self._session_id
            self._keep_turn_lease(conversation, turn_lease_holder, turn_lease_ttl_seconds)

    def lock_if_there(self) -> bool:
        """Locks the row, open or closed; whether there is one."""
        return self._locked_row() is not None

    def _locked_row(self) -> sa.Row[Any] | None:
        stmt = self._operations.compiled("counters.lock", _lock)
        return stmt.execute(self._conn, session_id=self._session_id).first()

    def _keep_turn_lease(self, conversation_id: str, holder: str, ttl_seconds: float) -> None:
        holder, seconds = require_id("turn_lease_holder", holder), require_seconds("ttl_seconds", ttl_seconds)
        if not LeaseRows(self._conn, self._operations, _TURN_LEASES).keep(conversation_id, holder, seconds):
            raise SessionTurnLeaseLostError(self._session_id, holder)

    def add(self, rows: int, calls: int, last_active_at: float | None) -> None:
        """Adds to the counters, in the one UPDATE that locks the row and checks the guards too.

        ``last_active_at`` in epoch seconds; ``None`` keeps what is there.
        """
        stmt = self._operations.compiled("counters.add", _add)
        values = {
            "rows": rows,
            "calls": calls,
            "last_active_at": last_active_at,
            "session_id": self._session_id,
        }
        if stmt.execute(self._conn, **values).rowcount == 0:
            self.lock()  # raises what refused, unless the session was reopened a moment ago
            stmt.execute(self._conn, **values)

    def take_back(self, rows: int, calls: int) -> None:
        """Removes the share of rows that turned out to be there already, and restores the last activity."""
        stmt = self._operations.compiled("counters.take_back", _take_back)
        stmt.execute(self._conn, rows=rows, calls=calls, session_id=self._session_id)

    def set(self, rows: int, calls: int) -> None:
        """Sets the counters after a rewrite; the last activity becomes the time of the newest row, if any."""
        stmt = self._operations.compiled("counters.set", _set)
        stmt.execute(self._conn, rows=rows, calls=calls, session_id=self._session_id)

    def recount(self, *, rewinds: int = 0) -> None:
        """Counts the active rows and their calls anew, and adds ``rewinds`` to the number of rewinds.

        The last activity becomes the time of the newest row, whatever its state, if there is one.
        """
        stmt = self._operations.compiled("counters.recount", _recount)
        stmt.execute(self._conn, rewinds=rewinds, calls=self._active_calls(), session_id=self._session_id)

    def _active_calls(self) -> int:
        """The calls of the active rows: the database counts plain lists, Python what other programs wrote else."""
        length = self._operations.list_length(_MESSAGES.c.tool_calls)
        counted = self._operations.compiled("counters.calls", lambda: _calls_and_others(length))
        total = counted.execute(self._conn, session_id=self._session_id).scalar() or 0
        others, calls = divmod(int(total), _OTHER)
        if not others:
            return calls
        rest = self._operations.compiled("counters.other_calls", lambda: _calls_of_others(length))
        found = rest.execute(self._conn, session_id=self._session_id)
        return calls + sum(tool_call_count(row[0]) for row in found)


def _lock() -> sa.Executable:
    columns = (_SESSIONS.c.ended_at, _SESSIONS.c.end_reason, _SESSIONS.c.root_session_id)
    return sa.select(*columns).where(_SESSIONS.c.id == sa.bindparam("session_id")).with_for_update()


def _add() -> sa.Executable:
    is_open = sa.or_(
        _SESSIONS.c.ended_at.is_(None),
        _SESSIONS.c.end_reason.is_(None),
        _SESSIONS.c.end_reason != _COMPRESSION,
    )
    last_active_at = sa.func.coalesce(
        sa.bindparam("last_active_at", type_=sa.Double), _SESSIONS.c.last_active_at
    )
    return (
        sa.update(_SESSIONS)
        .where(_SESSIONS.c.id == sa.bindparam("session_id"), is_open)
        .values(_changed_by(sign=1) | {"last_active_at": last_active_at})
    )


def _take_back() -> sa.Executable:
    return (
        sa.update(_SESSIONS)
        .where(_SESSIONS.c.id == sa.bindparam("session_id"))
        .values(_changed_by(sign=-1) | {"last_active_at": _newest_timestamp()})
    )


def _set() -> sa.Executable:
    return (
        sa.update(_SESSIONS)
        .where(_SESSIONS.c.id == sa.bindparam("session_id"))
        .values(
            message_count=sa.bindparam("rows", type_=sa.BigInteger),
            tool_call_count=sa.bindparam("calls", type_=sa.BigInteger),
            last_active_at=_newest_timestamp(),
        )
    )


def _calls_and_others(length: sa.ColumnElement[int]) -> sa.Executable:
    # One aggregate, in which what is no list counts _OTHER: with two, PostgreSQL would parse every text twice.
    weight = sa.func.coalesce(length, sa.literal_column(str(_OTHER)))
    return sa.select(sa.func.sum(weight)).where(_ACTIVE_OF_SESSION, _MESSAGES.c.tool_calls.is_not(None))


def _calls_of_others(length: sa.ColumnElement[int]) -> sa.Executable:
    is_other = sa.and_(_MESSAGES.c.tool_calls.is_not(None), length.is_(None))
    return sa.select(_MESSAGES.c.tool_calls).where(_ACTIVE_OF_SESSION, is_other)


def _recount() -> sa.Executable:
    active = sa.select(sa.func.count()).select_from(_MESSAGES).where(_ACTIVE_OF_SESSION).scalar_subquery()
    return (
        sa.update(_SESSIONS)
        .where(_SESSIONS.c.id == sa.bindparam("session_id"))
        .values(
            message_count=active,
            tool_call_count=sa.bindparam("calls", type_=sa.BigInteger),
            last_active_at=_newest_timestamp(),
            rewind_count=_rewinds() + sa.bindparam("rewinds", type_=sa.BigInteger),
        )
    )


def _changed_by(*, sign: int) -> dict[str, Any]:
    changed = {}
    for column, name in ((_SESSIONS.c.message_count, "rows"), (_SESSIONS.c.tool_call_count, "calls")):
        total = column + sign * sa.bindparam(name, type_=sa.BigInteger)
        # Another program may have inserted rows without counting them; that must not stop a write.
        changed[column.name] = sa.case((total < 0, 0), else_=total)
    return changed


def _newest_timestamp() -> sa.ScalarSelect[Any]:
    return rows.newest(columns=("timestamp",)).limit(1).scalar_subquery()


def _rewinds() -> sa.ColumnElement[int]:
    """What was counted so far; another program may have stored less than nothing, which no update would get past."""
    stored = _SESSIONS.c.rewind_count
    return sa.case((stored < sa.literal_column("0"), sa.literal_column("0")), else_=stored)
