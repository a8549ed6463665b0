"""What the compactor remembers about a session: its cool-down after a failure and its counters.

The columns stand in ``sessions``. Unknown sessions are read as ``None`` and never written (CONTRACT.md section 7).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypedDict, cast

import sqlalchemy as sa

from hermes_state.errors import InvalidArgumentError
from hermes_state.models import SessionRow
from hermes_state.repositories.base import Repository, table_of
from hermes_state.text import clean_text, exceeds, is_usable_id

_SESSIONS = table_of(SessionRow)
_COUNTERS = ("compression_fallback_streak", "compression_ineffective_count", "compression_overload_streak")
_DEADLINE = "compression_recovery_deadline"
_MOST = 2**63 - 1


class CompressionCooldown(TypedDict):
    """A running cool-down: its end in epoch seconds, how many seconds are left, and the failure's text."""

    cooldown_until: float
    remaining_seconds: float
    error: str | None


class CooldownSnapshot(NamedTuple):
    """What a session holds of a cool-down, also when it is past: its end in epoch seconds, the failure's text."""

    cooldown_until: float | None
    error: str | None


class CompressionCounters(TypedDict):
    """The compactor's counters, and the deadline of its recovery in epoch seconds."""

    compression_fallback_streak: int
    compression_ineffective_count: int
    compression_overload_streak: int
    compression_recovery_deadline: float | None


class CompressionState(Repository):
    """Cool-downs and counters inside the unit of work."""

    def record_compression_failure_cooldown(
        self, session_id: str, cooldown_until: float, error: str | None = None
    ) -> None:
        """Keeps compaction off until ``cooldown_until`` (epoch seconds); a longer deadline stays, with its error.

        Raises ``InvalidArgumentError`` for a time that is no finite number and for a text above the limit.
        """
        until = _number("cooldown_until", cooldown_until)
        text = self._checked_error(error)
        kept = _SESSIONS.c.compression_failure_cooldown_until
        values = {"compression_failure_cooldown_until": until, "compression_failure_error": text}
        self._set(session_id, values, sa.or_(kept.is_(None), kept <= until))

    def get_compression_failure_cooldown(self, session_id: str) -> CompressionCooldown | None:
        """The running cool-down, ``None`` when there is none or it is past."""
        with self._transaction.verb() as conn:
            if not is_usable_id(session_id):
                return None
            now, until = self._operations.clock(), _SESSIONS.c.compression_failure_cooldown_until
            stmt = sa.select(
                until.label("cooldown_until"),
                (until - now).label("remaining_seconds"),
                _SESSIONS.c.compression_failure_error.label("error"),
            ).where(_SESSIONS.c.id == session_id, until > now)
            row = conn.execute(stmt).mappings().first()
        return None if row is None else cast(CompressionCooldown, dict(row))

    def clear_compression_failure_cooldown(self, session_id: str) -> None:
        """Ends the cool-down and forgets its error."""
        self._set(session_id, {"compression_failure_cooldown_until": None, "compression_failure_error": None})

    def snapshot_compression_failure_cooldown(self, session_id: str) -> CooldownSnapshot | None:
        """The cool-down as it is stored, past or not; ``None`` for an unknown session."""
        columns = (_SESSIONS.c.compression_failure_cooldown_until, _SESSIONS.c.compression_failure_error)
        with self._transaction.verb() as conn:
            if not is_usable_id(session_id):
                return None
            row = conn.execute(sa.select(*columns).where(_SESSIONS.c.id == session_id)).first()
        return None if row is None else CooldownSnapshot(*row)

    def restore_compression_failure_cooldown(self, session_id: str, snapshot: CooldownSnapshot) -> None:
        """Stores exactly what the snapshot holds, a shorter cool-down too: what was tried meanwhile did not take place.

        Raises ``InvalidArgumentError`` for a time that is no finite number and for a text above the limit.
        """
        until, error = snapshot
        values = {
            "compression_failure_cooldown_until": None if until is None else _number("snapshot", until),
            "compression_failure_error": self._checked_error(error),
        }
        self._set(session_id, values)

    def get_compression_counters(self, session_id: str) -> CompressionCounters | None:
        """All counters and the recovery deadline; ``None`` for an unknown session."""
        with self._transaction.verb() as conn:
            if not is_usable_id(session_id):
                return None
            columns = [_SESSIONS.c[name] for name in (*_COUNTERS, _DEADLINE)]
            row = conn.execute(sa.select(*columns).where(_SESSIONS.c.id == session_id)).mappings().first()
        return None if row is None else cast(CompressionCounters, dict(row))

    def set_compression_counter(self, session_id: str, name: str, value: float | None) -> None:
        """Sets one of ``CompressionCounters``; values below 0 become 0, ``None`` only unsets the deadline.

        Raises ``InvalidArgumentError`` for another name and for a value that is no whole number (deadline: finite).
        """
        if name == _DEADLINE:
            checked = None if value is None else max(0.0, _number("value", value))
        else:
            _require_counter(name)
            checked = min(max(0, _whole("value", value)), _MOST)
        self._set(session_id, {name: checked})

    def increment_compression_counter(self, session_id: str, name: str, by: int = 1) -> int:
        """Adds to a counter in one atomic UPDATE; returns the new value, never below 0; 0 for an unknown session.

        Raises ``InvalidArgumentError`` for what is no counter and for a ``by`` that is no 64-bit whole number.
        """
        _require_counter(name)
        if abs(_whole("by", by)) > _MOST:
            raise InvalidArgumentError("by", "it must be a 64-bit number")
        column = _SESSIONS.c[name]
        # Compared before adding: the sum itself must not overflow.
        limit = (column > _MOST - by, _MOST) if by > 0 else (column < -by, 0)
        stmt = (
            sa.update(_SESSIONS)
            .where(_SESSIONS.c.id == session_id)
            .values({name: sa.case(limit, else_=column + by)})
            .returning(column)
        )
        with self._transaction.verb() as conn:
            return (conn.scalar(stmt) or 0) if is_usable_id(session_id) else 0

    def _set(self, session_id: str, values: dict[str, Any], *conditions: sa.ColumnElement[bool]) -> None:
        with self._transaction.verb() as conn:
            if is_usable_id(session_id):
                conn.execute(
                    sa.update(_SESSIONS).where(_SESSIONS.c.id == session_id, *conditions).values(values)
                )

    def _checked_error(self, error: str | None) -> str | None:
        if error is None:
            return None
        if not isinstance(error, str):
            raise InvalidArgumentError("error", "it must be text")
        text = clean_text(error)
        if exceeds(text, self._transaction.max_text_bytes):
            raise InvalidArgumentError("error", f"it is longer than {self._transaction.max_text_bytes} bytes")
        return text


def _require_counter(name: str) -> None:
    if name not in _COUNTERS:
        raise InvalidArgumentError("name", f"it must be one of {', '.join(_COUNTERS)}")


def _whole(argument: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgumentError(argument, "it must be a whole number")
    return value


def _number(argument: str, value: Any) -> float:
    if not isinstance(value, bool) and isinstance(value, (int, float)):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    raise InvalidArgumentError(argument, "it must be a finite number")
