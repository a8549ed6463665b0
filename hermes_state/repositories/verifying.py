"""What the store derives from its rows, compared with the rows (issue 6, item 5). Reads in pages; a repair is one session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from hermes_state.models import SessionDailyUsageRow, SessionModelUsageRow
from hermes_state.payloads import tool_call_count
from hermes_state.reports import Difference, difference
from hermes_state.repositories import begun_deletions, rows
from hermes_state.repositories.base import Repository, table_of
from hermes_state.repositories.counters import SessionCounters
from hermes_state.repositories.session_placing import SESSIONS
from hermes_state.text import is_usable_id

HALF_DELETED = "half deleted: delete it again, or keep what is left with set_session_hidden(id, False)"
_MESSAGES = rows.MESSAGES
_DERIVED = ("message_count", "tool_call_count", "last_active_at")
_DEPENDENT = {
    "messages": _MESSAGES.c.id,
    "session_model_usage": table_of(SessionModelUsageRow).c.session_id,
    "session_daily_usage": table_of(SessionDailyUsageRow).c.session_id,
}


class VerifyingRepository(Repository):
    """Comparing and mending. What cannot be derived from other rows is only reported."""

    def integrity(self) -> list[Difference]:
        """What the database itself finds damaged."""
        with self._transaction.verb() as conn:
            found = self._operations.damages(conn)
        return [difference("database", None, None, text, None, can_be_mended=False) for text in found]

    def page_of_sessions(self, after: str | None, limit: int) -> list[str]:
        """The next session ids, in their order."""
        stmt = sa.select(SESSIONS.c.id).order_by(SESSIONS.c.id).limit(limit)
        if after is not None:
            stmt = stmt.where(after < SESSIONS.c.id)
        with self._transaction.verb() as conn:
            return list(conn.scalars(stmt))

    def derived(self, session_ids: Sequence[str]) -> list[Difference]:
        """Counters, last activity and the first session of each of ``session_ids`` that its rows contradict."""
        with self._transaction.verb():
            counted = self._counted(session_ids)
            times = self._newest_times(session_ids)
            stored = self._sessions(session_ids)
        return [found for row in stored for found in _contradictions(row, counted, times)]

    def orphans(self, limit: int) -> list[Difference]:
        """Rows whose session is gone, and children whose parent is; another program wrote or deleted past the keys."""
        found: list[Difference] = []
        with self._transaction.verb() as conn:
            for name, key in _DEPENDENT.items():
                table = key.table
                lost = sa.select(key, table.c.session_id).outerjoin_from(
                    table, SESSIONS, SESSIONS.c.id == table.c.session_id
                )
                for row_id, session_id in conn.execute(lost.where(SESSIONS.c.id.is_(None)).limit(limit)):
                    found.append(
                        difference(name, row_id, "session_id", session_id, None, can_be_mended=False)
                    )
            parent = SESSIONS.alias("parent")
            lost = sa.select(SESSIONS.c.id, SESSIONS.c.parent_session_id).outerjoin_from(
                SESSIONS, parent, parent.c.id == SESSIONS.c.parent_session_id
            )
            lost = lost.where(SESSIONS.c.parent_session_id.is_not(None), parent.c.id.is_(None)).limit(limit)
            for session_id, parent_id in conn.execute(lost):
                found.append(difference("sessions", session_id, "parent_session_id", parent_id, None))
        return found

    def half_deleted(self) -> list[Difference]:
        """Sessions whose deletion was stopped between two of its parts; only whoever deleted knows what should become of them."""
        with self._transaction.verb():
            marked = begun_deletions.begun(self._transaction)
        return [
            difference("sessions", each, "hidden", HALF_DELETED, None, can_be_mended=False)
            for each in sorted(marked)
        ]

    def mend(self, found: Difference) -> None:
        """Sets one derived value anew, from the rows as they are now."""
        session_id, column = found["id"], found["column"]
        with self._transaction.verb() as conn:
            if column in _DERIVED:
                counters = SessionCounters(conn, self._operations, session_id)
                if counters.lock_if_there():
                    counters.recount()
                return
            assert column in ("root_session_id", "parent_session_id")
            stmt = sa.update(SESSIONS).where(SESSIONS.c.id == session_id).values({column: found["expected"]})
            conn.execute(stmt)

    def _sessions(self, session_ids: Sequence[str]) -> Sequence[Mapping[Any, Any]]:
        parent = SESSIONS.alias("parent")
        columns = [
            SESSIONS.c[name] for name in ("id", "kind", "root_session_id", "parent_session_id", *_DERIVED)
        ]
        first = sa.func.coalesce(parent.c.root_session_id, parent.c.id).label("root_of_parent")
        stmt = sa.select(*columns, first).outerjoin_from(
            SESSIONS, parent, parent.c.id == SESSIONS.c.parent_session_id
        )
        stmt = stmt.where(self._operations.is_any_of(SESSIONS.c.id, "wanted", session_ids)).order_by(
            SESSIONS.c.id
        )
        return self._transaction.conn.execute(stmt).mappings().all()

    def _counted(self, session_ids: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Active rows and their calls, by session."""
        length = self._operations.list_length(_MESSAGES.c.tool_calls)
        odd = sa.case((sa.and_(_MESSAGES.c.tool_calls.is_not(None), length.is_(None)), 1))
        is_wanted = self._operations.is_any_of(_MESSAGES.c.session_id, "wanted", session_ids)
        stmt = sa.select(
            _MESSAGES.c.session_id,
            sa.func.count(),
            sa.func.coalesce(sa.func.sum(length), 0),
            sa.func.count(odd),
        ).where(is_wanted, rows.ACTIVE)
        found = {}
        for session_id, number, calls, others in self._transaction.conn.execute(
            stmt.group_by(_MESSAGES.c.session_id)
        ).all():
            rest = self._calls_of_others(session_id, length) if others else 0
            found[session_id] = (number, int(calls) + rest)
        return found

    def _calls_of_others(self, session_id: str, length: sa.ColumnElement[int]) -> int:
        stmt = sa.select(_MESSAGES.c.tool_calls).where(
            _MESSAGES.c.session_id == session_id,
            rows.ACTIVE,
            _MESSAGES.c.tool_calls.is_not(None),
            length.is_(None),
        )
        return sum(tool_call_count(text) for text in self._transaction.conn.scalars(stmt))

    def _newest_times(self, session_ids: Sequence[str]) -> dict[str, float]:
        is_wanted = self._operations.is_any_of(_MESSAGES.c.session_id, "wanted", session_ids)
        newest = (
            sa.select(_MESSAGES.c.session_id, sa.func.max(_MESSAGES.c.id).label("id"))
            .where(is_wanted)
            .group_by(_MESSAGES.c.session_id)
            .subquery()
        )
        stmt = sa.select(_MESSAGES.c.session_id, _MESSAGES.c.timestamp).join(
            newest, sa.and_(newest.c.session_id == _MESSAGES.c.session_id, newest.c.id == _MESSAGES.c.id)
        )
        return {row[0]: row[1] for row in self._transaction.conn.execute(stmt)}


def _contradictions(
    row: Mapping[Any, Any], counted: Mapping[str, tuple[int, int]], times: Mapping[str, float]
) -> Iterator[Difference]:
    session_id = row["id"]
    number, calls = counted.get(session_id, (0, 0))
    expected: dict[str, Any] = {"message_count": number, "tool_call_count": calls}
    if session_id in times:
        expected["last_active_at"] = times[session_id]
    is_continuation = row["kind"] == "continuation" and row["parent_session_id"] is not None
    if row["kind"] is not None and (not is_continuation or row["root_of_parent"] is not None):
        root = row["root_of_parent"] if is_continuation else None
        expected["root_session_id"] = None if root == session_id else root
    for column, value in expected.items():
        if row[column] != value:
            can = is_usable_id(session_id)  # other ids no verb of this package takes
            yield difference("sessions", session_id, column, row[column], value, can_be_mended=can)
