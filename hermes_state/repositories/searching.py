"""Finding messages by what was said in them (issue 5). Reads only; a page with its contexts is three statements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from hermes_state.codec import epoch_seconds
from hermes_state.errors import InvalidArgumentError
from hermes_state.json_values import UnfitValueError
from hermes_state.records import ContextMessage, SearchHit
from hermes_state.repositories import rows
from hermes_state.repositories.base import Repository, require_count
from hermes_state.repositories.session_placing import SESSIONS
from hermes_state.search_query import SearchQuery
from hermes_state.search_snippets import snippet
from hermes_state.text import clean_text, is_usable_id

_MESSAGES = rows.MESSAGES
_CONTEXT_CHARACTERS = 200
_READ_FOR_SNIPPET = 1_000_000
_THOUGHTS = ("reasoning", "reasoning_content")
_SHOWN = sa.or_(_MESSAGES.c.display_kind.is_(None), _MESSAGES.c.display_kind != "hidden")


@dataclass(frozen=True)
class SearchFilters:
    """What a hit must be besides a match; checked by ``conditions``."""

    source_filter: Any = None
    exclude_sources: Any = None
    role_filter: Any = None
    session_id: Any = None
    since: Any = None
    until: Any = None
    include_inactive: bool = False


class SearchRepository(Repository):
    """Searches by the index where it is whole, else by the rows themselves; what is visible is the same."""

    def state(self) -> dict[str, str]:
        """The state of the index as the database keeps it; see ``SearchOperations.state``."""
        with self._transaction.verb() as conn:
            return self._operations.search.state(conn)

    def hits(
        self,
        query: SearchQuery,
        filters: SearchFilters,
        state: Mapping[str, str],
        *,
        limit: int,
        offset: int,
        sort: str | None,
        by_session: bool,
        reasoning: bool,
    ) -> list[SearchHit]:
        """A page of hits, the best or as ``sort`` says first, ties by id. Two statements."""
        page = self._page(query, filters, state, sort=sort, by_session=by_session, reasoning=reasoning)
        page = page.limit(limit).offset(offset)
        with self._transaction.verb() as conn:
            found = conn.execute(self._whole(page, state, sort, reasoning=reasoning)).mappings().all()
            contexts = self._contexts(
                conn, [row["id"] for row in found], include_inactive=filters.include_inactive
            )
        return [_hit(row, query, contexts.get(row["id"], [])) for row in found]

    def conditions(self, filters: SearchFilters) -> list[sa.ColumnElement[bool]]:
        """The predicates on the message and its session; raises ``InvalidArgumentError`` for a value of another kind."""
        found = [_SHOWN] if filters.include_inactive else [_SHOWN, rows.VISIBLE]
        if (sources := _texts("source_filter", filters.source_filter)) is not None:
            found.append(self._operations.is_any_of(SESSIONS.c.source, "sources", sources))
        if excluded := _texts("exclude_sources", filters.exclude_sources):
            found.append(sa.not_(self._operations.is_any_of(SESSIONS.c.source, "excluded", excluded)))
        if (roles := _texts("role_filter", filters.role_filter)) is not None:
            found.append(self._operations.is_any_of(_MESSAGES.c.role, "roles", roles))
        if filters.session_id is not None:
            if not isinstance(filters.session_id, str):
                raise InvalidArgumentError("session_id", "it must be text")
            is_known = is_usable_id(filters.session_id)
            found.append(_MESSAGES.c.session_id == filters.session_id if is_known else sa.false())
        if filters.since is not None:
            found.append(_MESSAGES.c.timestamp >= _moment("since", filters.since))
        if filters.until is not None:
            found.append(_MESSAGES.c.timestamp <= _moment("until", filters.until))
        return found

    def _page(
        self,
        query: SearchQuery,
        filters: SearchFilters,
        state: Mapping[str, str],
        *,
        sort: str | None,
        by_session: bool,
        reasoning: bool,
    ) -> sa.Select[Any]:
        """Ids, ranks and times in order; the texts are read for the rows of the page only."""
        # One session has few rows: the database may begin with them.
        best_first = sort is None and not by_session and filters.session_id is None
        route = self._operations.search.route(query, state, reasoning=reasoning, best_first=best_first)
        source = route.source.join(SESSIONS, SESSIONS.c.id == _MESSAGES.c.session_id)
        rank = -_MESSAGES.c.id if route.rank is None else route.rank  # without a rank the newest are the best
        stmt = sa.select(_MESSAGES.c.id.label("id"), rank.label("rank"), _MESSAGES.c.timestamp.label("at"))
        stmt = stmt.select_from(source).where(*route.conditions, *self.conditions(filters))
        if by_session:
            each = stmt.add_columns(_MESSAGES.c.session_id.label("of_session")).subquery("each")
            place = sa.func.row_number().over(
                partition_by=each.c.of_session, order_by=_order(sort, each.c.rank, each.c.at, each.c.id)
            )
            placed = sa.select(each.c.id, each.c.rank, each.c.at, place.label("place")).subquery("placed")
            best = sa.select(placed.c.id, placed.c.rank, placed.c.at).where(placed.c.place == 1)
            return best.order_by(*_order(sort, placed.c.rank, placed.c.at, placed.c.id))
        if sort is None and route.hands_out_in_order:
            return stmt.order_by(rank)
        return stmt.order_by(*_order(sort, rank, _MESSAGES.c.timestamp, _MESSAGES.c.id))

    def _whole(
        self, page: sa.Select[Any], state: Mapping[str, str], sort: str | None, *, reasoning: bool
    ) -> sa.Select[Any]:
        of_page = page.subquery("page")
        texts = self._operations.search.texts(state).alias("texts")
        thoughts = [_MESSAGES.c[name] for name in _THOUGHTS] if reasoning else []
        read = [
            sa.func.substr(column, 1, _READ_FOR_SNIPPET)
            for column in (texts.c.content, texts.c.tool_name, texts.c.calls, *thoughts)
        ]
        stmt = sa.select(
            _MESSAGES.c.id,
            _MESSAGES.c.session_id,
            _MESSAGES.c.role,
            _MESSAGES.c.timestamp,
            _MESSAGES.c.tool_name,
            SESSIONS.c.source,
            SESSIONS.c.model,
            SESSIONS.c.started_at.label("session_started"),
            *[column.label(f"text_{place}") for place, column in enumerate(read)],
        )
        source = (
            of_page.join(_MESSAGES, _MESSAGES.c.id == of_page.c.id)
            .join(texts, texts.c.id == of_page.c.id)
            .join(SESSIONS, SESSIONS.c.id == _MESSAGES.c.session_id)
        )
        return stmt.select_from(source).order_by(*_order(sort, of_page.c.rank, of_page.c.at, of_page.c.id))

    def _contexts(
        self, conn: sa.Connection, ids: Sequence[int], *, include_inactive: bool
    ) -> dict[int, list[ContextMessage]]:
        """Each hit between its neighbours by id, visible ones only (weak point W9)."""
        if not ids:
            return {}
        hit = _MESSAGES.alias("hit")

        def neighbour(*, before: bool) -> sa.ScalarSelect[Any]:
            near = _MESSAGES.alias("near")
            visible = sa.true() if include_inactive else sa.or_(near.c.active, near.c.compacted)
            shown = sa.or_(near.c.display_kind.is_(None), near.c.display_kind != "hidden")
            beside = near.c.id < hit.c.id if before else near.c.id > hit.c.id
            order = near.c.id.desc() if before else near.c.id
            stmt = sa.select(near.c.id).where(near.c.session_id == hit.c.session_id, beside, visible, shown)
            return stmt.order_by(order).limit(1).correlate(hit).scalar_subquery()

        is_hit = self._operations.is_any_of(hit.c.id, "hits", ids)
        around = (
            sa.select(
                hit.c.id, neighbour(before=True).label("previous"), neighbour(before=False).label("next")
            )
            .where(is_hit)
            .subquery("around")
        )
        is_near = _MESSAGES.c.id.in_((around.c.previous, around.c.id, around.c.next))
        content = sa.func.substr(_MESSAGES.c.content, 1, _CONTEXT_CHARACTERS)
        stmt = sa.select(around.c.id, _MESSAGES.c.role, content).join(_MESSAGES, is_near)
        found: dict[int, list[ContextMessage]] = {}
        for row_id, role, text in conn.execute(stmt.order_by(around.c.id, _MESSAGES.c.id)):
            found.setdefault(row_id, []).append({"role": role, "content": _as_text(text)})
        return found


def _order(sort: str | None, rank: Any, at: Any, row_id: Any) -> list[Any]:
    if sort == "newest":
        return [at.desc(), row_id.desc()]
    if sort == "oldest":
        return [at, row_id]
    return [rank, row_id]


def _hit(row: Mapping[Any, Any], query: SearchQuery, context: list[ContextMessage]) -> SearchHit:
    texts = [_as_text(value) for name, value in row.items() if str(name).startswith("text_")]
    return SearchHit(
        id=row["id"],
        session_id=row["session_id"],
        role=row["role"],
        snippet=snippet(texts, query),
        timestamp=row["timestamp"],
        tool_name=row["tool_name"],
        source=row["source"],
        model=row["model"],
        session_started=row["session_started"],
        context=context,
    )


def _as_text(value: Any) -> str:
    if isinstance(value, bytes):  # of another program, in SQLite
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def _texts(argument: str, given: Any) -> list[str] | None:
    if given is None:
        return None
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise InvalidArgumentError(argument, "it must be a list of texts")
    found = list(given)
    if not all(isinstance(each, str) for each in found):
        raise InvalidArgumentError(argument, "it must be a list of texts")
    return [clean_text(each) for each in found]


def _moment(argument: str, value: Any) -> float:
    try:
        return epoch_seconds(value)
    except UnfitValueError as error:
        raise InvalidArgumentError(argument, str(error)) from error


def require_page(limit: Any, offset: Any, sort: Any) -> None:
    """Raises ``InvalidArgumentError`` unless they are counts and an order of a search."""
    require_count("limit", limit)
    require_count("offset", offset)
    if sort not in (None, "newest", "oldest"):
        raise InvalidArgumentError("sort", "it must be None (best first), 'newest' or 'oldest'")
