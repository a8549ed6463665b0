"""Verbs that ask for single facts: ids and roles of messages, how a session relates to its parent."""

from __future__ import annotations

from hermes_state.records import ConversationMessage, ResumeConversations
from hermes_state.store.core import StoreCore
from hermes_state.unit_of_work import UnitOfWork


class LookupVerbs(StoreCore):
    """Small questions, one statement each. Unknown ids give nothing."""

    def get_active_message_ids(self, session_id: str) -> list[int]:
        """The ids of the active rows in insertion order: what ``rewind_to_message`` takes as ``expected_active_ids``."""
        return self._read(lambda uow: uow.messages.active_ids(session_id))

    def get_message_role(self, session_id: str, row_id: int) -> str | None:
        """The role of a row, whatever its state; ``None`` when the session has no such row.

        Raises ``InvalidArgumentError`` for what is no whole number.
        """
        return self._read(lambda uow: uow.messages.role(session_id, row_id))

    def latest_conversation_role(self, session_id: str) -> str | None:
        """``"user"`` or ``"assistant"``: whose the newest active message of either is; ``None`` without one."""
        return self._read(lambda uow: uow.messages.latest_conversation_role(session_id))

    def get_resume_message_count(self, session_id: str, *, include_ancestors: bool = False) -> int:
        """The number of messages that a resume would load: what ``assert_resume_safe`` compares with its limit."""

        def count(uow: UnitOfWork) -> int:
            return uow.messages.count_for_resume(
                uow.sessions.ancestors(session_id) if include_ancestors else [session_id]
            )

        return self._read(count)

    def get_resume_conversations(
        self, session_id: str, *, repair_alternation: bool = False
    ) -> ResumeConversations:
        """What an agent resumes with: the messages for the model, and the history for the display, of one moment.

        The model is sent the active messages of the session. Displayed are those that were summarised away too, and those of
        the sessions it continues, each once, without ``display_kind="hidden"``. The dicts are stamped, so that a flush
        writes nothing twice; the marker says which session holds the row ``_row_id``.
        """
        return self._read(
            lambda uow: uow.messages.resume(
                uow.sessions.ancestors(session_id), repair_alternation=repair_alternation
            )
        )

    def get_ancestor_display_prefix(self, session_id: str) -> list[ConversationMessage]:
        """The part of the displayed history that the sessions hold which this one continues; ``[]`` when it continues none."""
        return self._read(lambda uow: uow.messages.display_prefix(uow.sessions.ancestors(session_id)))

    def find_live_compression_child(self, session_id: str) -> str | None:
        """The one open continuation of a session that compression has ended; ``None`` when there is none, or several."""
        return self._read(lambda uow: uow.lineages.live_compression_child(session_id))

    def is_explicit_fork_child(self, session_id: str) -> bool:
        """Whether the session was split off its parent on purpose: a branch, a delegate, or what follows a reset.

        Continuations and tool runs are none, nor is a session without parent.
        """
        return self._read(lambda uow: uow.lineages.is_explicit_fork(session_id))
