"""Verbs on reactions to messages."""

from __future__ import annotations

from hermes_state.records import MessageReaction
from hermes_state.store.core import StoreCore


class ReactionVerbs(StoreCore):
    """What somebody thinks of a message. Unknown sessions and rows, and what was rewound, have no reactions."""

    def set_message_reaction(
        self, session_id: str, row_id: int, emoji: str | None, actor: str = "user", *, seen: bool = False
    ) -> bool:
        """Sets or changes the actor's reaction to a message, one for each actor; ``None`` or ``""`` removes it.

        It belongs to the message: compactions and continuations carry it on. The same again changes nothing; another one is
        unseen anew. ``seen=True``: the agent's own, which ``take_unseen_reactions`` leaves out. Returns whether the session
        shows such a row. Raises ``InvalidArgumentError`` for an emoji above 64 characters and an actor that cannot be an id.
        """
        return self._write(lambda uow: uow.reactions.set(session_id, row_id, emoji, actor, seen=seen))

    def get_message_reactions(self, session_id: str, row_id: int | None = None) -> list[MessageReaction]:
        """The reactions to a message, the oldest first; without ``row_id`` those to all messages of the conversation."""
        return self._read(lambda uow: uow.reactions.get(session_id, row_id))

    def take_unseen_reactions(self, session_id: str) -> list[MessageReaction]:
        """The reactions of the conversation that were not taken yet, the oldest first.

        Each is handed out exactly once, to whichever process asks first.
        """
        return self._write(lambda uow: uow.reactions.take_unseen(session_id))
