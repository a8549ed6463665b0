"""Verbs on chains of sessions: continuations and branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hermes_state.repositories.base import require_id
from hermes_state.store.core import StoreCore


class LineageVerbs(StoreCore):
    """Finding one's way in a lineage, and extending it. Each look-up is at most three statements."""

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

        One transaction: an interrupted copy leaves nothing and is made anew. See ``LineageRepository.create_branch``.
        """
        return self._write(
            lambda uow: uow.lineages.create_branch(
                parent_session_id,
                branch_session_id,
                source=source,
                up_to_message_id=up_to_message_id,
                chunk_rows=chunk_rows,
                **session_keys,
            )
        )

    def publish_continuation(
        self,
        parent_session_id: str,
        child_session_id: str,
        handoff_messages: Sequence[Any],
        *,
        source: str | None = None,
        watermark: int | None = None,
        lock_holder: str | None = None,
        end_reason: str = "compression",
        **session_keys: Any,
    ) -> str:
        """Ends the parent and begins its continuation with the hand-off, in one transaction; returns the child's id.

        Of several at once exactly one succeeds; see ``LineageRepository.publish_continuation`` for the rest.
        """
        require_id("child_session_id", child_session_id)
        # Before the transaction: a refused message must not wait for the write lock.
        encoded = self._encode(child_session_id, handoff_messages)
        return self._write(
            lambda uow: uow.lineages.publish_continuation(
                parent_session_id,
                child_session_id,
                handoff_messages,
                source=source,
                watermark=watermark,
                lock_holder=lock_holder,
                end_reason=end_reason,
                encoded=encoded,
                **session_keys,
            )
        )

    def get_compression_tip(self, session_id: str) -> str:
        """The live end of the compression chain that starts at the session; the id itself when there is none."""
        return self._read(lambda uow: uow.sessions.compression_tip(session_id))

    def get_compression_lineage(self, session_id: str) -> list[str]:
        """The ids of the compression chain through the session, from its first to its live end; ``[]`` if unknown."""
        return self._read(lambda uow: uow.lineages.compression_lineage(session_id))

    def get_compression_chain(self, session_id: str) -> list[str]:
        """``get_compression_lineage`` under another name of the known store."""
        return self.get_compression_lineage(session_id)

    def get_lineage(self, session_id: str) -> list[str]:
        """``get_compression_lineage`` under its short name."""
        return self.get_compression_lineage(session_id)

    def get_conversation_root(self, session_id: str) -> str:
        """The first session of the conversation that the session continues; else the id itself."""
        return self._read(lambda uow: uow.lineages.conversation_root(session_id))

    def resolve_resume_session_id(self, session_id: str) -> str:
        """The session in which a resume of this one goes on; the id itself when it is unknown.

        From the live tip down the newest-started continuations to the last one that has rows.
        """
        return self._read(lambda uow: uow.lineages.resume_id(session_id))

    def set_session_archived(self, session_id: str, archived: bool) -> bool:
        """Hides or shows the whole compression lineage, no branch or delegate of it; whether the session exists."""
        return self._write(lambda uow: uow.lineages.set_flag(session_id, "archived", archived))

    def reopen_orphaned_compression_session(self, session_id: str) -> bool:
        """Opens a session that was closed by compression, that nothing continues and nobody holds; whether it did."""
        return self._write(lambda uow: uow.lineages.reopen_orphaned(session_id))

    def reopen_if_explicitly_closed(self, session_id: str) -> bool:
        """Opens a session that was ended for any reason but compression; whether it did.

        One UPDATE decides, so a compaction that ends the session at the same moment is never undone.
        """
        return self._write(lambda uow: uow.lineages.reopen_if_explicitly_closed(session_id))

    def finalize_orphaned_compression_sessions(self) -> int:
        """Ends continuations of compressed parents that nobody used for model calls in 7 days; returns their number."""
        return self._write(lambda uow: uow.lineages.finalize_orphaned())
