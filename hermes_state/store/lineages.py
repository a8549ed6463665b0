"""Verbs on chains of sessions: continuations and branches."""

from __future__ import annotations

from hermes_state.store.core import StoreCore


class LineageVerbs(StoreCore):
    """Finding one's way in a lineage, and extending it."""

    def get_compression_tip(self, session_id: str) -> str:
        """The live end of the compression chain that starts at the session; the id itself when there is none."""
        return self._read(lambda uow: uow.sessions.compression_tip(session_id))
