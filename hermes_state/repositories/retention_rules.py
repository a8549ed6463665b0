"""Which conversations retention means: by age and by filters that hold for a conversation as a whole (field reports L7, L8)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict, cast

import sqlalchemy as sa

from hermes_state.codec import epoch_seconds
from hermes_state.dialects import DialectOperations
from hermes_state.errors import InvalidArgumentError
from hermes_state.json_values import UnfitValueError
from hermes_state.repositories.base import require_count
from hermes_state.repositories.deleting import expected_ids
from hermes_state.repositories.lease_rows import require_seconds
from hermes_state.repositories.session_filters import SessionFilters, conditions, contains
from hermes_state.repositories.session_placing import SESSIONS
from hermes_state.repositories.session_values import optional_text

DEFAULT_DAYS = 90.0
_DAY_SECONDS = 86_400.0
_LAST_ACTIVE = sa.func.coalesce(SESSIONS.c.last_active_at, SESSIONS.c.started_at)
_BEGINS = sa.or_(
    SESSIONS.c.parent_session_id.is_(None),
    SESSIONS.c.kind.in_(("root", "branch", "tool")),
    sa.and_(SESSIONS.c.kind.is_(None), SESSIONS.c.source == "tool"),
)
_EQUAL = ("source", "model", "billing_provider", "user_id", "session_key")
_COUNTS = ("min_messages", "max_messages")
_COSTS = ("min_cost_usd", "max_cost_usd")
_TIMES = ("started_after", "started_before")
Row = Mapping[str, Any]


class RetentionFilters(TypedDict, total=False):
    """Which conversations; what is left out, or ``None``, filters nothing. Texts are compared letter by letter.

    Delegates never decide, but their messages and costs count.
    """

    model: str | None
    """Of every session, as are the three that follow."""
    billing_provider: str | None
    user_id: str | None
    session_key: str | None
    cwd_prefix: str | None
    """Every session in this folder or in those in it."""
    title_query: str | None
    """Part of the title of one session."""
    end_reason: str | None
    """Why the conversation ended: that of each session that nothing continues."""
    min_messages: int | None
    """Live messages of all sessions together."""
    max_messages: int | None
    min_cost_usd: float | None
    """What was billed, else what was estimated, of all sessions together; one that nobody told of fulfils no bound."""
    max_cost_usd: float | None
    started_after: Any
    """Epoch seconds or an aware ``datetime``: begun then or later."""
    started_before: Any
    """Begun before."""


@dataclass(frozen=True)
class Retention:
    """Which conversations are meant; made by ``retention``."""

    before: float | None
    """Epoch seconds: last active before this. ``None``: of any age."""
    filters: Mapping[str, Any] = field(default_factory=dict)
    """Checked, without those that were not given."""
    to_hide: bool = False
    """To be hidden, not deleted: conversations that nobody ended too; only what is shown, and no delegates."""
    only: frozenset[str] | None = None
    """No session but these."""

    def begins(self, operations: DialectOperations) -> sa.ColumnElement[bool]:
        """What the first session of such a conversation fulfils."""
        terms = [_BEGINS, sa.not_(SESSIONS.c.pinned), self.is_old(), self.fits(operations)]
        if not self.to_hide:
            terms.append(SESSIONS.c.ended_at.is_not(None))
        return sa.and_(*terms)

    def is_old(self) -> sa.ColumnElement[bool]:
        """Whether a session was last active before the time."""
        return sa.true() if self.before is None else self.before > _LAST_ACTIVE

    def fits(self, operations: DialectOperations) -> sa.ColumnElement[bool]:
        """What every session of the conversation fulfils, delegates apart."""
        terms = [SESSIONS.c[name] == self.filters[name] for name in _EQUAL if name in self.filters]
        if "cwd_prefix" in self.filters:
            folder: dict[str, Any] = {"cwd_prefix": self.filters["cwd_prefix"], "include_children": True}
            folder |= {"include_archived": True, "include_hidden": True}
            terms += conditions(operations, cast("SessionFilters", folder))
        return sa.and_(sa.true(), *terms)

    def is_named(self) -> sa.ColumnElement[bool]:
        """Whether the title of a session holds the part asked for."""
        part = self.filters.get("title_query")
        return sa.true() if part is None else contains(SESSIONS.c.title, part)

    def idle_open(self, operations: DialectOperations) -> sa.ColumnElement[bool]:
        """What a session fulfils by itself that only for never having been ended does not go."""
        is_nobodys = sa.true() if "end_reason" not in self.filters else sa.false()
        terms = [SESSIONS.c.ended_at.is_(None), sa.not_(SESSIONS.c.pinned), is_nobodys]
        found = {
            "started_after": SESSIONS.c.started_at.__ge__,
            "started_before": SESSIONS.c.started_at.__lt__,
        }
        terms += [compare(self.filters[name]) for name, compare in found.items() if name in self.filters]
        return sa.and_(*terms, self.is_old(), self.fits(operations), self.is_named())

    def names(self, family: Sequence[Row]) -> list[str]:
        """The ids that go, or are hidden, if the conversation is meant."""
        if not self._takes(family):
            return []
        return [row["id"] for row in family if not (self.to_hide and (row["is_work"] or row["archived"]))]

    def _takes(self, family: Sequence[Row]) -> bool:
        """Whether the conversation goes as a whole. Delegates (``is_work``) are often left open, so only their age counts."""
        if not family or (self.only is not None and not self.only.issuperset(row["id"] for row in family)):
            return False
        own = [row for row in family if not row["is_work"]]
        return (
            all(row["is_old"] and not row["pinned"] for row in family)
            and all(row["fits"] and (self.to_hide or row["ended_at"] is not None) for row in own)
            and ("title_query" not in self.filters or any(row["is_named"] for row in own))
            and self._ended_so(own)
            and self._is_between("started", _TIMES, family[0]["started_at"])
            and self._is_between("messages", _COUNTS, _total(row["message_count"] for row in family))
            and self._is_between("cost", _COSTS, _total(map(_cost, family), unknown=None))
        )

    def _ended_so(self, own: Sequence[Row]) -> bool:
        continued = {
            row["parent_session_id"] for row in own if not row["is_first"] and row["kind"] != "delegate"
        }
        last = [row["end_reason"] for row in own if row["id"] not in continued]
        return "end_reason" not in self.filters or set(last) == {self.filters["end_reason"]}

    def _is_between(self, what: str, names: tuple[str, str], value: Any) -> bool:
        low, high = (self.filters.get(name) for name in names)
        if low is None and high is None:
            return True
        if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
            return False  # nothing is told, or another program stored text there
        return (low is None or value >= low) and (
            high is None or (value < high if what == "started" else value <= high)
        )


def retention(
    older_than_days: Any,
    source: Any,
    *,
    to_hide: bool = False,
    only: Any = None,
    **filters: Any,
) -> Retention:
    """The rule of the arguments: 90 days unless given, any age where a filter narrows what is meant (field report L7).

    Raises ``InvalidArgumentError`` for days that are negative or no finite number and for unfit or empty filters,
    ``TypeError`` for an unknown one.
    """
    wanted = _checked(source, filters)
    if older_than_days is None and not any(map(_narrows, wanted, wanted.values())):
        older_than_days = DEFAULT_DAYS
    before = None
    if older_than_days is not None:
        days = _not_negative("older_than_days", older_than_days, "days")
        before = time.time() - days * _DAY_SECONDS
    return Retention(before, wanted, to_hide, expected_ids(only))


def _checked(source: Any, filters: Mapping[str, Any]) -> dict[str, Any]:
    if unknown := filters.keys() - RetentionFilters.__annotations__.keys():
        raise TypeError(f"unexpected filters: {', '.join(sorted(unknown))}")
    given = {name: value for name, value in (("source", source), *filters.items()) if value is not None}
    return {name: _check_of(name)(name, value) for name, value in given.items()}


def _part(name: str, value: Any) -> str:
    text = optional_text(name, value) or ""
    if not text.strip("/\\ " if name == "cwd_prefix" else ""):
        raise InvalidArgumentError(name, "it is empty: leave it out, or say what is meant")
    return text


def _not_negative(name: str, value: Any, unit: str = "US dollars") -> float:
    try:
        return require_seconds(name, value, zero=True)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(name, f"it must be a finite number of {unit}, not below 0") from error


def _moment(name: str, value: Any) -> float:
    try:
        return epoch_seconds(value)
    except UnfitValueError as error:
        raise InvalidArgumentError(name, str(error)) from error


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "cwd_prefix": _part,
    "title_query": _part,
    **dict.fromkeys(_COUNTS, require_count),
    **dict.fromkeys(_COSTS, _not_negative),
    **dict.fromkeys(_TIMES, _moment),
}


def _check_of(name: str) -> Callable[[str, Any], Any]:
    return _CHECKS.get(name, optional_text)


def _narrows(name: str, value: Any) -> bool:
    """Whether the filter leaves anything out; one that does not never means every conversation of any age."""
    if name in ("min_messages", "min_cost_usd", "started_after"):
        return bool(value > 0)
    return name != "started_before" or bool(value < time.time())


def _cost(row: Row) -> Any:
    return row["estimated_cost_usd"] if row["actual_cost_usd"] is None else row["actual_cost_usd"]


def _total(values: Iterable[Any], unknown: int | None = 0) -> Any:
    """The sum of the values that are told; ``None`` when one is no number, ``unknown`` when none is told."""
    told = [value for value in values if value is not None]
    if not all(isinstance(value, (int, float)) for value in told):
        return None
    return sum(told) if told else unknown
