"""What sessions used, compared with the ledgers (issue 6, item 5).

The counters of a session are the sum of its conversation's rows by model; all its rows by model have the sum of its days.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from hermes_state.models import USAGE_COUNTERS
from hermes_state.reports import Difference, difference
from hermes_state.repositories.base import Repository
from hermes_state.repositories.session_placing import SESSIONS
from hermes_state.repositories.usage_ledgers import BY_DAY, BY_MODEL, CONVERSATION, UsageLedgers
from hermes_state.repositories.usage_values import COSTS, ROUTE, day_of, stored_key, sum_columns, sum_of

_COUNTED = (*USAGE_COUNTERS, *COSTS)
_KINDS = ("", "own_", "every_", "days_")


class _Sums(NamedTuple):
    total: float
    """Of the session itself."""
    own: float
    """Of its rows by model, side tasks apart."""
    every: float
    days: float

    @property
    def known(self) -> float:
        """What the days should know."""
        return self.every + max(self.total - self.own, 0)


class UsageVerifyingRepository(Repository):
    """Comparing and mending. Money is compared to a billionth; a figure that nobody told is 0."""

    def differences(self, session_ids: Sequence[str]) -> list[Difference]:
        """Where counters, rows by model and days of these sessions do not have the same sum."""
        with self._transaction.verb() as conn:
            found = conn.execute(self._sums(session_ids)).mappings().all()
        return [each for row in found for each in _differences(row)]

    def mend(self, session_id: str) -> None:
        """Gives counters and ledgers of one session the same sum, as far as one tells the other; nothing is lowered.

        What only the counters know is booked on the session's own model and route; a counter that knows less than the rows
        by model gets their sum; what no day knows is booked on the day when the session began.
        """
        with self._transaction.verb() as conn:
            lock = sa.select(SESSIONS.c.id).where(SESSIONS.c.id == session_id).with_for_update()
            if conn.scalar(lock) is None:
                return
            self._transaction.wrote()
            row = conn.execute(self._sums([session_id])).mappings().one()
            if not _can_be_mended(row):
                return
            sums = _sums_of(row)
            raised = {name: each.own for name, each in sums.items() if _is_less(each.total, each.own)}
            if raised:
                conn.execute(sa.update(SESSIONS).where(SESSIONS.c.id == session_id).values(raised))
            self._book(row, sums)

    def _book(self, row: Mapping[Any, Any], sums: Mapping[str, _Sums]) -> None:
        ledgers = UsageLedgers(self._transaction.conn, self._operations)
        seen = float(row["started_at"])
        by_model = {name: _lacks(name, each.own, each.total) for name, each in sums.items()}
        by_day = {name: _lacks(name, each.days, each.known) for name, each in sums.items()}
        route = {name: stored_key(row[name]) for name in ("model", *ROUTE)}
        if any(by_model.values()):
            ledgers.add(
                BY_MODEL, {"session_id": row["id"], **route, "task": CONVERSATION}, by_model, seen, {}
            )
        if any(by_day.values()):
            ledgers.add(BY_DAY, {"session_id": row["id"], "day": day_of(seen)}, by_day, seen, {})

    def _sums(self, session_ids: Sequence[str]) -> sa.Select[Any]:
        """One statement, so that a booking in between is seen whole or not at all."""
        own = BY_MODEL.c.task == CONVERSATION
        models = self._grouped(BY_MODEL, session_ids, {"own": own, "every": sa.true()})
        days = self._grouped(BY_DAY, session_ids, {"days": sa.true()})
        names = ("id", "started_at", "model", *ROUTE, *_COUNTED)
        sums = [column for part in (models, days) for column in part.c if column.name != "session_id"]
        stmt = sa.select(*[SESSIONS.c[name] for name in names], *sums)
        stmt = stmt.outerjoin_from(SESSIONS, models, models.c.session_id == SESSIONS.c.id)
        stmt = stmt.outerjoin(days, days.c.session_id == SESSIONS.c.id)
        is_wanted = self._operations.is_any_of(SESSIONS.c.id, "sessions", session_ids)
        return stmt.where(is_wanted).order_by(SESSIONS.c.id)

    def _grouped(
        self, table: sa.Table, session_ids: Sequence[str], kinds: Mapping[str, sa.ColumnElement[bool]]
    ) -> sa.Subquery:
        sums: list[sa.ColumnElement[Any]] = []
        for kind, is_meant in kinds.items():
            sums += [
                sa.func.sum(sa.case((is_meant, table.c[name]))).label(f"{kind}_{name}") for name in COSTS
            ]
            for name in USAGE_COUNTERS:
                sums += sum_columns(sa.case((is_meant, table.c[name])), f"{kind}_{name}")
        is_wanted = self._operations.is_any_of(table.c.session_id, table.name, session_ids)
        stmt = sa.select(table.c.session_id, *sums).where(is_wanted)
        return stmt.group_by(table.c.session_id).subquery()


def _sums_of(row: Mapping[Any, Any]) -> dict[str, _Sums]:
    found = {}
    for name in _COUNTED:
        total, *sums = (f"{kind}{name}" for kind in _KINDS)
        known = [_plain(row[each]) if name in COSTS else sum_of(row, each) for each in sums]
        found[name] = _Sums(_plain(row[total]), *known)
    return found


def _plain(value: Any) -> int | float:
    """A number; another program may have stored text."""
    return value if isinstance(value, (int, float)) else 0


def _differences(row: Mapping[Any, Any]) -> Iterator[Difference]:
    can_be_mended = _can_be_mended(row)
    for name, each in _sums_of(row).items():
        if _is_less(each.own, each.total):
            yield difference(
                BY_MODEL.name, row["id"], name, each.own, each.total, can_be_mended=can_be_mended
            )
        elif _is_less(each.total, each.own):
            yield difference("sessions", row["id"], name, row[name], each.own, can_be_mended=can_be_mended)
        if not _are_equal(each.days, each.known):
            # Where days know more, nobody can say of which model.
            can = can_be_mended and each.days < each.known
            yield difference(BY_DAY.name, row["id"], name, each.days, each.known, can_be_mended=can)


def _can_be_mended(row: Mapping[Any, Any]) -> bool:
    """Whether there is a day to book on, and numbers to book."""
    try:
        dt.datetime.fromtimestamp(row["started_at"], dt.UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return False
    return all(math.isfinite(value) for each in _sums_of(row).values() for value in each)


def _lacks(name: str, known: float, wanted: float) -> float | None:
    if _is_less(known, wanted):
        return wanted - known
    return None if name in COSTS else 0


def _is_less(one: float, other: float) -> bool:
    return one < other and not _are_equal(one, other)


def _are_equal(one: float, other: float) -> bool:
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
