"""Verbs that find messages, and those that keep the index of the search."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from typing import Any, Literal

from hermes_state.errors import InvalidArgumentError, SchemaError, StoreError, StoreReadOnlyError
from hermes_state.records import SearchHit, SearchIndexState
from hermes_state.repositories.searching import SearchFilters, require_page
from hermes_state.search_query import parse_query
from hermes_state.store.core import StoreCore

_ROWS_A_STEP = 2_000


class SearchVerbs(StoreCore):
    """Searching what was said; what is found is the same whatever state the index is in."""

    def search_messages(
        self,
        query: str,
        *,
        source_filter: Iterable[str] | None = None,
        exclude_sources: Iterable[str] | None = None,
        role_filter: Iterable[str] | None = None,
        session_id: str | None = None,
        since: float | dt.datetime | None = None,
        until: float | dt.datetime | None = None,
        limit: int = 20,
        offset: int = 0,
        sort: Literal["newest", "oldest"] | None = None,
        include_inactive: bool = False,
        include_reasoning: bool = False,
        group_by_session: bool = False,
        strict: bool = False,
    ) -> list[SearchHit]:
        """The messages that hold the words of ``query``, best first, or the newest or oldest; ties go by id.

        Words are joined by AND, also by ``OR`` and ``NOT``; ``"a phrase"`` stands together, ``begin*`` is the beginning of a
        word; scripts without blanks are found letter by letter. Anything else is text. Active and compacted rows are found,
        rewound ones only with ``include_inactive``, hidden ones never; ``include_reasoning`` also reads what the model
        thought (slow: row by row). ``since`` and ``until`` are epoch seconds or datetimes, both inclusive. An empty list of
        sources or roles finds nothing. ``group_by_session``: the best hit of each session.

        Raises ``QuerySyntaxError`` with ``strict`` for a query that does not parse, else nothing is wrong with any text, and
        ``InvalidArgumentError`` for values of another kind.
        """
        parsed = parse_query(query, strict=strict)
        require_page(limit, offset, sort)
        for name, value in (("include_inactive", include_inactive), ("include_reasoning", include_reasoning),
                            ("group_by_session", group_by_session)):  # fmt: skip
            if not isinstance(value, bool):
                raise InvalidArgumentError(name, "it must be True or False")
        filters = SearchFilters(
            source_filter, exclude_sources, role_filter, session_id, since, until, include_inactive
        )
        options: dict[str, Any] = {
            "limit": limit,
            "offset": offset,
            "sort": sort,
            "by_session": group_by_session,
            "reasoning": include_reasoning,
        }
        return self._searched(parsed, filters, options)

    def search_index_state(self) -> SearchIndexState:
        """``state``: ``on``; ``off``; ``building`` while a rebuild runs or was stopped; ``degraded`` when it broke. ``trigram``."""
        found = self._read(lambda uow: uow.searching.state())
        return {"state": found["index"], "trigram": found["trigram"] == "on"}  # type: ignore[typeddict-item]

    def rebuild_search_index(self, *, progress: Callable[[int], None] | None = None) -> None:
        """Builds the index anew in short transactions; goes on where a killed rebuild was.

        Others may go on reading and writing; searches read the rows meanwhile. ``progress`` is told the rows that are left.
        """
        self._rebuild(None, progress)

    def set_trigram_index(self, on: bool, *, progress: Callable[[int], None] | None = None) -> None:
        """Switches the index of three letters, for scripts without blanks, by a rebuild; PostgreSQL needs none."""
        if not isinstance(on, bool):
            raise InvalidArgumentError("on", "it must be True or False")
        if self.search_index_state() != {"state": "on", "trigram": on}:
            self._rebuild(on, progress)

    def _rebuild(self, trigram: bool | None, progress: Callable[[int], None] | None) -> None:
        if self.read_only:
            raise StoreReadOnlyError("the store was opened read-only")
        self._write(lambda uow: uow.search_index.begin(trigram=trigram))
        while left := self._write(lambda uow: uow.search_index.step(_ROWS_A_STEP)):
            if progress is not None:
                progress(left)

    def _searched(self, query: Any, filters: SearchFilters, options: dict[str, Any]) -> list[SearchHit]:
        def by_rows(uow: Any) -> list[SearchHit]:
            return list(
                uow.searching.hits(query, filters, {**uow.searching.state(), "index": "degraded"}, **options)
            )

        def by_state(uow: Any) -> list[SearchHit]:
            uow.searching.conditions(filters)
            if not (query and options["limit"]):
                return []
            return list(uow.searching.hits(query, filters, uow.searching.state(), **options))

        try:
            return self._read(by_state)
        except (StoreError, SchemaError) as error:
            if not (self._operations.search.may_be_broken(error.__cause__) and self._is_of_index(error)):
                raise
            return self._read(by_rows)

    def _is_of_index(self, error: StoreError | SchemaError) -> bool:
        """Whether a search failed at its index, which is marked where the store may be written."""
        cause = error.__cause__
        if self.read_only:
            return self._read(lambda uow: uow.search_index.is_broken(cause))
        return self._detach_broken_index(cause)
