"""Sessions as plain dicts, whole or in parts (known store, section 2.11; issue 4, item 3).

An export holds every row, whatever its state, and no row ids: those are made anew by an import. Left out is what a
running program notes about itself (``RUNTIME_KEYS``): an import would not take it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import sqlalchemy as sa

from hermes_state.decoding import READ_COLUMNS, decode_row
from hermes_state.errors import InvalidArgumentError
from hermes_state.repositories import rows, satellites
from hermes_state.repositories.base import Repository, Transaction
from hermes_state.repositories.export_values import message_values, reaction_values, session_values
from hermes_state.repositories.reactions import ReactionRepository
from hermes_state.repositories.session_placing import SESSIONS
from hermes_state.repositories.session_values import optional_text
from hermes_state.repositories.sessions import SessionRepository
from hermes_state.text import is_usable_id

RUNTIME_KEYS = (
    "session_key", "chat_id", "chat_type", "thread_id", "last_activity_at", "last_activity_description",
    "last_activity_provenance", "compression_failure_cooldown_until", "compression_failure_error",
    "compression_fallback_streak", "compression_ineffective_count", "compression_overload_streak",
    "compression_recovery_deadline",
)  # fmt: skip
"""Columns of the session that belong to the program that runs it: routing, activity, the compactor's state."""

SUCCESSOR_KEY = "_superseded_by"
"""Key of an exported rewound message that a compaction carried on: session and uid of the row that carries it."""

IDS_OF_A_PAGE = 500
PART_MESSAGES = 1_000
PART_BYTES = 4 * 1024 * 1024

_MESSAGES = rows.MESSAGES
_COLUMNS = (*READ_COLUMNS, "superseded_by")
_MOST_ROWS_OF_A_PAGE = 200
_FIRST_ROWS = 20


class SessionExports(Repository):
    """Reading whole sessions."""

    def __init__(self, transaction: Transaction) -> None:
        super().__init__(transaction)
        self._sessions = SessionRepository(transaction)

    def export_session(self, session_id: str) -> dict[str, Any] | None:
        """The session's columns and, under ``messages``, all its rows in insertion order; or ``None``.

        Rows of further tables that belong to the session stand under the name of their table, if there are any.
        """
        whole: dict[str, Any] | None = None
        for part in self.export_parts(session_id):
            if whole is None:
                whole = part
            else:
                whole["messages"] += part["messages"]
        return whole

    def export_parts(self, session_id: str) -> Iterator[dict[str, Any]]:
        """``export_session`` in dicts of about 1,000 messages or 4 MiB, so that no session is too large for the memory.

        The first has the session's columns, each further one ``continues`` with the id. Nothing for an unknown id.
        """
        head = self._head(session_id)
        if head is None:
            return
        messages: list[dict[str, Any]] = []
        held = 0
        for page, page_bytes in self._pages(session_id):
            messages += page
            held += page_bytes
            if len(messages) >= PART_MESSAGES or held >= PART_BYTES:
                yield {**head, "messages": messages}
                head, messages, held = {"continues": session_id}, [], 0
        if messages or "continues" not in head:
            yield {**head, "messages": messages}

    def ids_after(self, session_id: str | None, source: str | None = None) -> list[str]:
        """The next 500 ids, by id, of all sessions or those of one source; ``None`` starts."""
        stmt = sa.select(SESSIONS.c.id).order_by(SESSIONS.c.id).limit(IDS_OF_A_PAGE)
        if session_id is not None:
            stmt = stmt.where(SESSIONS.c.id > session_id)
        if source is not None:
            stmt = stmt.where(SESSIONS.c.source == optional_text("source", source))
        with self._transaction.verb() as conn:
            return list(conn.scalars(stmt))

    def _head(self, session_id: str) -> dict[str, Any] | None:
        session = self._sessions.get(session_id)
        if session is None:
            return None
        values = session_values(cast("Mapping[str, Any]", session))
        head = {key: value for key, value in values.items() if key not in RUNTIME_KEYS}
        if reactions := ReactionRepository(self._transaction).exported(session_id):
            head["reactions"] = [reaction_values(row) for row in reactions]
        with self._transaction.verb() as conn:
            return head | satellites.exported_rows(conn, session_id)

    def _pages(self, session_id: str) -> Iterator[tuple[list[dict[str, Any]], int]]:
        """Exported messages in pages, each with its bytes; a page after large rows is shorter."""
        after, limit = -(2**63), _FIRST_ROWS
        while found := self._rows_after(session_id, after, limit):
            yield self._exported(session_id, found), (page_bytes := _text_length(found))
            if len(found) < limit:
                return
            after = found[-1][0]
            limit = min(_MOST_ROWS_OF_A_PAGE, 2 * limit, max(1, PART_BYTES * len(found) // (page_bytes + 1)))

    def _rows_after(self, session_id: str, after: int, limit: int) -> Sequence[rows.Row]:
        def build() -> sa.Executable:
            is_later = _MESSAGES.c.id > sa.bindparam("after", type_=sa.BigInteger)
            return rows.select(is_later, columns=_COLUMNS).limit(sa.bindparam("at_most", type_=sa.BigInteger))

        with self._transaction.verb() as conn:
            stmt = self._operations.compiled("exporting.rows", build)
            return stmt.execute(conn, session_id=session_id, after=after, at_most=limit).all()

    def _exported(self, session_id: str, found: Sequence[rows.Row]) -> list[dict[str, Any]]:
        successors = self._successors(session_id, {row[-1] for row in found if isinstance(row[-1], int)})
        messages = []
        for *values, superseded_by in found:
            message = message_values(cast("Mapping[str, Any]", decode_row(values)))
            del message["id"]
            if superseded_by is not None:
                message[SUCCESSOR_KEY] = successors.get(
                    superseded_by, {"session_id": None, "message_uid": None}
                )
            messages.append(message)
        return messages

    def _successors(self, session_id: str, ids: set[int]) -> Mapping[int, dict[str, str]]:
        """Session and uid of rows by id: what a compaction wrote is in the session or in one that continues it."""
        if not ids:
            return {}
        with self._transaction.verb() as conn:
            stmt = self._operations.compiled("exporting.successors", self._successors_stmt)
            wanted = self._operations.list_value(ids)
            found = stmt.execute(conn, session_id=session_id, wanted=wanted).all()
        return {row.id: {"session_id": row.session_id, "message_uid": row.message_uid} for row in found}

    def _successors_stmt(self) -> sa.Executable:
        given: sa.BindParameter[str] = sa.bindparam("session_id")
        children = sa.select(SESSIONS.c.id).where(SESSIONS.c.parent_session_id == given)
        return sa.select(_MESSAGES.c.id, _MESSAGES.c.session_id, _MESSAGES.c.message_uid).where(
            self._operations.is_any_of(_MESSAGES.c.id, "wanted"),
            sa.or_(_MESSAGES.c.session_id == given, _MESSAGES.c.session_id.in_(children)),
        )


def require_ids(session_ids: Any) -> list[str]:
    """The ids as a list; ``InvalidArgumentError`` for one text, which would be taken letter by letter."""
    if isinstance(session_ids, (str, bytes)) or not isinstance(session_ids, Iterable):
        raise InvalidArgumentError("session_ids", "it must be a list of ids")
    return [session_id for session_id in session_ids if is_usable_id(session_id)]


def _text_length(found: Sequence[rows.Row]) -> int:
    return sum(len(value) for row in found for value in row if isinstance(value, (str, bytes)))
