"""Which sessions a list shows: the one builder of predicates for pages and for counts (field reports H2, P4, L8)."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable
from typing import Any, TypedDict

import sqlalchemy as sa

from hermes_state.dialects import DialectOperations
from hermes_state.errors import InvalidArgumentError
from hermes_state.repositories.base import require_count, starts_with
from hermes_state.repositories.session_placing import SESSIONS
from hermes_state.text import clean_text

_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_JOINING = " _-.,:;/'\"()#&+"
# Each is a term of the statement, and SQLite parses no expression of over a thousand.
_MOST_WORDS = 50
_FLAGS = ("include_children", "include_archived", "archived_only", "include_hidden", "hidden", "pinned")
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
    """Live messages of at least one session of the conversation."""
    include_children: bool
    """Continuations, delegates and tool runs too."""
    include_archived: bool
    archived_only: bool
    include_hidden: bool
    hidden: bool | None
    """Only hidden ones, or only those that are not; ``None`` leaves it to ``include_hidden``."""
    pinned: bool | None
    id_query: str | None
    """Part of an id of any session of the conversation; the case of A to Z does not count."""
    search_query: str | None
    """Words, each of which title and id must hold, of any session of the conversation. Punctuation does not count, nor
    the case of A to Z."""


def conditions(operations: DialectOperations, filters: SessionFilters) -> list[sa.ColumnElement[bool]]:
    """The predicate on a session's own row. ``TypeError`` for an unknown filter, ``InvalidArgumentError`` for a bad value."""
    if unknown := filters.keys() - SessionFilters.__annotations__.keys():
        raise TypeError(f"unexpected filters: {', '.join(sorted(unknown))}")
    found = [*_of_flags(filters), *_of_sources(operations, filters), *_of_texts(filters)]
    of_any = _of_any_member(operations, filters)
    if of_any and filters.get("include_children"):
        return [*found, *of_any(SESSIONS)]
    return found + ([_holds_for_any_member(of_any)] if of_any else [])


def _of_flags(filters: SessionFilters) -> list[sa.ColumnElement[bool]]:
    given = {name: _flag(name, filters.get(name)) for name in _FLAGS}
    found: list[sa.ColumnElement[bool]] = [] if given["include_children"] else [LISTED]
    wanted = {
        "archived": True if given["archived_only"] else None if given["include_archived"] else False,
        "hidden": None if given["include_hidden"] and given["hidden"] is None else bool(given["hidden"]),
        "pinned": given["pinned"],
    }
    for name, value in wanted.items():
        if value is not None:
            found.append(SESSIONS.c[name] if value else sa.not_(SESSIONS.c[name]))
    return found


def _of_sources(operations: DialectOperations, filters: SessionFilters) -> list[sa.ColumnElement[bool]]:
    found: list[sa.ColumnElement[bool]] = []
    if filters.get("source") is not None:
        found.append(SESSIONS.c.source == _text("source", filters["source"]))
    for name, is_wanted in (("sources", True), ("exclude_sources", False)):
        given: Any = filters.get(name)
        if given is None:
            continue
        if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
            raise InvalidArgumentError(name, "it must be a list of sources")
        is_one = operations.is_any_of(SESSIONS.c.source, name, [_text(name, value) for value in given])
        found.append(is_one if is_wanted else sa.not_(is_one))
    return found


def _of_texts(filters: SessionFilters) -> list[sa.ColumnElement[bool]]:
    found: list[sa.ColumnElement[bool]] = []
    if filters.get("session_key") is not None:
        found.append(SESSIONS.c.session_key == _text("session_key", filters["session_key"]))
    if filters.get("cwd_prefix") is not None:
        folder = _text("cwd_prefix", filters["cwd_prefix"])
        stem = folder.rstrip("/\\")
        inside = [starts_with(SESSIONS.c.cwd, stem + separator) for separator in "/\\"]
        found += [sa.or_(SESSIONS.c.cwd == folder, SESSIONS.c.cwd == stem, *inside)] if folder else []
    return found


def _of_any_member(
    operations: DialectOperations, filters: SessionFilters
) -> Callable[[sa.FromClause], list[sa.ColumnElement[bool]]] | None:
    """What one session of the conversation must fulfil: a list shows the live end, whose first session may know nothing of it."""
    least = require_count("min_message_count", filters.get("min_message_count", 0))
    given = filters.get("id_query")
    part = "" if given is None else _text("id_query", given)
    words = _words(filters.get("search_query"))
    if not (least or part or words is not None):
        return None

    def build(member: sa.FromClause) -> list[sa.ColumnElement[bool]]:
        found = [member.c.message_count >= least] if least else []
        if part:
            found.append(contains(operations.ascii_lower(member.c.id), ascii_lower(part)))
        if words is not None:
            named = _squeezed(operations.ascii_lower(sa.func.coalesce(member.c.title, "") + member.c.id))
            found += [contains(named, word) for word in words] or [sa.false()]
        return found

    return build


def _holds_for_any_member(
    build: Callable[[sa.FromClause], list[sa.ColumnElement[bool]]],
) -> sa.ColumnElement[bool]:
    member = SESSIONS.alias("any_member")
    later = sa.exists().where(member.c.root_session_id == SESSIONS.c.id, *build(member))
    return sa.or_(sa.and_(*build(SESSIONS)), later)


def contains(column: sa.ColumnElement[Any], part: str) -> sa.ColumnElement[bool]:
    """Whether the text holds ``part``, letter by letter: no character is a wildcard, on neither database."""
    return sa.func.length(sa.func.replace(column, part, "")) < sa.func.length(column)


def ascii_lower(text: str) -> str:
    """``text`` with A to Z in lower case and all other letters as they are, as ``DialectOperations.ascii_lower`` does it."""
    return text.translate(_LOWER)


def _words(query: Any) -> list[str] | None:
    """The words of a search, without punctuation; ``None`` without a search."""
    if query is None or query == "":
        return None
    words = "".join(c if c.isalnum() else " " for c in ascii_lower(_text("search_query", query))).split()
    found = list(dict.fromkeys(words))
    if len(found) > _MOST_WORDS:
        raise InvalidArgumentError("search_query", f"it has more than {_MOST_WORDS} different words")
    return found


def _squeezed(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """The text without what joins words; the whole of ASCII's punctuation is more nesting than SQLite can parse."""
    for character in _JOINING:
        column = sa.func.replace(column, character, "")
    return column


def _flag(name: str, value: Any) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise InvalidArgumentError(name, "it must be True or False")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidArgumentError(name, "it must be text")
    return clean_text(value)
