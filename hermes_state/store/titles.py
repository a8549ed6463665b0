"""Verbs on titles."""

from __future__ import annotations

from typing import Any

from hermes_state import titles
from hermes_state.records import SessionRecord
from hermes_state.store.core import StoreCore


class TitleVerbs(StoreCore):
    """Naming sessions, and finding them by name. A title is unique in the store; the database decides who has it."""

    @staticmethod
    def sanitize_title(title: Any) -> str | None:
        """``title`` as it would be stored; ``None`` for nothing. See ``hermes_state.titles.sanitize_title``."""
        return titles.sanitize_title(title)

    def set_session_title(self, session_id: str, title: str | None) -> bool:
        """Names the session for its user; ``None`` or empty text takes the name away. ``False`` for an unknown session.

        A title that a compression ancestor has moves here. Raises ``TitleConflictError`` (``already in use``, with the
        owner) for that of another session, and ``InvalidArgumentError`` (``too long``) above 100 characters.
        """
        return self._write(lambda uow: uow.titles.set(session_id, title))

    def set_auto_title(self, session_id: str, title: str | None, source: str = "llm") -> str | None:
        """Names the session by rule (``derived``) or by a model (``llm``), unless it has a name of the same or a higher rank.

        Ranks: derived < llm < user. A title that is taken gets the next free number. Returns the name, or ``None`` when
        nothing was changed.
        """
        return self._write(lambda uow: uow.titles.set_auto(session_id, title, source))

    def get_session_title(self, session_id: str) -> str | None:
        """The session's title, or ``None``."""
        return self._read(lambda uow: uow.titles.get(session_id))[0]

    def get_session_title_source(self, session_id: str) -> str | None:
        """Who named the session: ``user``, ``llm``, ``derived``, ``branch``, ``branch_fallback``, or ``None``."""
        return self._read(lambda uow: uow.titles.get(session_id))[1]

    def set_session_title_source(self, session_id: str, source: str | None) -> None:
        """Says who named the session. Raises ``InvalidArgumentError`` for an unknown source."""
        self._write(lambda uow: uow.titles.set_source(session_id, source))

    def get_session_by_title(self, title: str) -> SessionRecord | None:
        """The session of exactly this title, or ``None``."""

        def find(uow: Any) -> SessionRecord | None:
            owner = uow.titles.owner_of(title)
            return None if owner is None else uow.sessions.get(owner)

        return self._read(find)

    def resolve_session_by_title(self, title: str) -> str | None:
        """The id of the newest session named ``title #N``; without any, of the one of exactly this title."""
        return self._read(lambda uow: uow.titles.resolve(title))

    def get_next_title_in_lineage(self, base: str) -> str:
        """``base`` without a number if nobody has it, else with the next one: ``notes #3`` after ``notes #2``."""
        return self._read(lambda uow: uow.titles.next_in_lineage(base))
