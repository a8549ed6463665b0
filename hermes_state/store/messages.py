"""Verbs that add messages to a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hermes_state.codec import require_list
from hermes_state.repositories.base import require_count
from hermes_state.store.core import StoreCore


class MessageVerbs(StoreCore):
    """Appending."""

    def append_message(
        self,
        session_id: str,
        role: str,
        content: Any = None,
        *,
        turn_lease_holder: str | None = None,
        turn_lease_ttl_seconds: float = 300.0,
        **keys: Any,
    ) -> int:
        """Appends one message, a batch of one; returns its row id (CONTRACT.md section 3).

        ``keys`` are those of the message; a turn lease is checked as in ``append_messages_batch``.
        """
        message: dict[str, Any] = {"role": role, "content": content, **keys}
        self.append_messages_batch(
            session_id,
            [message],
            turn_lease_holder=turn_lease_holder,
            turn_lease_ttl_seconds=turn_lease_ttl_seconds,
        )
        return int(message["_row_id"])

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
        require_list(messages)
        at_once = len(messages) if chunk_rows is None else require_count("chunk_rows", chunk_rows, least=1)
        if not messages:
            return 0
        # Before the transaction: a refused message must not wait for the write lock, nor hold it while it is checked.
        encoded = self._encode(session_id, messages)
        lease = (turn_lease_holder, turn_lease_ttl_seconds)
        parts = [slice(start, start + at_once) for start in range(0, len(messages), at_once)]
        return sum(self._append_part(session_id, messages[part], encoded[part], *lease) for part in parts)

    def _append_part(
        self, session_id: str, messages: Sequence[Any], encoded: Sequence[Any], *lease: Any
    ) -> int:
        return self._write(lambda uow: uow.messages.append_encoded(session_id, messages, encoded, *lease))
