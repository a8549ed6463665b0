"""The ledgers of an older store: what sessions used by model and by day (known store, section 1.5).

Versions before 20 and 22 have none; a session without rows gets one made of its totals, as the migration of this package
does for its own older stores.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa

from hermes_state.dialects.older_stores import OlderStore
from hermes_state.models import USAGE_COUNTERS, SessionDailyUsageRow, SessionModelUsageRow
from hermes_state.repositories.base import table_of
from hermes_state.repositories.usage_values import COSTS, MAX_KEY_CHARACTERS, PROVENANCE
from hermes_state.transfer.adoption import values
from hermes_state.transfer.adoption.keys import SeenKeys
from hermes_state.transfer.adoption.notebook import Notebook
from hermes_state.transfer.adoption.sessions import SESSIONS, SessionPlan

MODELS, DAYS = table_of(SessionModelUsageRow), table_of(SessionDailyUsageRow)
LEDGERS = (MODELS, DAYS)
_SESSIONS_A_PAGE = 1_000
_KEY_OF = {table: [column.name for column in table.primary_key][1:] for table in LEDGERS}
_SEEN = ("first_seen", "last_seen")
_TOTALS = ("id", "model", "billing_provider", "billing_base_url", "billing_mode", "started_at", "last_active_at",
           *USAGE_COUNTERS, *COSTS, *PROVENANCE)  # fmt: skip


class UsageConverter:
    """Makes the rows of one ledger; ``with_rows`` fills with the sessions that have some."""

    def __init__(self, store: OlderStore, plan: SessionPlan, notebook: Notebook, table: sa.Table) -> None:
        self._store = store
        self._plan = plan
        self._notebook = notebook
        self._table = table
        self.with_rows: set[str] = set()

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Every row of the older ledger, in the order of the new one's columns."""
        seen = SeenKeys()
        for old in self._store.ledger(self._table.name):
            session_id = self._plan.find(old.get("session_id"))
            shown = "/".join(str(old.get(name)) for name in ("session_id", *_KEY_OF[self._table]))
            if session_id is None:
                self._notebook.add(
                    self._table.name, shown, "session_id", "there is no such session: left out", old
                )
                continue
            new = {"session_id": session_id} | self._columns(old, shown)
            if not seen.take(session_id, "\0".join(new[name] for name in _KEY_OF[self._table])):
                self._notebook.add(
                    self._table.name, shown, "session_id", "another row has its key: left out", old
                )
                continue
            self.with_rows.add(session_id)
            yield tuple(new[column.name] for column in self._table.c)
        seen.close()

    def _columns(self, old: Mapping[str, Any], shown: str) -> dict[str, Any]:
        new = {}
        for column in self._table.c:
            value = old.get(column.name)
            if column.name in _KEY_OF[self._table]:
                found, rule = values.as_text("" if value is None else value, 2**40)
                if len(found) > MAX_KEY_CHARACTERS:
                    found, rule = found[:MAX_KEY_CHARACTERS], values.CUT
            elif column.name in USAGE_COUNTERS:
                found, rule = values.as_count(value)
                found, rule = found or 0, f"{rule}: became 0" if rule == values.NO_NUMBER else rule
            elif column.name in COSTS:
                found, rule = values.as_money(value)
            elif column.name in _SEEN:
                found, rule = values.as_time(value)
            elif column.name == "session_id":
                continue
            else:
                found, rule = values.as_text(value, 2**20)
            if rule is not None:
                self._notebook.add(self._table.name, shown, column.name, rule, value)
            new[column.name] = found
        self._note_others(old, shown)
        moments = [new[name] for name in _SEEN if new[name] is not None] or [_day_begins(new)]
        new["first_seen"], new["last_seen"] = min(moments), max(moments)
        return new

    def _note_others(self, old: Mapping[str, Any], shown: str) -> None:
        for name, value in old.items():
            if name not in self._table.c and value not in (None, "", 0):
                self._notebook.add(self._table.name, shown, name, "no column for it: left out", value)


def totals(conn: sa.Connection) -> Iterator[Mapping[str, Any]]:
    """The sessions, in pages, that have used anything."""
    names = [SESSIONS.c[name] for name in _TOTALS]
    counted = sa.or_(*[SESSIONS.c[name] > 0 for name in (*USAGE_COUNTERS, *COSTS)])
    last = ""
    while (
        page := conn.execute(
            sa.select(*names)
            .where(SESSIONS.c.id > last, counted)
            .order_by(SESSIONS.c.id)
            .limit(_SESSIONS_A_PAGE)
        )
        .mappings()
        .all()
    ):
        yield from (dict(row) for row in page)
        last = page[-1]["id"]


def made_of_totals(table: sa.Table, session: Mapping[str, Any]) -> tuple[Any, ...]:
    """The row of a ledger that a session without any gets."""
    row = dict(session)
    day = dt.datetime.fromtimestamp(session["started_at"], dt.UTC).strftime("%Y-%m-%d")
    row |= {"session_id": session["id"], "task": "", "day": day, "first_seen": session["started_at"]}
    row["last_seen"] = (
        session["started_at"] if session["last_active_at"] is None else session["last_active_at"]
    )
    row |= {name: (row[name] or "")[:MAX_KEY_CHARACTERS] for name in _KEY_OF[table]}
    return tuple(row[column.name] for column in table.c)


def _day_begins(row: Mapping[str, Any]) -> float:
    try:
        return dt.datetime.fromisoformat(str(row.get("day"))).replace(tzinfo=dt.UTC).timestamp()
    except ValueError:
        return 0.0
