"""Rewriting a transcript: the counters equal the active rows after each verb, the strip runs in each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from hermes_state.repositories import rows
from hermes_state.repositories.clearing import MessageClearing
from hermes_state.repositories.compacting import MessageCompaction
from hermes_state.repositories.counters import SessionCounters
from hermes_state.repositories.rewinding import MessageRewinds

_MESSAGES = rows.MESSAGES


class MessageRewrites(MessageCompaction, MessageRewinds, MessageClearing):
    """Verbs that insert new rows in the place of old ones; they raise ``SessionNotFoundError``."""

    def replace(self, session_id: str, messages: Sequence[Any], active_only: bool = False) -> int:
        """Deletes the rows of the session, or only the active ones, and inserts ``messages``; returns their number."""
        condition = [_MESSAGES.c.active] if active_only else []
        drop = sa.delete(_MESSAGES).where(_MESSAGES.c.session_id == session_id, *condition)
        return self._rewrite(session_id, messages, drop)

    def _rewrite(self, session_id: str, messages: Sequence[Any], make_room: sa.Executable) -> int:
        encoded = self.encode(session_id, messages)
        with self._transaction.verb() as conn:
            counters = SessionCounters(conn, self._operations, session_id)
            counters.lock()
            conn.execute(make_room)
            landed = self.insert_new(session_id, encoded)
            counters.set(len(encoded), sum(m.tool_call_count for m in encoded))
            if any(m.is_carrier for m in encoded):
                self._operations.strip_shadowed_checkpoints(conn, session_id)
        self.stamp_known_at_commit(messages, encoded, landed)
        return len(encoded)
