"""The rows of ``session_model_usage`` and ``session_daily_usage``: every grouping of them has the same sum.

The caller holds the lock of the session's row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from hermes_state.dialects import DialectOperations
from hermes_state.models import SessionDailyUsageRow, SessionModelUsageRow
from hermes_state.repositories.base import table_of
from hermes_state.repositories.usage_values import (
    COSTS,
    MOST,
    PROVENANCE,
    ROUTE,
    Usage,
    day_of,
    number_of,
    stored_key,
)

BY_MODEL = table_of(SessionModelUsageRow)
BY_DAY = table_of(SessionDailyUsageRow)
CONVERSATION = ""
"""The task of what is no side task."""
Amounts = Mapping[str, int | float | None]


class UsageLedgers:
    """Booking inside a transaction."""

    def __init__(self, conn: sa.Connection, operations: DialectOperations) -> None:
        self._conn = conn
        self._operations = operations

    def book(self, session: Mapping[str, Any], usage: Usage, amounts: Amounts, task: str, now: float) -> None:
        """Adds to the rows of model and day; what is below 0 is taken from them, or from others of the session.

        The route of ``usage`` counts before that of the session. Without any amount no row is made.
        """
        if not any(amounts.values()) and all(amounts[name] is None for name in COSTS):
            return
        route = {name: getattr(usage, name) or stored_key(session[name]) for name in ("model", *ROUTE)}
        of_model = {"session_id": session["id"], **route, "task": task}
        of_day = {"session_id": session["id"], "day": day_of(now)}
        provenance = {name: getattr(usage, name) for name in PROVENANCE}
        self.add(BY_MODEL, of_model, amounts, now, provenance)
        self.add(BY_DAY, of_day, amounts, now, {})
        if taken := {name: -amount for name, amount in amounts.items() if amount is not None and amount < 0}:
            self._take(BY_MODEL, of_model, taken, BY_MODEL.c.task == task)
            self._take(BY_DAY, of_day, taken, sa.true())

    def add(
        self,
        table: sa.Table,
        key: Mapping[str, str],
        amounts: Amounts,
        seen: float,
        provenance: Mapping[str, str | None],
    ) -> None:
        """Adds what is above 0 to the row of the key, which is made if it is not there."""
        first = {name: None if amount is None else max(amount, 0) for name, amount in amounts.items()}
        insert = self._operations.insert(table).values(
            **key, **first, **provenance, first_seen=seen, last_seen=seen
        )
        is_newest = table.c.last_seen < seen
        changed: dict[str, Any] = {"last_seen": sa.case((is_newest, seen), else_=table.c.last_seen)}
        for name, amount in first.items():
            if amount is not None:
                total = sa.func.coalesce(table.c[name], 0) + sa.literal(amount, table.c[name].type)
                is_too_much = table.c[name] > MOST - amount if isinstance(amount, int) else sa.false()
                changed[name] = sa.case((is_too_much, MOST), else_=total)
        changed |= {name: text for name, text in provenance.items() if text is not None}
        self._conn.execute(insert.on_conflict_do_update(index_elements=list(key), set_=changed))

    def _take(
        self,
        table: sa.Table,
        key: Mapping[str, str],
        amounts: Mapping[str, int | float],
        also: sa.ColumnElement[bool],
    ) -> None:
        """Takes the amounts from the row of the key as far as it has them, the rest from the rows seen last."""
        left = dict(amounts)
        stmt = sa.select(*[table.c[name] for name in (*key, *left)]).where(
            table.c.session_id == key["session_id"], also
        )
        stmt = stmt.order_by(table.c.last_seen.desc(), *table.primary_key)
        rows = self._conn.execute(stmt).mappings().all()
        for row in sorted(rows, key=lambda row: any(row[name] != value for name, value in key.items())):
            changed = {}
            for name, rest in left.items():
                if (part := min(rest, number_of(row[name]))) > 0:
                    changed[name] = number_of(row[name]) - part
                    left[name] = rest - part
            if changed:
                is_this = sa.and_(*[table.c[name] == row[name] for name in key])
                self._conn.execute(sa.update(table).where(is_this).values(changed))
