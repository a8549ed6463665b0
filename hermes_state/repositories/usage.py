"""What model calls cost, by session, model, provider, task and day (issue 6, item 3; known-store.md 2.8).

The totals of a session stand in its own row; they are those of the conversation itself (task ``''``). The ledgers hold
side tasks too: ``session_model_usage`` by model, route and task, ``session_daily_usage`` by day of UTC. Every write locks the
session's row first, so increments of several processes add up.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal, cast

import sqlalchemy as sa

from hermes_state.errors import InvalidArgumentError
from hermes_state.models import USAGE_COUNTERS
from hermes_state.records import UsageRecord
from hermes_state.repositories.base import Repository, Transaction
from hermes_state.repositories.session_placing import SESSIONS
from hermes_state.repositories.sessions import SessionRepository
from hermes_state.repositories.usage_ledgers import BY_DAY, BY_MODEL, CONVERSATION, UsageLedgers
from hermes_state.repositories.usage_values import (
    COSTS,
    ROUTE,
    Usage,
    sum_columns,
    sum_of,
    usage_key,
)
from hermes_state.text import is_usable_id

Grouping = Literal["model", "provider", "task", "day", "session"]
_GROUPS: dict[str, tuple[sa.Table, str]] = {
    "model": (BY_MODEL, "model"),
    "provider": (BY_MODEL, "billing_provider"),
    "task": (BY_MODEL, "task"),
    "session": (BY_MODEL, "session_id"),
    "day": (BY_DAY, "day"),
}


class UsageRepository(Repository):
    """Counting and summing. Ids that cannot exist have no usage, and nothing is counted for them."""

    def __init__(self, transaction: Transaction) -> None:
        super().__init__(transaction)
        self._sessions = SessionRepository(transaction)

    def count(self, session_id: str, usage: Usage, *, absolute: bool = False) -> None:
        """Adds ``usage`` to the session's totals, or makes it the totals, and books the difference on model and day.

        A session that is not there is made, with source ``unknown``. What is zero and costs nothing leaves no row in the
        ledgers. Totals above 2**63 - 1 are refused.
        """
        with self._transaction.verb():
            stored = self._session(session_id, usage)
            if stored is None:
                return
            change = usage.change_of(stored, absolute=absolute)
            self._transaction.wrote()
            conn = self._transaction.conn
            conn.execute(sa.update(SESSIONS).where(SESSIONS.c.id == session_id).values(**change.totals))
            self._ledgers().book({**stored, **change.totals}, usage, change.booked, CONVERSATION, time.time())

    def count_auxiliary(self, session_id: str, task: str, usage: Usage) -> None:
        """Books ``usage`` of a side task on model and day; the session's own totals stay."""
        name = usage_key("task", task)
        if not name:
            raise InvalidArgumentError(
                "task", "it needs a name; the conversation itself is counted without one"
            )
        with self._transaction.verb():
            stored = self._session(session_id, usage)
            if stored is not None:
                self._ledgers().book(stored, usage, usage.amounts, name, time.time())

    def totals(
        self,
        session_id: str | None = None,
        *,
        by: Grouping | None = None,
        lineage: bool = False,
        task: str | None = None,
    ) -> list[UsageRecord]:
        """Sums over a session, its whole conversation (``lineage``), or the store; see ``SessionDB.usage_totals``."""
        if by is not None and by not in _GROUPS:
            raise InvalidArgumentError("by", f"it must be one of {', '.join(_GROUPS)}, or None")
        if task is not None and by == "day":
            raise InvalidArgumentError("task", "the days hold all tasks together")
        table, column = _GROUPS[by] if by is not None else (BY_MODEL, None)
        group = sa.literal("") if column is None else table.c[column]
        sums = [each for name in USAGE_COUNTERS for each in sum_columns(table.c[name], name)]
        costs = [sa.func.sum(table.c[name]).label(name) for name in COSTS]
        seen = [
            sa.func.min(table.c.first_seen).label("first_seen"),
            sa.func.max(table.c.last_seen).label("last_seen"),
        ]
        stmt = sa.select(group.label("name"), *sums, *costs, *seen)
        if column is not None:
            stmt = stmt.group_by(table.c[column]).order_by(table.c[column])
        if task is not None:
            stmt = stmt.where(table.c.task == usage_key("task", task))
        with self._transaction.verb() as conn:
            if session_id is not None:
                stmt = stmt.where(self._is_of(table, session_id, lineage=lineage))
            found = conn.execute(stmt).mappings().all()
        return [_record(row, by) for row in found]

    def recent_route(self, session_id: str) -> dict[str, str | None] | None:
        """Model and route of the session's latest accounted call of the conversation itself, or ``None``."""
        columns = [BY_MODEL.c[name] for name in ("model", *ROUTE)]
        stmt = sa.select(*columns).where(BY_MODEL.c.session_id == session_id, BY_MODEL.c.task == CONVERSATION)
        with self._transaction.verb() as conn:
            if not is_usable_id(session_id):
                return None
            row = (
                conn.execute(stmt.order_by(BY_MODEL.c.last_seen.desc(), *columns).limit(1)).mappings().first()
            )
        return None if row is None else {name: value or None for name, value in row.items()}

    def _session(self, session_id: str, usage: Usage) -> Mapping[str, Any] | None:
        if not is_usable_id(session_id):
            return None
        stored = self._sessions.locked(session_id)
        if stored is None:
            self._sessions.ensure(session_id, model=usage.model)
            stored = self._sessions.locked(session_id)
        return stored

    def _ledgers(self) -> UsageLedgers:
        return UsageLedgers(self._transaction.conn, self._operations)

    def _is_of(self, table: sa.Table, session_id: str, *, lineage: bool) -> sa.ColumnElement[bool]:
        if not is_usable_id(session_id):
            return sa.false()
        if not lineage:
            return table.c.session_id == session_id
        root = sa.select(sa.func.coalesce(SESSIONS.c.root_session_id, SESSIONS.c.id)).where(
            SESSIONS.c.id == session_id
        )
        root_id = root.scalar_subquery()
        members = sa.select(SESSIONS.c.id).where(
            sa.or_(SESSIONS.c.id == root_id, SESSIONS.c.root_session_id == root_id)
        )
        return table.c.session_id.in_(members)


def _record(row: sa.RowMapping, by: Grouping | None) -> UsageRecord:
    counters = {name: sum_of(row, name) for name in USAGE_COUNTERS}
    prompt = counters["input_tokens"] + counters["cache_read_tokens"] + counters["cache_write_tokens"]
    found: dict[str, Any] = {} if by is None else {by: row["name"]}
    found |= counters
    found["total_tokens"] = prompt + counters["output_tokens"]
    found |= {name: row[name] for name in (*COSTS, "first_seen", "last_seen")}
    return cast("UsageRecord", found)
