"""Compaction locks and turn leases (issue 3, item 4): rows with an expiry, no locks of the database.

A compaction lock belongs to one session, which need not exist yet. A turn lease belongs to a conversation: its key
is the first session of the chain of continuations. A holder is any text of 1 to 512 characters.
"""

from __future__ import annotations

import sqlalchemy as sa

from hermes_state.errors import (
    LeaseHeldError,
    SessionCompressionInProgressError,
    SessionTurnLeaseLostError,
)
from hermes_state.models import CompressionLockRow, SessionRow, SessionTurnLeaseRow
from hermes_state.repositories.base import Transaction, require_id, table_of
from hermes_state.repositories.compression_state import CompressionState
from hermes_state.repositories.lease_holders import is_gone
from hermes_state.repositories.lease_rows import LeaseRows, require_seconds
from hermes_state.text import is_usable_id

_SESSIONS = table_of(SessionRow)
_TURNS = table_of(SessionTurnLeaseRow)
_LOCKS = table_of(CompressionLockRow)
DEFAULT_TTL_SECONDS = 300.0


class LeaseRepository(CompressionState):
    """Leases inside the unit of work.

    ``InvalidArgumentError`` for a holder that is no id, for a time that is not a finite number of seconds above 0, and
    for acquiring with a session id that cannot exist; such an id is otherwise held by nobody.
    """

    def __init__(self, transaction: Transaction) -> None:
        super().__init__(transaction)
        conn, operations = transaction.conn, transaction.operations
        self._locks = LeaseRows(conn, operations, _LOCKS)
        self._turns = LeaseRows(conn, operations, _TURNS)

    def try_acquire_compression_lock(
        self, session_id: str, holder: str, ttl_seconds: float = DEFAULT_TTL_SECONDS
    ) -> bool:
        """Takes the lock if it is free, expired, or left by a process that has ended; the own one is extended."""
        key, holder = require_id("session_id", session_id), require_id("holder", holder)
        seconds = require_seconds("ttl_seconds", ttl_seconds)
        with self._transaction.verb():
            return self._locks.take(key, holder, seconds) is None

    def refresh_compression_lock(
        self, session_id: str, holder: str, ttl_seconds: float = DEFAULT_TTL_SECONDS
    ) -> bool:
        """Lets the own lock end ``ttl_seconds`` from now; an expired one too, as long as nobody claimed it."""
        holder, seconds = require_id("holder", holder), require_seconds("ttl_seconds", ttl_seconds)
        with self._transaction.verb():
            return is_usable_id(session_id) and self._locks.renew(session_id, holder, seconds)

    def release_compression_lock(self, session_id: str, holder: str) -> None:
        """Gives the own lock back; does nothing when it is not the holder's."""
        holder = require_id("holder", holder)
        with self._transaction.verb():
            if is_usable_id(session_id):
                self._locks.release(session_id, holder)

    def get_compression_lock_holder(self, session_id: str) -> str | None:
        """Who holds the unexpired lock, or ``None``."""
        with self._transaction.verb():
            return self._locks.live_holder(session_id) if is_usable_id(session_id) else None

    def check_compression_lock(
        self, session_id: str, holder: str, ttl_seconds: float = DEFAULT_TTL_SECONDS
    ) -> None:
        """Raises ``SessionCompressionInProgressError`` unless the lock is the holder's.

        It stays so until the transaction ends. A lock that had expired, and that nobody claimed, is renewed.
        """
        holder, seconds = require_id("holder", holder), require_seconds("ttl_seconds", ttl_seconds)
        with self._transaction.verb():
            if not is_usable_id(session_id):
                raise SessionCompressionInProgressError(session_id)
            if not self._locks.keep(session_id, holder, seconds):
                raise SessionCompressionInProgressError(session_id, self._locks.live_holder(session_id))

    def check_rewriting(
        self,
        session_id: str,
        turn_lease_holder: str | None = None,
        compression_lock_holder: str | None = None,
    ) -> None:
        """The guard of verbs that change what is there: nobody else may be at work on it (known-store.md 3.3).

        A holder that is given must hold the lease, which is renewed if it had expired unclaimed: else
        ``SessionTurnLeaseLostError`` or ``SessionCompressionInProgressError``. Without one nobody may hold it: else
        ``LeaseHeldError`` or ``SessionCompressionInProgressError``.
        """
        at_work = self._transaction.conn.execute(_at_work(session_id, self._operations.clock())).one()
        if turn_lease_holder is not None:
            holder = require_id("turn_lease_holder", turn_lease_holder)
            if not self._turns.keep(at_work.conversation, holder, DEFAULT_TTL_SECONDS):
                raise SessionTurnLeaseLostError(session_id, holder)
        elif at_work.in_turn is not None and not is_gone(at_work.in_turn):
            raise LeaseHeldError(session_id, at_work.in_turn)
        if compression_lock_holder is not None:
            self.check_compression_lock(session_id, compression_lock_holder)
        elif at_work.compacting is not None and not is_gone(at_work.compacting):
            raise SessionCompressionInProgressError(session_id, at_work.compacting)

    def take_session_turn_lease(
        self, session_id: str, holder: str, ttl_seconds: float = DEFAULT_TTL_SECONDS
    ) -> str | None:
        """Takes or extends the lease of the session's conversation; returns ``None``, or who holds it."""
        session_id, holder = require_id("session_id", session_id), require_id("holder", holder)
        seconds = require_seconds("ttl_seconds", ttl_seconds)
        with self._transaction.verb():
            return self._turns.take(self._conversation(session_id), holder, seconds)

    def try_acquire_session_turn_lease(
        self, session_id: str, holder: str, ttl_seconds: float = DEFAULT_TTL_SECONDS
    ) -> bool:
        """Takes the lease of the session's conversation if it is free, expired, or left by a process that has ended.

        The own lease is extended.
        """
        return self.take_session_turn_lease(session_id, holder, ttl_seconds) is None

    def refresh_session_turn_lease(
        self, session_id: str, holder: str, ttl_seconds: float = DEFAULT_TTL_SECONDS
    ) -> bool:
        """Lets the own lease end ``ttl_seconds`` from now; an expired one too, as long as nobody claimed it."""
        holder, seconds = require_id("holder", holder), require_seconds("ttl_seconds", ttl_seconds)
        with self._transaction.verb():
            return is_usable_id(session_id) and self._turns.renew(
                self._conversation(session_id), holder, seconds
            )

    def release_session_turn_lease(self, session_id: str, holder: str) -> None:
        """Gives the own lease back; does nothing when it is not the holder's."""
        holder = require_id("holder", holder)
        with self._transaction.verb():
            if is_usable_id(session_id):
                self._turns.release(self._conversation(session_id), holder)

    def get_session_turn_lease_holder(self, session_id: str) -> str | None:
        """Who holds the unexpired lease of the session's conversation, or ``None``."""
        with self._transaction.verb():
            return (
                self._turns.live_holder(self._conversation(session_id)) if is_usable_id(session_id) else None
            )

    def _conversation(self, session_id: str) -> str:
        root = sa.select(_SESSIONS.c.root_session_id).where(_SESSIONS.c.id == session_id)
        return self._transaction.conn.scalar(root) or session_id


def _at_work(session_id: str, now: sa.ColumnElement[float]) -> sa.Executable:
    """The key of the session's conversation, and who holds its turn lease and the session's compaction lock."""
    conversation = sa.func.coalesce(_SESSIONS.c.root_session_id, _SESSIONS.c.id)
    in_turn = sa.select(_TURNS.c.holder).where(
        _TURNS.c.conversation_id == conversation, _TURNS.c.expires_at > now
    )
    compacting = sa.select(_LOCKS.c.holder).where(
        _LOCKS.c.session_id == _SESSIONS.c.id, _LOCKS.c.expires_at > now
    )
    return sa.select(
        conversation.label("conversation"),
        in_turn.scalar_subquery().label("in_turn"),
        compacting.scalar_subquery().label("compacting"),
    ).where(_SESSIONS.c.id == session_id)
