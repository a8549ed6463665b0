"""Verbs that rewrite a transcript."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hermes_state.store.core import StoreCore


class RewriteVerbs(StoreCore):
    """Replacing, compacting, taking back and deleting messages."""

    def replace_messages(self, session_id: str, messages: Sequence[Any], active_only: bool = False) -> int:
        """Deletes the session's rows (or only the active ones) and inserts ``messages``; returns their number."""
        return self._write(lambda uow: uow.messages.replace(session_id, messages, active_only))

    def archive_and_compact(self, session_id: str, compacted: Sequence[Any]) -> int:
        """Archives the active rows and inserts ``compacted`` as the live ones; returns the number of live rows."""
        return self._write(lambda uow: uow.messages.archive_and_compact(session_id, compacted))

    def clear_messages(self, session_id: str) -> int:
        """Deletes every row of the session and zeroes its counters; returns the number of rows deleted."""
        return self._write(lambda uow: uow.messages.clear(session_id))
