"""Statements on the rows of one session, compiled once; values as the driver gives and takes them.

Every statement names the session, so that the store can be distributed by session (DESIGN.md, decision 10).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from hermes_state.codec import MESSAGE_COLUMNS, EncodedMessage
from hermes_state.decoding import READ_COLUMNS
from hermes_state.errors import InvalidArgumentError
from hermes_state.models import MessageRow
from hermes_state.repositories.base import Transaction, table_of
from hermes_state.types import Equals

MESSAGES = table_of(MessageRow)
OF_SESSION = MESSAGES.c.session_id == sa.bindparam("session_id")
# Whatever orders rows or takes the first or last of them is made of these three, never of OF_SESSION; see Equals.
_IN_ORDER = Equals(MESSAGES.c.session_id, sa.bindparam("session_id", type_=MESSAGES.c.session_id.type))
OLDEST_FIRST = (MESSAGES.c.session_id, MESSAGES.c.id)
NEWEST_FIRST = (MESSAGES.c.session_id.desc(), MESSAGES.c.id.desc())
# The bare column, as in the partial indices: SQLite does not see that ``active = 1`` means the same.
ACTIVE: sa.ColumnElement[bool] = sa.literal_column("messages.active")
# What a display shows: the live rows and those that were summarised away, never what the user took back.
VISIBLE = sa.or_(ACTIVE, MESSAGES.c.compacted)
_UID = READ_COLUMNS.index("message_uid")
_KEPT_ON_UPDATE = ("session_id", "message_uid", "active", "compacted")

Row = Any  # one stored row: a sequence of values in READ_COLUMNS order


def select(*conditions: sa.ColumnElement[bool], columns: Sequence[str] = READ_COLUMNS) -> sa.Select[Any]:
    """Rows of the session, whole ones if not asked otherwise, oldest first (by id, never by timestamp)."""
    return (
        sa.select(*[MESSAGES.c[name] for name in columns])
        .where(_IN_ORDER, *conditions)
        .order_by(*OLDEST_FIRST)
    )


def newest(*conditions: sa.ColumnElement[bool], columns: Sequence[str] = READ_COLUMNS) -> sa.Select[Any]:
    """As ``select``, newest first."""
    return select(*conditions, columns=columns).order_by(None).order_by(*NEWEST_FIRST)


def active_by_id(transaction: Transaction, session_id: str, ids: Iterable[Any]) -> dict[int, Row]:
    """The active rows among ``ids``, by id."""
    return {row[0]: row for row in _matching(transaction, session_id, "id", ids, only_active=True)}


def active_by_platform_id(transaction: Transaction, session_id: str, ids: Iterable[str]) -> list[Row]:
    """The active rows with one of the platform ids, oldest first."""
    return _matching(transaction, session_id, "platform_message_id", ids, only_active=True)


def by_uid(transaction: Transaction, session_id: str, uids: Iterable[str]) -> dict[str, Row]:
    """The rows with one of the uids, whatever their state, by uid."""
    return {
        row[_UID]: row for row in _matching(transaction, session_id, "message_uid", uids, only_active=False)
    }


def present(transaction: Transaction, session_id: str, row_id: int) -> sa.Row[Any] | None:
    """``id`` and ``compacted`` of the row that carries the message on now: itself, or the last of its successors.

    ``None`` when the session has no such row: it never had it, it was deleted, or the message went to another session.
    """
    stmt = transaction.operations.compiled("rows.present", _state)
    seen: set[int] = set()
    while True:
        row = stmt.execute(transaction.conn, session_id=session_id, row_id=row_id).first()
        if row is None or row.superseded_by is None or row.superseded_by in seen:
            return row
        seen.add(row_id)
        row_id = row.superseded_by


def may_be_id(argument: str, value: Any) -> bool:
    """Whether ``value`` lies among the row ids; ``InvalidArgumentError`` when it is no whole number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgumentError(argument, "it must be a row id")
    return 0 < value < 2**63


def rewound_ids(transaction: Transaction, session_id: str, ids: Iterable[int]) -> set[int]:
    """Those of ``ids`` whose rows were taken back and are carried on nowhere."""

    def build() -> sa.Executable:
        matches = transaction.operations.is_any_of(MESSAGES.c.id, "wanted")
        return _unordered(matches, ~VISIBLE, MESSAGES.c.superseded_by.is_(None), columns=("id",))

    stmt = transaction.operations.compiled("rows.rewound", build)
    wanted = transaction.operations.list_value(ids)
    return {row[0] for row in stmt.execute(transaction.conn, session_id=session_id, wanted=wanted)}


def update(transaction: Transaction, session_id: str, changed: dict[int, EncodedMessage]) -> None:
    """Rewrites rows of the session, by row id, as one statement of the driver; state, session and uid stay."""
    names = [name for name in MESSAGE_COLUMNS if name not in _KEPT_ON_UPDATE]
    stmt = transaction.operations.compiled("rows.update", lambda: _update(names))
    places = [MESSAGE_COLUMNS.index(name) for name in names]
    stmt.execute_many(
        transaction.conn,
        [
            {"row_id": row_id, "session_id": session_id}
            | {f"new_{name}": message.values[place] for name, place in zip(names, places, strict=True)}
            for row_id, message in changed.items()
        ],
    )


def _state() -> sa.Executable:
    columns = (MESSAGES.c.id, MESSAGES.c.compacted, MESSAGES.c.superseded_by)
    return sa.select(*columns).where(OF_SESSION, MESSAGES.c.id == sa.bindparam("row_id"))


def _unordered(*conditions: sa.ColumnElement[bool], columns: Sequence[str] = READ_COLUMNS) -> sa.Select[Any]:
    return sa.select(*[MESSAGES.c[name] for name in columns]).where(OF_SESSION, *conditions)


def _matching(
    transaction: Transaction, session_id: str, name: str, values: Iterable[Any], *, only_active: bool
) -> list[Row]:
    def build() -> sa.Executable:
        matches = transaction.operations.is_any_of(MESSAGES.c[name], "wanted")
        # Ordered by id, SQLite would rather read the whole session through another index; few rows come back.
        return _unordered(matches, ACTIVE) if only_active else _unordered(matches)

    stmt = transaction.operations.compiled(("rows.matching", name, only_active), build)
    wanted = transaction.operations.list_value(values)
    found = stmt.execute(transaction.conn, session_id=session_id, wanted=wanted)
    return sorted(found, key=lambda row: row[0])


def _update(names: list[str]) -> sa.Executable:
    values = {name: sa.bindparam(f"new_{name}", type_=MESSAGES.c[name].type) for name in names}
    return sa.update(MESSAGES).where(OF_SESSION, MESSAGES.c.id == sa.bindparam("row_id")).values(values)
