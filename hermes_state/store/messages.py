"""Verbs on the messages of a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hermes_state.records import ConversationMessage, MessageRecord
from hermes_state.repositories.base import require_count
from hermes_state.store.core import StoreCore
from hermes_state.unit_of_work import UnitOfWork


class MessageVerbs(StoreCore):
    """Appending and reading transcripts."""

    def append_message(self, session_id: str, role: str, content: Any = None, **keys: Any) -> int:
        """Appends one message, a batch of one; returns its row id (CONTRACT.md section 3)."""
        return self._write(lambda uow: uow.messages.append(session_id, role, content, **keys))

    def append_messages_batch(
        self,
        session_id: str,
        messages: Sequence[Any],
        *,
        compression_lock_holder: str | None = None,  # noqa: ARG002 - appends do not check that lock
        turn_lease_holder: str | None = None,
        turn_lease_ttl_seconds: float = 300.0,
        chunk_rows: int | None = None,
    ) -> int:
        """Appends the messages in one transaction, all or none; returns the number of rows inserted.

        After the commit each dict carries ``_row_id`` and its ``timestamp`` (epoch seconds). ``chunk_rows`` splits a large
        copy into several transactions, each atomic on its own. The compression lock is not checked by appends; a turn
        lease is: a holder who lost it gets ``SessionTurnLeaseLostError``, and one whose lease expired unclaimed gets it
        renewed for ``turn_lease_ttl_seconds`` (CONTRACT.md section 3).
        """
        if chunk_rows is None or len(messages) <= require_count("chunk_rows", chunk_rows, least=1):
            return self._write(
                lambda uow: uow.messages.append_batch(
                    session_id,
                    messages,
                    turn_lease_holder=turn_lease_holder,
                    turn_lease_ttl_seconds=turn_lease_ttl_seconds,
                )
            )
        encoded = self._read(lambda uow: uow.messages.encode(session_id, messages))
        lease = (turn_lease_holder, turn_lease_ttl_seconds)
        inserted = 0
        for start in range(0, len(messages), chunk_rows):
            part = slice(start, start + chunk_rows)
            inserted += self._append_part(session_id, messages[part], encoded[part], *lease)
        return inserted

    def get_messages(
        self,
        session_id: str,
        include_inactive: bool = False,
        after_id: int | None = None,
        limit: int | None = None,
    ) -> list[MessageRecord]:
        """Whole rows in insertion order; the active ones unless ``include_inactive``."""
        return self._read(lambda uow: uow.messages.get(session_id, include_inactive, after_id, limit))

    def get_messages_as_conversation(
        self, session_id: str, include_ancestors: bool = False, include_inactive: bool = False
    ) -> list[ConversationMessage]:
        """The messages as they are sent to a model; with those of the sessions it continues, if asked."""

        def read(uow: UnitOfWork) -> list[ConversationMessage]:
            chain = uow.sessions.ancestors(session_id) if include_ancestors else [session_id]
            return uow.messages.conversation(chain, include_inactive=include_inactive)

        return self._read(read)

    def message_count(self, session_id: str | None = None) -> int:
        """The number of active messages of the session, or of the whole store (field report H2)."""
        return self._read(lambda uow: uow.messages.count(session_id))

    def _append_part(
        self, session_id: str, messages: Sequence[Any], encoded: Sequence[Any], *lease: Any
    ) -> int:
        return self._write(lambda uow: uow.messages.append_encoded(session_id, messages, encoded, *lease))
