"""Which sessions a list shows: the one builder of predicates for pages and for counts (field reports H2, P4, L8)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypedDict

import sqlalchemy as sa

from hermes_state.dialects import DialectOperations
from hermes_state.errors import InvalidArgumentError
from hermes_state.repositories.base import require_count, starts_with
from hermes_state.repositories.session_placing import SESSIONS
from hermes_state.text import clean_text

ACTIVITY = sa.func.coalesce(SESSIONS.c.last_active_at, SESSIONS.c.started_at)
# Root, branch, and continuations without parent; a row without kind is one of another program.
LISTED = sa.or_(
    SESSIONS.c.kind.in_(("root", "branch")),
    sa.and_(
        SESSIONS.c.parent_session_id.is_(None),
        sa.func.coalesce(SESSIONS.c.kind, "root").in_(("root", "continuation")),
    ),
)


class SessionFilters(TypedDict, total=False):
    """The filters of lists and counts; what is left out, or ``None``, filters nothing. Texts are literal."""

    source: str | None
    sources: Iterable[str] | None
    """An empty list shows nothing."""
    exclude_sources: Iterable[str] | None
    session_key: str | None
    cwd_prefix: str | None
    """This folder and those in it, with ``/`` or a backslash between."""
    min_message_count: int
    include_children: bool
    """Continuations, delegates and tool runs too."""
    include_archived: bool
    archived_only: bool
    include_hidden: bool
    pinned: bool | None
    id_query: str | None
    """Part of an id of any session of the conversation; case does not count."""
    search_query: str | None
    """Words, each of which the title or the id must hold; case and punctuation do not count."""


def conditions(operations: DialectOperations, filters: SessionFilters) -> list[sa.ColumnElement[bool]]:
    """The predicate on a session's own row. ``TypeError`` for an unknown filter, ``InvalidArgumentError`` for a bad value."""
    if unknown := filters.keys() - SessionFilters.__annotations__.keys():
        raise TypeError(f"unexpected filters: {', '.join(sorted(unknown))}")
    found: list[sa.ColumnElement[bool]] = []
    if not filters.get("include_children"):
        found.append(LISTED)
    if filters.get("archived_only"):
        found.append(SESSIONS.c.archived)
    elif not filters.get("include_archived"):
        found.append(sa.not_(SESSIONS.c.archived))
    if not filters.get("include_hidden"):
        found.append(sa.not_(SESSIONS.c.hidden))
    if filters.get("pinned") is not None:
        found.append(SESSIONS.c.pinned if filters["pinned"] else sa.not_(SESSIONS.c.pinned))
    if least := require_count("min_message_count", filters.get("min_message_count", 0)):
        found.append(SESSIONS.c.message_count >= least)
    return [*found, *_of_sources(operations, filters), *_of_texts(filters)]


def _of_sources(operations: DialectOperations, filters: SessionFilters) -> list[sa.ColumnElement[bool]]:
    found: list[sa.ColumnElement[bool]] = []
    if filters.get("source") is not None:
        found.append(SESSIONS.c.source == _text("source", filters["source"]))
    for name, is_wanted in (("sources", True), ("exclude_sources", False)):
        given: Any = filters.get(name)
        if given is None:
            continue
        if isinstance(given, str):
            raise InvalidArgumentError(name, "it must be a list of sources")
        names = [_text(name, value) for value in given]
        is_one = operations.is_any_of(SESSIONS.c.source, name, names)
        found.append(is_one if is_wanted else sa.not_(is_one))
    return found


def _of_texts(filters: SessionFilters) -> list[sa.ColumnElement[bool]]:
    found: list[sa.ColumnElement[bool]] = []
    if filters.get("session_key") is not None:
        found.append(SESSIONS.c.session_key == _text("session_key", filters["session_key"]))
    if filters.get("cwd_prefix"):
        folder = _text("cwd_prefix", filters["cwd_prefix"])
        stem = folder.rstrip("/\\")
        inside = [starts_with(SESSIONS.c.cwd, stem + separator) for separator in "/\\"]
        found.append(sa.or_(SESSIONS.c.cwd == folder, SESSIONS.c.cwd == stem, *inside))
    if filters.get("id_query"):
        found.append(_has_id_part(_text("id_query", filters["id_query"])))
    if filters.get("search_query"):
        words = "".join(
            c if c.isalnum() else " " for c in _text("search_query", filters["search_query"])
        ).split()
        named = sa.func.lower(sa.func.coalesce(SESSIONS.c.title, "") + " " + SESSIONS.c.id)
        found += [contains(named, word.lower()) for word in words] or [sa.false()]
    return found


def contains(column: sa.ColumnElement[Any], part: str) -> sa.ColumnElement[bool]:
    """Whether the text holds ``part``, letter by letter: no character is a wildcard, on neither database."""
    return sa.func.length(sa.func.replace(column, part, "")) < sa.func.length(column)


def _has_id_part(part: str) -> sa.ColumnElement[bool]:
    member = SESSIONS.alias("member")
    of_chain = sa.exists().where(
        member.c.root_session_id == SESSIONS.c.id, contains(sa.func.lower(member.c.id), part.lower())
    )
    return sa.or_(contains(sa.func.lower(SESSIONS.c.id), part.lower()), of_chain)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidArgumentError(name, "it must be text")
    return clean_text(value)
