"""Verbs that read the messages of a session."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from hermes_state.records import (
    AnchoredView,
    ConversationMessage,
    MessageRecord,
    MessageWindow,
    RecentUserMessage,
)
from hermes_state.repositories.base import require_count
from hermes_state.store.core import StoreCore
from hermes_state.unit_of_work import UnitOfWork


class ViewVerbs(StoreCore):
    """Whole transcripts, pages and windows of them; always in insertion order. Unknown ids give nothing."""

    def get_messages(
        self,
        session_id: str,
        include_inactive: bool = False,
        after_id: int | None = None,
        limit: int | None = None,
        *,
        before_id: int | None = None,
        latest: bool = False,
        include_compacted: bool = False,
        offset: int = 0,
    ) -> list[MessageRecord]:
        """Whole rows, the active ones, oldest first; a page of them by keyset.

        ``after_id``: the first ``limit`` rows with higher ids. ``before_id``: the last ``limit`` rows with lower ids.
        ``latest``: the last ``limit`` rows. ``include_compacted`` adds what was summarised away: the history as it is
        displayed, in which a message that compactions carried on comes once. ``include_inactive`` adds also what was
        rewound. ``offset`` skips rows, from the end with ``latest``; it reads what it skips, a page by ids does not. Raises
        ``InvalidArgumentError`` for ``latest`` with ``after_id``, ``offset`` with an id, and for negative numbers.
        """
        return self._read(
            lambda uow: uow.messages.get(
                session_id,
                include_inactive,
                after_id,
                limit,
                before_id=before_id,
                latest=latest,
                include_compacted=include_compacted,
                offset=offset,
            )
        )

    def iter_messages(
        self, session_id: str, *, include_inactive: bool = False, batch_size: int = 500
    ) -> Iterator[MessageRecord]:
        """The rows of ``get_messages`` one after another, in memory that depends on ``batch_size`` only.

        Each page of ``batch_size`` rows is a short read of its own; no connection is held in between. So rows appended
        meanwhile are seen, and rows that were archived meanwhile are not. Raises ``InvalidArgumentError`` at the call.
        """
        require_count("batch_size", batch_size, least=1)
        return self._pages(session_id, include_inactive, batch_size)

    def get_messages_as_conversation(
        self,
        session_id: str,
        include_ancestors: bool = False,
        include_inactive: bool = False,
        include_row_ids: bool = False,
        repair_alternation: bool = False,
        *,
        stamped: bool = False,
        include_compacted: bool = False,
    ) -> list[ConversationMessage]:
        """The messages as they are sent to a model; with those of the sessions it continues, if asked.

        A message that a continuation carries on comes once, where the conversation goes on. ``include_compacted`` adds what was
        summarised away, ``include_inactive`` every row that was rewound or replaced too.
        ``include_row_ids`` adds ``_row_id``. ``repair_alternation`` merges user messages in a row, without losing text, and
        leaves tool results out whose call is missing. ``stamped`` stamps the dicts as a flush would
        (``PERSISTED_MARKER``, ``_row_id``, ``_message_uid``): a resumed agent that flushes them writes nothing twice.
        """

        def read(uow: UnitOfWork) -> list[ConversationMessage]:
            return uow.messages.conversation(
                uow.sessions.ancestors(session_id) if include_ancestors else [session_id],
                include_inactive=include_inactive,
                include_row_ids=include_row_ids,
                repair_alternation=repair_alternation,
                stamped=stamped,
                include_compacted=include_compacted,
            )

        return self._read(read)

    def get_messages_around(self, session_id: str, anchor_id: int, window: int = 5) -> MessageWindow:
        """The row ``anchor_id`` with up to ``window`` rows on each side, in two statements.

        Active rows and those summarised away count, rewound ones do not. ``messages_before`` or ``messages_after`` below
        ``window`` means an end of the session. Empty when the anchor is no such row of this session.
        """
        return self._read(lambda uow: uow.messages.around(session_id, anchor_id, window))

    def get_anchored_view(
        self,
        session_id: str,
        anchor_id: int,
        window: int = 5,
        bookend: int = 3,
        keep_roles: Collection[str] | None = ("user", "assistant"),
    ) -> AnchoredView:
        """``get_messages_around`` of which only ``keep_roles`` and the anchor stay, with the session's two ends.

        ``bookend_start`` and ``bookend_end``: up to ``bookend`` rows with text outside the window. ``keep_roles=None``: all roles.
        """
        return self._read(
            lambda uow: uow.messages.anchored_view(session_id, anchor_id, window, bookend, keep_roles)
        )

    def list_recent_user_messages(
        self, session_id: str, limit: int = 20, include_inactive: bool = False
    ) -> list[RecentUserMessage]:
        """``id``, ``timestamp`` and a one-line ``preview`` (80 characters) of the latest user messages, newest first."""
        return self._read(lambda uow: uow.messages.recent_user_messages(session_id, limit, include_inactive))

    def latest_message_row_id(self, session_id: str) -> int | None:
        """The highest row id of the session, whatever the row's state; ``None`` without rows."""
        return self._read(lambda uow: uow.messages.latest_row_id(session_id))

    def get_active_message_watermark(self, session_id: str) -> int:
        """The highest id of an active row, 0 without one; what is above it later has arrived since."""
        return self._read(lambda uow: uow.messages.active_watermark(session_id))

    def has_platform_message_id(self, session_id: str, platform_message_id: Any) -> bool:
        """Whether the session has a row with this platform id, whatever its state."""
        return self._read(lambda uow: uow.messages.has_platform_id(session_id, platform_message_id))

    def has_archived_messages(self, session_id: str) -> bool:
        """Whether rows of the session were summarised away; rewound rows do not count."""
        return self._read(lambda uow: uow.messages.has_archived(session_id))

    def assert_resume_safe(
        self, session_id: str, limit: int = 20_000, *, include_ancestors: bool = False
    ) -> None:
        """Raises ``SessionTooLargeError`` when loading the conversation would load more than ``limit`` rows; 0: never."""

        def check(uow: UnitOfWork) -> None:
            chain = uow.sessions.ancestors(session_id) if include_ancestors else [session_id]
            uow.messages.require_resume_safe(chain, limit)

        self._read(check)

    def message_count(self, session_id: str | None = None) -> int:
        """The number of active messages of the session, or of the whole store (field report H2)."""
        return self._read(lambda uow: uow.messages.count(session_id))

    def _pages(self, session_id: str, include_inactive: bool, batch_size: int) -> Iterator[MessageRecord]:
        after_id = None
        while page := self.get_messages(session_id, include_inactive, after_id, batch_size):
            after_id, is_last = page[-1]["id"], len(page) < batch_size
            yield from page
            if is_last:
                return
