"""Chains of sessions: what continues what, branches, and the hand-over from a session to its continuation."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import sqlalchemy as sa

from hermes_state import lineage
from hermes_state.codec import PLACE, EncodedMessage
from hermes_state.errors import (
    CompressionSessionClosedError,
    InvalidArgumentError,
    SessionEndedError,
    SessionExistsError,
    SessionNotFoundError,
)
from hermes_state.models import MessageRow
from hermes_state.payloads import same_payload
from hermes_state.repositories import begun_deletions, lineage_walks, rows, transcript_copies
from hermes_state.repositories.appending import Landed
from hermes_state.repositories.base import Transaction, require_count, require_id, table_of
from hermes_state.repositories.counters import SessionCounters
from hermes_state.repositories.leases import LeaseRepository
from hermes_state.repositories.lineage_lookups import LineageLookups
from hermes_state.repositories.message_writes import landed_row
from hermes_state.repositories.messages import MessageRepository
from hermes_state.repositories.session_values import optional_text
from hermes_state.text import is_usable_id

_SESSIONS = lineage_walks.SESSIONS
_MESSAGES = table_of(MessageRow)
_UID = PLACE["message_uid"]
_COMPRESSION = "compression"
_ORPHANED = "orphaned_compression"
ORPHANED_AFTER_SECONDS = 7 * 24 * 3600.0


class LineageRepository(LineageLookups):
    """Lineages inside the unit of work: looking, branching, continuing, repairing."""

    def __init__(self, transaction: Transaction) -> None:
        super().__init__(transaction)
        self._messages = MessageRepository(transaction)
        self._leases = LeaseRepository(transaction)

    def set_flag(self, session_id: str, name: Literal["archived", "pinned", "hidden"], value: bool) -> bool:
        """Sets a flag on the whole compression lineage, side lines included, nothing else; whether it exists.

        Branches, delegates and tool runs stay as they are. What was archived by a sweep counts as decided from now on.
        """
        if not isinstance(value, bool):
            raise InvalidArgumentError(name, "it must be true or false")
        values = {name: value} | ({"auto_archived": False} if name == "archived" else {})
        with self._transaction.verb() as conn:
            if not is_usable_id(session_id):
                return False
            found = lineage_walks.connected_by_compression(conn, session_id)
            is_wanted = self._operations.is_any_of(_SESSIONS.c.id, "wanted", found)
            if found:
                conn.execute(sa.update(_SESSIONS).where(is_wanted).values(values))
            if found and name == "hidden":
                begun_deletions.end(self._transaction, found)
        return bool(found)

    def reopen_orphaned(self, session_id: str) -> bool:
        """Opens a session that was closed by compression and that nothing continues; whether it did (I8).

        Refused (``False``) while any continuation exists, ended ones included, or while somebody alive holds the session's
        compaction lock or its conversation's turn lease.
        """
        with self._transaction.verb():
            if not is_usable_id(session_id):
                return False
            stored = self._sessions.locked(session_id)
            if stored is None or not _is_closed_by_compression(stored) or self._has_continuation(session_id):
                return False
            holders = (
                self._leases.get_compression_lock_holder(session_id),
                self._leases.get_session_turn_lease_holder(session_id),
            )
            if any(holder is not None for holder in holders):
                return False
            self._sessions.reopen(session_id)
        return True

    def reopen_if_explicitly_closed(self, session_id: str) -> bool:
        """Opens a session that was ended for any reason but compression; whether it did."""
        is_compressed = _SESSIONS.c.end_reason.is_not_distinct_from(_COMPRESSION)
        stmt = (
            sa.update(_SESSIONS)
            .where(_SESSIONS.c.id == session_id, _SESSIONS.c.ended_at.is_not(None), ~is_compressed)
            .values(ended_at=None, end_reason=None)
            .returning(_SESSIONS.c.id)
        )
        with self._transaction.verb() as conn:
            return is_usable_id(session_id) and conn.execute(stmt).first() is not None

    def finalize_orphaned(self) -> int:
        """Ends continuations that a crashed compaction left open; returns their number.

        Those started more than 7 days ago, open, with messages, without any model call, of a parent that was ended by
        compression. Their reason is ``orphaned_compression``.
        """
        now = time.time()
        parent = _SESSIONS.alias("parent")
        has_parent = sa.exists().where(
            parent.c.id == _SESSIONS.c.parent_session_id, parent.c.end_reason == _COMPRESSION
        )
        has_rows = sa.exists().where(_MESSAGES.c.session_id == _SESSIONS.c.id)
        stmt = (
            sa.update(_SESSIONS)
            .where(
                lineage_walks.is_continuation(_SESSIONS),
                _SESSIONS.c.ended_at.is_(None),
                _SESSIONS.c.started_at < now - ORPHANED_AFTER_SECONDS,
                _SESSIONS.c.api_call_count == 0,
                has_parent,
                has_rows,
            )
            .values(ended_at=now, end_reason=_ORPHANED)
            .returning(_SESSIONS.c.id)
        )
        with self._transaction.verb() as conn:
            return len(conn.execute(stmt).all())

    def create_branch(
        self,
        parent_session_id: str,
        branch_session_id: str,
        *,
        source: str | None = None,
        up_to_message_id: int | None = None,
        chunk_rows: int = 1000,
        **session_keys: Any,
    ) -> str:
        """A new session of kind ``branch`` with copies of the parent's active rows; returns its id.

        The rows up to ``up_to_message_id`` (all without it) are copied inside the database, ``chunk_rows`` at a time, in
        this one transaction: an interrupted copy leaves nothing and is made anew. They get uids of their own; the
        parent is only read. A message that a compaction carried on stands for the row that carries it. ``session_keys``:
        those of ``create``. Raises ``SessionNotFoundError``, ``SessionExistsError`` and ``InvalidArgumentError``, also for a
        message that is not of the parent, or that was summarised away.
        """
        require_id("branch_session_id", branch_session_id)
        require_count("chunk_rows", chunk_rows, least=1)
        with self._transaction.verb() as conn:
            parent = self._locked_parent(parent_session_id)
            limit = self._end_of_prefix(parent_session_id, up_to_message_id)
            self._sessions.create_new(
                branch_session_id,
                source or parent["source"],
                "branch",
                **session_keys,
                parent_session_id=parent_session_id,
            )
            counted = transcript_copies.copy_active(
                self._transaction, parent_session_id, branch_session_id, limit, chunk_rows
            )
            SessionCounters(conn, self._operations, branch_session_id).set(*counted)
            self._operations.strip_shadowed_checkpoints(conn, branch_session_id)
        return branch_session_id

    def publish_continuation(
        self,
        parent_session_id: str,
        child_session_id: str,
        handoff_messages: Sequence[Any],
        *,
        source: str | None = None,
        watermark: int | None = None,
        lock_holder: str | None = None,
        end_reason: str = _COMPRESSION,
        encoded: Sequence[EncodedMessage] | None = None,
        **session_keys: Any,
    ) -> str:
        """Ends the parent and begins its continuation with the hand-off, in this one transaction; returns the child's id.

        Nobody ever sees the parent ended without its child. Rows of the parent above ``watermark`` arrived while the summary
        was made: they move to the end of the child, with their uids, so that a retried append finds them there; in the
        parent they become rewound, so that they are found once. The hand-off dicts learn their row ids after the commit.

        Of several at once exactly one succeeds: the parent's row is locked, and one that compression has ended, and that a
        session continues, raises ``CompressionSessionClosedError``. An ended parent that nothing continues is repaired.
        A parent that somebody ended for a reason of their own raises ``SessionEndedError``; a stamp of
        ``lineage.AUTOMATIC_END_REASONS`` is replaced. Also raised: ``SessionNotFoundError``, ``SessionExistsError`` for the
        child, ``SessionCompressionInProgressError`` when ``lock_holder`` does not hold the compaction lock,
        ``InvalidMessageError``, and ``InvalidArgumentError`` for an empty hand-off and for a watermark of the future.
        A publication whose answer was lost may be called again: the same hand-off dicts for the same child succeed.
        ``encoded``: the rows that ``uow.messages.encode`` made of the hand-off, if that was done already.
        """
        require_id("child_session_id", child_session_id)
        if encoded is None:
            encoded = self._messages.encode(child_session_id, handoff_messages)
        reason = optional_text("end_reason", end_reason)
        if not encoded or not reason:
            name = "end_reason" if encoded else "handoff_messages"
            raise InvalidArgumentError(name, "a continuation needs it: it is empty")
        with self._transaction.verb():
            parent = self._locked_parent(parent_session_id)
            landed = self._published_before(parent_session_id, child_session_id, encoded)
            if landed is None:
                self._check_publishable(parent, child_session_id)
                if lock_holder is not None:
                    self._leases.check_compression_lock(parent_session_id, lock_holder)
                late = self._late_rows(parent_session_id, watermark)
                self._transaction.wrote()
                self._end(parent, reason)
                self._sessions.create_new(
                    child_session_id,
                    source or parent["source"],
                    "continuation",
                    **session_keys,
                    parent_session_id=parent_session_id,
                )
                landed = self._hand_over((parent_session_id, child_session_id), encoded, late)
        self._messages.stamp_at_commit(handoff_messages, encoded, landed)
        return child_session_id

    def _locked_parent(self, parent_session_id: str) -> Mapping[str, Any]:
        stored = self._sessions.locked(parent_session_id) if is_usable_id(parent_session_id) else None
        if stored is None:
            raise SessionNotFoundError(parent_session_id)
        return stored

    def _end_of_prefix(self, session_id: str, up_to_message_id: int | None) -> int:
        if up_to_message_id is None:
            return self._messages.active_watermark(session_id)
        wanted = require_count("up_to_message_id", up_to_message_id)
        row = rows.present(self._transaction, session_id, wanted)
        if row is None:
            raise InvalidArgumentError("up_to_message_id", f"session {session_id!r} has no message {wanted}")
        if row.compacted:
            raise InvalidArgumentError(
                "up_to_message_id",
                f"message {wanted} was summarised away; name a message that is still active",
            )
        return int(row.id)

    def _check_publishable(self, parent: Mapping[str, Any], child_session_id: str) -> None:
        if self._sessions.get(child_session_id) is not None:
            raise SessionExistsError(child_session_id)
        if parent["ended_at"] is None:
            return
        if _is_closed_by_compression(parent):
            if self._has_continuation(parent["id"]):
                raise CompressionSessionClosedError(parent["id"])
        elif not lineage.may_be_continued(parent["end_reason"]):
            raise SessionEndedError(parent["id"], parent["end_reason"])

    def _has_continuation(self, session_id: str) -> bool:
        stmt = sa.select(_SESSIONS.c.id).where(
            _SESSIONS.c.parent_session_id == session_id, lineage_walks.is_continuation(_SESSIONS)
        )
        return self._transaction.conn.execute(stmt.limit(1)).first() is not None

    def _late_rows(self, session_id: str, watermark: int | None) -> list[transcript_copies.Row]:
        if watermark is None:
            return []
        mark = require_count("watermark", watermark)
        if mark > (self._messages.latest_row_id(session_id) or 0):
            raise InvalidArgumentError("watermark", f"session {session_id!r} has no message {mark} yet")
        return transcript_copies.active_above(self._transaction, session_id, mark)

    def _end(self, parent: Mapping[str, Any], reason: str) -> None:
        if not _is_closed_by_compression(parent):
            stmt = sa.update(_SESSIONS).where(_SESSIONS.c.id == parent["id"])
            self._transaction.conn.execute(stmt.values(ended_at=time.time(), end_reason=reason))

    def _hand_over(
        self,
        sessions: tuple[str, str],
        handoff: Sequence[EncodedMessage],
        late: Sequence[transcript_copies.Row],
    ) -> list[Landed | None]:
        """Fills the child (the second session), moves the parent's late rows there, counts and strips."""
        conn, child_id = self._transaction.conn, sessions[1]
        landed = self._messages.insert_new(child_id, handoff)
        present = {
            m.values[_UID]: (m.values, landed_row(place).row_id)
            for m, place in zip(handoff, landed, strict=True)
        }
        count, calls = transcript_copies.move(self._transaction, late, sessions, present)
        calls += sum(m.tool_call_count for m in handoff)
        SessionCounters(conn, self._operations, child_id).set(len(handoff) + count, calls)
        self._operations.strip_shadowed_checkpoints(conn, child_id)
        return landed

    def _published_before(
        self, parent_id: str, child_id: str, handoff: Sequence[EncodedMessage]
    ) -> list[Landed | None] | None:
        """Where the hand-off stands if this very publication took place and its answer was lost; else ``None``.

        Then the dicts kept the uids of their rows (``stamp_at_commit``).
        """
        child = self._sessions.get(child_id)
        if child is None or child["parent_session_id"] != parent_id or child["kind"] != "continuation":
            return None
        stored = rows.by_uid(self._transaction, child_id, [m.values[_UID] for m in handoff])
        found = [stored.get(m.values[_UID]) for m in handoff]
        if any(
            row is None or not same_payload(m.values, row[1:]) for m, row in zip(handoff, found, strict=True)
        ):
            return None
        return [Landed(row[0], row[1 + PLACE["timestamp"]]) for row in found if row is not None]


def _is_closed_by_compression(session: Mapping[str, Any]) -> bool:
    return session["ended_at"] is not None and session["end_reason"] == _COMPRESSION
