"""Verbs that change one message where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes_state.store.core import StoreCore


class EditVerbs(StoreCore):
    """Setters for one message. A message that a compaction has carried on is changed in the row that carries it now."""

    def set_message_api_content(self, session_id: str, row_id: int, api_content: str | None) -> bool:
        """Keeps the text that was really sent for a message, where it differs from the content; ``None`` forgets it.

        Returns whether the session has such a row that was not rewound. Raises ``InvalidMessageError`` for what is no text.
        """
        self._encode(session_id, [{"role": "user", "api_content": api_content}])  # waits for no write lock
        return self._write(lambda uow: uow.messages.set_api_content(session_id, row_id, api_content))

    def set_latest_user_api_content(self, session_id: str, api_content: str | None) -> int | None:
        """``set_message_api_content`` for the newest active user message; its row id, ``None`` when there is none.

        Whoever knows the row id should name it: another process may have appended a newer question meanwhile.
        """
        self._encode(session_id, [{"role": "user", "api_content": api_content}])
        return self._write(lambda uow: uow.messages.set_latest_user_api_content(session_id, api_content))

    def set_user_message_content(self, session_id: str, row_id: int, content: Any) -> None:
        """Replaces the content of an active user message, and forgets what was sent for the old one.

        As an append that names the row, it heeds no lease. Raises ``SessionNotFoundError``,
        ``CompressionSessionClosedError``, ``InvalidMessageError`` for content that cannot be stored, and
        ``InvalidArgumentError`` for a row that is no active user message of this session.
        """
        self._encode(session_id, [{"role": "user", "content": content}])
        self._write(lambda uow: uow.messages.set_user_content(session_id, row_id, content))

    def set_latest_matching_message_display_kind(
        self,
        session_id: str,
        role: str,
        content: Any,
        display_kind: str | None,
        display_metadata: Mapping[str, Any] | None = None,
    ) -> int | None:
        """Says how the newest active message of this role and content is displayed; its row id, ``None`` without one.

        ``display_kind="hidden"`` keeps it out of displays and previews. ``display_metadata`` is merged into what is there.
        Raises ``InvalidMessageError`` for what cannot be stored, and ``InvalidArgumentError`` for metadata that is no dict.
        """
        return self._write(
            lambda uow: uow.messages.set_matching_display_kind(
                session_id, role, content, display_kind, display_metadata
            )
        )
