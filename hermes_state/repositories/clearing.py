"""Deleting messages of a session for good (issue 3, item 1; known-store.md 2.3)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any, Unpack

import sqlalchemy as sa

from hermes_state.codec import epoch_seconds
from hermes_state.errors import InvalidArgumentError
from hermes_state.json_values import UnfitValueError
from hermes_state.repositories import rows
from hermes_state.repositories.base import require_count
from hermes_state.repositories.counters import SessionCounters
from hermes_state.repositories.leases import LeaseRepository
from hermes_state.repositories.message_writes import Holders, MessageWrites
from hermes_state.text import is_usable_id
from hermes_state.types import Equals

_MESSAGES = rows.MESSAGES


class MessageClearing(MessageWrites):
    """Deleting. An unknown session holds nothing to delete; one closed by compression may be cleared."""

    def clear(
        self,
        session_id: str,
        keep_last_n: int | None = None,
        before_timestamp: float | dt.datetime | None = None,
        **holders: Unpack[Holders],
    ) -> int:
        """Deletes the rows of the session, whatever their state; returns their number.

        ``keep_last_n`` spares that many of its newest active rows (by id), ``before_timestamp`` (epoch seconds or a
        datetime) every row of that time or later; both together spare what either spares.
        """
        conditions: list[sa.ColumnElement[bool]] = []
        values: dict[str, Any] = {}
        if keep_last_n is not None:
            conditions.append(_MESSAGES.c.id.not_in(_newest_active()))
            values["kept"] = require_count("keep_last_n", keep_last_n)
        if before_timestamp is not None:
            conditions.append(_MESSAGES.c.timestamp < sa.bindparam("before", type_=sa.Double))
            values["before"] = _moment(before_timestamp)
        return self._delete(session_id, ("clearing", *values), conditions, values, holders)

    def delete(self, session_id: str, ids: Iterable[int], **holders: Unpack[Holders]) -> int:
        """Deletes the rows of the session among ``ids``, any number of them; returns how many there were."""
        # Ids that no row can have would not fit the parameter.
        known = {row_id for row_id in map(_row_id, ids) if 0 < row_id < 2**63}
        condition = self._operations.is_any_of(_MESSAGES.c.id, "wanted")
        values = {"wanted": self._operations.list_value(sorted(known))}
        return self._delete(session_id, ("clearing", "ids"), [condition], values, holders)

    def _delete(
        self,
        session_id: str,
        key: Any,
        conditions: list[sa.ColumnElement[bool]],
        values: dict[str, Any],
        holders: Holders,
    ) -> int:
        with self._transaction.verb() as conn:
            if not is_usable_id(session_id):
                return 0
            counters = SessionCounters(conn, self._operations, session_id)
            # First of all: an append that commits in between would leave active rows that the counters miss.
            if not counters.lock_if_there():
                return 0
            LeaseRepository(self._transaction).check_rewriting(session_id, **holders)
            stmt = self._operations.compiled(
                key, lambda: sa.delete(_MESSAGES).where(rows.OF_SESSION, *conditions)
            )
            gone = stmt.execute(conn, session_id=session_id, **values).rowcount
            if gone:
                counters.recount()
        return gone


def _newest_active() -> sa.Select[Any]:
    kept = sa.alias(_MESSAGES, "kept_rows")
    of_session = Equals(kept.c.session_id, sa.bindparam("session_id", type_=kept.c.session_id.type))
    newest = sa.select(kept.c.id).where(of_session, sa.literal_column("kept_rows.active"))
    return newest.order_by(kept.c.session_id.desc(), kept.c.id.desc()).limit(
        sa.bindparam("kept", type_=sa.BigInteger)
    )


def _moment(value: Any) -> float:
    try:
        return epoch_seconds(value)
    except UnfitValueError as error:
        raise InvalidArgumentError("before_timestamp", str(error)) from error


def _row_id(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgumentError("ids", f"{value!r} is no row id")
    return value
