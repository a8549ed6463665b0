"""Messages of a session: appending, reading, rewriting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hermes_state.codec import EncodedMessage
from hermes_state.repositories.appending import BatchAppend
from hermes_state.repositories.message_displays import MessageDisplays
from hermes_state.repositories.message_edits import MessageEdits
from hermes_state.repositories.message_rewrites import MessageRewrites
from hermes_state.repositories.message_writes import landed_row
from hermes_state.repositories.turn_rewinds import TurnRewinds


class MessageRepository(MessageDisplays, MessageRewrites, MessageEdits, TurnRewinds):
    """The table ``messages``. Reads of an unknown session give ``[]`` or 0; writes raise ``SessionNotFoundError``."""

    def append_batch(
        self,
        session_id: str,
        messages: Sequence[Any],
        *,
        turn_lease_holder: str | None = None,
        turn_lease_ttl_seconds: float = 300.0,
    ) -> int:
        """Appends the messages, all or none; returns the number of rows inserted (CONTRACT.md section 3)."""
        if not messages:
            return 0
        encoded = self.encode(session_id, messages)
        return self.append_encoded(session_id, messages, encoded, turn_lease_holder, turn_lease_ttl_seconds)

    def append(self, session_id: str, role: str, content: Any = None, **keys: Any) -> int:
        """Appends one message and returns its row id, the existing one for a duplicate."""
        message = {"role": role, "content": content, **keys}
        with self._transaction.verb():
            batch = BatchAppend(self._transaction, session_id, self.encode(session_id, [message]))
            batch.run()
        return landed_row(batch.landed[0]).row_id

    def append_encoded(
        self,
        session_id: str,
        messages: Sequence[Any],
        encoded: Sequence[EncodedMessage],
        turn_lease_holder: str | None = None,
        turn_lease_ttl_seconds: float = 300.0,
    ) -> int:
        """Appends rows that ``encode`` made of ``messages``; the dicts are stamped once the unit has committed."""
        with self._transaction.verb():
            batch = BatchAppend(self._transaction, session_id, encoded)
            batch.run(turn_lease_holder, turn_lease_ttl_seconds)
        self.stamp_at_commit(messages, encoded, batch.landed)
        return batch.rows_inserted
