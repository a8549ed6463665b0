"""Marks of deletions that go in parts: notes that stand from the first part to the last (issue 6, item 4).

Whoever is stopped in between leaves sessions that are hidden and hold only their newest messages. The mark tells so, and how many
messages there were, by which a later run judges. It counts as long as the session stays hidden: who shows it again keeps what is left.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection

import sqlalchemy as sa

from hermes_state.models import MetaRow
from hermes_state.repositories.base import Transaction, starts_with, table_of
from hermes_state.repositories.session_placing import SESSIONS

_META = table_of(MetaRow)
_PREFIX = "deleting:"


def begin(transaction: Transaction, session_ids: Collection[str]) -> None:
    """Marks the sessions, with the live messages that they hold now; whoever is marked already stays so."""
    conn, operations = transaction.conn, transaction.operations
    known = begun(transaction, session_ids)
    is_new = operations.is_any_of(
        SESSIONS.c.id, "wanted", [each for each in session_ids if each not in known]
    )
    counts = conn.execute(sa.select(SESSIONS.c.id, SESSIONS.c.message_count).where(is_new)).all()
    stmt = operations.insert(_META)
    stmt = stmt.on_conflict_do_update(index_elements=["key"], set_={"value": stmt.excluded.value})
    if counts:
        marks = [{"key": _key(each), "value": f"{number} {each}"} for each, number in counts]
        conn.execute(stmt, marks)


def end(transaction: Transaction, session_ids: Collection[str]) -> None:
    """Takes the marks of these sessions away."""
    keys = [_key(each) for each in session_ids]
    is_mark = transaction.operations.is_any_of(_META.c.key, "keys", keys)
    transaction.conn.execute(sa.delete(_META).where(is_mark))


def begun(transaction: Transaction, session_ids: Collection[str] | None = None) -> dict[str, int]:
    """The marked ones of these sessions, or all: the live messages that each held before."""
    if session_ids is None:
        is_mark = starts_with(_META.c.key, _PREFIX)
    else:
        keys = [_key(each) for each in session_ids]
        is_mark = transaction.operations.is_any_of(_META.c.key, "keys", keys)
    notes = transaction.conn.execute(sa.select(_META.c.key, _META.c.value).where(is_mark))
    marked = dict(mark for key, value in notes if (mark := _read(key, value)) is not None)
    if not marked:
        return {}
    is_marked = transaction.operations.is_any_of(SESSIONS.c.id, "wanted", marked)
    hidden = transaction.conn.scalars(sa.select(SESSIONS.c.id).where(is_marked, SESSIONS.c.hidden))
    return {each: marked[each] for each in hidden}


def _key(session_id: str) -> str:
    # Not the id itself: with the prefix it could be longer than a key may be.
    return _PREFIX + hashlib.sha256(session_id.encode()).hexdigest()


def _read(key: str, value: str | None) -> tuple[str, int] | None:
    number, _, session_id = (value or "").partition(" ")
    is_whole = number.isascii() and number.isdigit() and len(number) < 19
    return (session_id, int(number)) if is_whole and key == _key(session_id) else None
