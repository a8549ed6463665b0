"""What every write of messages shares: encoding, inserting as rows of their own, stamping after the commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from secrets import token_hex
from typing import Any, TypedDict

from hermes_state.codec import MESSAGE_COLUMNS, EncodedMessage, encode_batch
from hermes_state.repositories import rows
from hermes_state.repositories.appending import Landed
from hermes_state.repositories.base import Repository
from hermes_state.repositories.counters import SessionCounters
from hermes_state.repositories.leases import LeaseRepository

_UID = MESSAGE_COLUMNS.index("message_uid")
_TIMESTAMP = MESSAGE_COLUMNS.index("timestamp")


class Holders(TypedDict, total=False):
    """Who rewrites a transcript: the holder of its turn lease, and of its compaction lock."""

    turn_lease_holder: str | None
    compression_lock_holder: str | None


class MessageWrites(Repository):
    """Base of the repositories that insert messages."""

    def locked_for_rewriting(self, session_id: str, holders: Holders) -> SessionCounters:
        """The counters of a session whose row is locked, and on which nobody else is at work.

        Raises the errors of ``SessionCounters.lock`` and of ``LeaseRepository.check_rewriting``.
        """
        counters = SessionCounters(self._transaction.conn, self._operations, session_id)
        counters.lock()
        LeaseRepository(self._transaction).check_rewriting(session_id, **holders)
        return counters

    def encode(self, session_id: str, messages: Sequence[Any]) -> list[EncodedMessage]:
        """The checked rows of ``messages``; raises ``InvalidMessageError`` before any SQL."""
        return encode_batch(
            messages, session_id=session_id, max_text_bytes=self._transaction.max_text_bytes, clock=time.time
        )

    def insert_new(self, session_id: str, encoded: Sequence[EncodedMessage]) -> list[Landed | None]:
        """Inserts every message as a row of its own; a uid that is taken is replaced by a new one, none is lost."""
        taken = set(rows.by_uid(self._transaction, session_id, [m.values[_UID] for m in encoded]))
        for message in encoded:
            if message.values[_UID] in taken:
                message.values[_UID] = token_hex(16)
            taken.add(message.values[_UID])
        ids = self._operations.insert_messages(self._transaction.conn, [m.values for m in encoded])
        return [Landed(ids[m.values[_UID]], m.values[_TIMESTAMP]) for m in encoded]

    def stamp_at_commit(
        self, messages: Sequence[Any], encoded: Sequence[EncodedMessage], landed: Sequence[Landed | None]
    ) -> None:
        """Has the dicts among ``messages`` learn their row ids and times after the commit, and only then."""
        known = [m if isinstance(m, dict) and "_message_uid" in m else None for m in messages]
        self._transaction.after_commit += [_stamper(messages, landed), _identifier(known, encoded)]
        self._transaction.outcome_unknown.append(_identifier(messages, encoded))

    def stamp_known_at_commit(
        self, messages: Sequence[Any], encoded: Sequence[EncodedMessage], landed: Sequence[Landed | None]
    ) -> None:
        """As ``stamp_at_commit`` after a rewrite; rows that ``get_messages`` gave stay as they are.

        The dicts learn their uid too, so that a flush of the rewritten list finds its rows (field report F3).
        """
        known = [
            m if isinstance(m, dict) and place is not None and not _is_row(m) else None
            for m, place in zip(messages, landed, strict=True)
        ]
        self._transaction.after_commit += [_stamper(known, landed), _identifier(known, encoded)]
        self._transaction.outcome_unknown.append(_identifier(messages, encoded))


def _is_row(message: dict[str, Any]) -> bool:
    return "_row_id" not in message and "id" in message and "session_id" in message


def _stamper(messages: Sequence[Any], landed: Sequence[Landed | None]) -> Callable[[], None]:
    def stamp() -> None:
        for message, place in zip(messages, landed, strict=True):
            if isinstance(message, dict):
                message["_row_id"] = landed_row(place).row_id
                message["timestamp"] = landed_row(place).timestamp

    return stamp


def _identifier(messages: Sequence[Any], encoded: Sequence[EncodedMessage]) -> Callable[[], None]:
    """What makes a retry safe when nobody knows whether a COMMIT took place: the dicts keep the uids of their rows."""

    def identify() -> None:
        for message, row in zip(messages, encoded, strict=True):
            if isinstance(message, dict):
                message["_message_uid"] = row.values[_UID]

    return identify


def landed_row(place: Landed | None) -> Landed:
    """The place of a message that a finished write has landed."""
    assert place is not None
    return place
