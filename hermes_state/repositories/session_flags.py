"""What the owner of a store notes on a session, and small questions about many of them (known-store.md 1.5, 2.5)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from hermes_state.codec import epoch_seconds
from hermes_state.errors import InvalidArgumentError
from hermes_state.json_values import UnfitValueError
from hermes_state.records import SessionCwd
from hermes_state.repositories import rows
from hermes_state.repositories.base import Repository
from hermes_state.repositories.session_filters import ACTIVITY
from hermes_state.repositories.session_placing import SESSIONS
from hermes_state.repositories.session_values import optional_text
from hermes_state.text import is_usable_id
from hermes_state.types import Equals

_MESSAGES = rows.MESSAGES


class SessionFlagRepository(Repository):
    """Setters say whether there is such a session; questions leave unknown ids out."""

    def set_read(self, session_id: str, at: Any = None) -> bool:
        """Notes up to when the session was read; never an earlier time than before."""
        moment = _moment("at", at)
        is_newer = sa.or_(SESSIONS.c.last_read_at.is_(None), SESSIONS.c.last_read_at < moment)
        return self._set(session_id, is_newer, last_read_at=moment)

    def touch(self, session_id: str, description: str | None, provenance: str | None, at: Any = None) -> bool:
        """Notes a sign of life during a turn, before any message lands; never an earlier time than before."""
        moment = _moment("at", at)
        is_newer = sa.or_(SESSIONS.c.last_activity_at.is_(None), SESSIONS.c.last_activity_at <= moment)
        return self._set(
            session_id,
            is_newer,
            last_activity_at=moment,
            last_activity_description=optional_text("description", description),
            last_activity_provenance=optional_text("provenance", provenance),
        )

    def folders(self, *, include_archived: bool = False) -> list[SessionCwd]:
        """Every working folder with its number of sessions, the most recently used first."""
        last = sa.func.max(ACTIVITY)
        stmt = sa.select(SESSIONS.c.cwd, sa.func.count(), last).where(SESSIONS.c.cwd != "")
        if not include_archived:
            stmt = stmt.where(sa.not_(SESSIONS.c.archived))
        with self._transaction.verb() as conn:
            found = conn.execute(stmt.group_by(SESSIONS.c.cwd).order_by(last.desc(), SESSIONS.c.cwd)).all()
        return [{"cwd": cwd, "sessions": number, "last_active": at} for cwd, number, at in found]

    def statuses(self, session_ids: Iterable[Any]) -> dict[str, str]:
        """How each session stands, by its last live row: ``complete``, ``interrupted``, ``error`` or ``empty``."""
        inner = _MESSAGES.alias("inner_rows")
        last = (
            sa.select(inner.c.id)
            .where(Equals(inner.c.session_id, SESSIONS.c.id), sa.literal_column("inner_rows.active"))
            .order_by(inner.c.session_id.desc(), inner.c.id.desc())
            .limit(1)
            .correlate(SESSIONS)
        )
        columns = (_MESSAGES.c.role, _MESSAGES.c.finish_reason, _MESSAGES.c.tool_calls)
        stmt = sa.select(SESSIONS.c.id, SESSIONS.c.end_reason, *columns).outerjoin_from(
            SESSIONS,
            _MESSAGES,
            sa.and_(_MESSAGES.c.session_id == SESSIONS.c.id, _MESSAGES.c.id == last.scalar_subquery()),
        )
        found = self._of(session_ids, stmt)
        return {row[0]: _status(*row[1:]) for row in found}

    def last_message_times(self, session_ids: Iterable[Any]) -> dict[str, dict[str, float | None]]:
        """When the user and the assistant last spoke in each session, live rows only."""

        def newest(role: str) -> sa.ScalarSelect[Any]:
            stmt = sa.select(_MESSAGES.c.timestamp).where(
                Equals(_MESSAGES.c.session_id, SESSIONS.c.id), rows.ACTIVE, _MESSAGES.c.role == role
            )
            ordered = stmt.order_by(_MESSAGES.c.session_id.desc(), _MESSAGES.c.id.desc())
            return ordered.limit(1).scalar_subquery()

        found = self._of(session_ids, sa.select(SESSIONS.c.id, newest("user"), newest("assistant")))
        return {session_id: {"user": user, "assistant": assistant} for session_id, user, assistant in found}

    def _of(self, session_ids: Iterable[Any], stmt: sa.Select[Any]) -> Any:
        if isinstance(session_ids, (str, bytes)) or not isinstance(session_ids, Iterable):
            raise InvalidArgumentError("session_ids", "it must be a list of ids")
        wanted = [each for each in session_ids if is_usable_id(each)]
        stmt = stmt.where(self._operations.is_any_of(SESSIONS.c.id, "wanted", wanted))
        with self._transaction.verb() as conn:
            return conn.execute(stmt).all()

    def _set(self, session_id: str, condition: sa.ColumnElement[bool], **values: Any) -> bool:
        with self._transaction.verb() as conn:
            if not is_usable_id(session_id):
                return False
            is_session = SESSIONS.c.id == session_id
            conn.execute(sa.update(SESSIONS).where(is_session, condition).values(**values))
            return conn.execute(sa.select(SESSIONS.c.id).where(is_session)).first() is not None


def _status(end_reason: Any, role: Any, finish_reason: Any, tool_calls: Any) -> str:
    if role is None:
        return "empty"
    if "error" in (finish_reason, end_reason):
        return "error"
    return "complete" if role == "assistant" and tool_calls in (None, "[]") else "interrupted"


def _moment(argument: str, value: Any) -> float:
    if value is None:
        return time.time()
    try:
        return epoch_seconds(value)
    except UnfitValueError as error:
        raise InvalidArgumentError(argument, str(error)) from error
