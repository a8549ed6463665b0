"""Verbs on many sessions at once."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable
from typing import Any

from hermes_state.records import ListedSession, SessionCwd, SessionPage
from hermes_state.store.core import StoreCore


class ListVerbs(StoreCore):
    """Lists, counts by the same filters, and what the owner notes on sessions.

    The filters are the keywords of ``SessionFilters``: ``source``, ``sources``, ``exclude_sources``, ``session_key``,
    ``cwd_prefix``, ``min_message_count``, ``include_children``, ``include_archived``, ``archived_only``, ``include_hidden``,
    ``hidden``, ``pinned``, ``id_query``, ``search_query``. Texts are literal; an empty list of sources shows nothing. Without filters a
    list shows roots and branches that are neither archived nor hidden. Raises ``InvalidArgumentError`` for bad values.
    """

    def list_sessions_rich(
        self,
        source: str | None = None,
        exclude_sources: Iterable[str] | None = None,
        cwd_prefix: str | None = None,
        limit: int = 20,
        offset: int = 0,
        include_children: bool = False,
        min_message_count: int = 0,
        project_compression_tips: bool = True,
        order_by_last_active: bool = False,
        include_archived: bool = False,
        archived_only: bool = False,
        id_query: str | None = None,
        **filters: Any,
    ) -> list[ListedSession]:
        """A page of sessions with preview and last activity, in three statements, newest start first.

        ``order_by_last_active``: a conversation counts at its most recently active session. With
        ``project_compression_tips`` a session that was compressed shows what the live end of its chain says, under that id,
        with ``_lineage_root_id``; its own ``started_at`` stays. Ties are ordered by id descending, on both databases.
        """
        page = self.list_sessions_page(
            limit=limit,
            offset=offset,
            order_by_last_active=order_by_last_active,
            project_compression_tips=project_compression_tips,
            source=source,
            exclude_sources=exclude_sources,
            cwd_prefix=cwd_prefix,
            include_children=include_children,
            min_message_count=min_message_count,
            include_archived=include_archived,
            archived_only=archived_only,
            id_query=id_query,
            **filters,
        )
        return page["sessions"]

    def list_sessions_page(
        self,
        *,
        limit: int = 20,
        offset: int = 0,
        cursor: str | None = None,
        order_by_last_active: bool = False,
        project_compression_tips: bool = True,
        **filters: Any,
    ) -> SessionPage:
        """``list_sessions_rich`` with a cursor: hand ``next_cursor`` back for the page behind, with the same order and filters.

        Sessions that change meanwhile do not shift the pages, as they do with ``offset``.
        """
        return self._read(
            lambda uow: uow.lists.page(
                limit,
                offset,
                cursor=cursor,
                order_by_last_active=order_by_last_active,
                project_compression_tips=project_compression_tips,
                **filters,
            )
        )

    def session_count(self, exclude_children: bool = True, **filters: Any) -> int:
        """How many sessions a list with these filters shows in all."""
        wanted = {"include_children": not exclude_children, **filters}
        return self._read(lambda uow: uow.lists.count(**wanted))

    def session_count_ge(self, number: int, **filters: Any) -> bool:
        """Whether a list with these filters shows at least ``number`` sessions; counts no further."""
        return self._read(lambda uow: uow.lists.has_at_least(number, **filters))

    def session_count_by_source(self, **filters: Any) -> dict[str, int]:
        """How many sessions of each source a list with these filters shows."""
        return self._read(lambda uow: uow.lists.count_by_source(**filters))

    def search_sessions(
        self, source: str | None = None, limit: int = 20, offset: int = 0
    ) -> list[ListedSession]:
        """All sessions, children and archived ones too, most recently active first."""
        page = self.list_sessions_page(
            limit=limit,
            offset=offset,
            order_by_last_active=True,
            source=source,
            include_children=True,
            include_archived=True,
            include_hidden=True,
        )
        return page["sessions"]

    def search_sessions_by_id(
        self, query: str, limit: int = 20, include_archived: bool = True
    ) -> list[ListedSession]:
        """Sessions whose id is ``query``, begins with it, or holds it, in that order; case does not count."""
        return self._read(lambda uow: uow.lists.by_id(query, limit, include_archived=include_archived))

    def distinct_session_cwds(self, include_archived: bool = False) -> list[SessionCwd]:
        """Every working folder with its number of sessions and last activity, the most recently used first."""
        return self._read(lambda uow: uow.flags.folders(include_archived=include_archived))

    def session_lifecycle_statuses(self, session_ids: Collection[str]) -> dict[str, str]:
        """``complete``, ``interrupted``, ``error`` or ``empty`` for each known session, by its last live message."""
        return self._read(lambda uow: uow.flags.statuses(session_ids))

    def last_user_assistant_message_times(
        self, session_ids: Collection[str]
    ) -> dict[str, dict[str, float | None]]:
        """When the user and the assistant last spoke in each known session, in epoch seconds."""
        return self._read(lambda uow: uow.flags.last_message_times(session_ids))

    def set_session_pinned(self, session_id: str, pinned: bool) -> bool:
        """Pins the session with its whole compression lineage, or not; whether there is one. Retention spares pinned ones."""
        return self._write(lambda uow: uow.lineages.set_flag(session_id, "pinned", pinned))

    def set_session_hidden(self, session_id: str, hidden: bool) -> bool:
        """Leaves the session with its whole compression lineage out of lists, or not; whether there is one."""
        return self._write(lambda uow: uow.lineages.set_flag(session_id, "hidden", hidden))

    def set_session_last_read(self, session_id: str, at: float | dt.datetime | None = None) -> bool:
        """Notes up to when the session was read (now without ``at``), never an earlier time; whether there is one."""
        return self._write(lambda uow: uow.flags.set_read(session_id, at))

    def touch_session_activity(
        self,
        session_id: str,
        description: str | None = None,
        provenance: str | None = None,
        at: float | dt.datetime | None = None,
    ) -> bool:
        """Notes a sign of life during a turn, never an earlier time; whether there is such a session."""
        return self._write(lambda uow: uow.flags.touch(session_id, description, provenance, at))
