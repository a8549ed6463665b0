"""What an owner asks of a whole store: how much, since when, in which sessions (issue 4, item 5). Reads everything once."""

from __future__ import annotations

import time
from typing import Any

import sqlalchemy as sa

from hermes_state.reports import DayStatistics, SessionStatistics, StateCounts
from hermes_state.repositories import rows
from hermes_state.repositories.base import Repository
from hermes_state.repositories.session_placing import SESSIONS

_MESSAGES = rows.MESSAGES
_TEXTS = (
    "content", "content_parts", "tool_calls", "reasoning", "reasoning_content", "reasoning_details", "codex_reasoning_items",
    "codex_message_items", "api_content", "display_metadata", "extra",
)  # fmt: skip
_DAY_SECONDS = 86_400.0


class StatisticsRepository(Repository):
    """Sums over the store. Bytes are those of the stored texts in UTF-8, not of pages on disk."""

    def sessions_by_source(self) -> dict[str, int]:
        """How many sessions each source has made, the most first."""
        count = sa.func.count()
        stmt = sa.select(SESSIONS.c.source, count).group_by(SESSIONS.c.source)
        return {
            str(source): number
            for source, number in self._all(stmt.order_by(count.desc(), SESSIONS.c.source))
        }

    def messages_by_state(self) -> StateCounts:
        """How many messages are live, were summarised away, and were taken back."""
        stmt = sa.select(
            sa.func.count(),
            sa.func.count(sa.case((rows.ACTIVE, 1))),
            sa.func.count(sa.case((_MESSAGES.c.compacted, 1))),
        ).select_from(_MESSAGES)
        ((total, active, compacted),) = self._all(stmt)
        return {"active": active, "compacted": compacted, "rewound": total - active - compacted}

    def days(self, number: int) -> list[DayStatistics]:
        """Messages and their bytes for each of the latest ``number`` days (UTC) that have any, in order."""
        day = self._operations.day_of(_MESSAGES.c.timestamp).label("day")
        stmt = sa.select(day, sa.func.count(), self._bytes()).where(
            _MESSAGES.c.timestamp >= time.time() - number * _DAY_SECONDS
        )
        found = self._all(stmt.group_by(sa.text("1")).order_by(sa.text("1")))
        return [
            {"day": name or "", "messages": count, "text_bytes": int(size or 0)}
            for name, count, size in found
        ]

    def biggest_sessions(self, number: int) -> list[SessionStatistics]:
        """The ``number`` sessions whose messages hold the most bytes."""
        size = self._bytes().label("text_bytes")
        sums = sa.select(_MESSAGES.c.session_id, sa.func.count().label("messages"), size)
        each = sums.group_by(_MESSAGES.c.session_id).subquery()
        stmt = (
            sa.select(
                each.c.session_id, SESSIONS.c.title, SESSIONS.c.source, each.c.messages, each.c.text_bytes
            )
            .outerjoin_from(each, SESSIONS, SESSIONS.c.id == each.c.session_id)
            .order_by(each.c.text_bytes.desc().nulls_last(), each.c.session_id)
            .limit(number)
        )
        return [
            {
                "session_id": session_id,
                "title": title,
                "source": source,
                "messages": count,
                "text_bytes": int(total or 0),
            }
            for session_id, title, source, count, total in self._all(stmt)
        ]

    def carrier_bytes(self) -> int:
        """The bytes of the replay items in live rows that hold a checkpoint or name one."""
        stmt = sa.select(sa.func.sum(self._operations.text_bytes(_MESSAGES.c.codex_reasoning_items)))
        ((total,),) = self._all(stmt.where(self._operations.looks_like_carrier))
        return int(total or 0)

    def _bytes(self) -> sa.ColumnElement[Any]:
        sizes = [sa.func.coalesce(self._operations.text_bytes(_MESSAGES.c[name]), 0) for name in _TEXTS]
        total: sa.ColumnElement[int] = sizes[0]
        for size in sizes[1:]:
            total = total + size
        return sa.func.sum(total)

    def _all(self, stmt: sa.Executable) -> Any:
        with self._transaction.verb() as conn:
            return conn.execute(stmt).all()
