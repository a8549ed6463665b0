"""Reading the messages of a session, always in insertion order (by id, never by timestamp)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from hermes_state.decoding import CONVERSATION_COLUMNS, READ_COLUMNS, decode_conversation, decode_row
from hermes_state.records import ConversationMessage, MessageRecord
from hermes_state.repositories import rows
from hermes_state.repositories.base import Repository, require_count
from hermes_state.text import is_usable_id

_MESSAGES = rows.MESSAGES


class MessageReads(Repository):
    """Reads; an unknown session gives ``[]`` or 0."""

    def get(
        self,
        session_id: str,
        include_inactive: bool = False,
        after_id: int | None = None,
        limit: int | None = None,
    ) -> list[MessageRecord]:
        """Whole rows in insertion order, active ones unless ``include_inactive``; ids above ``after_id`` only."""
        found = self._select(session_id, include_inactive, after_id, limit)
        return [decode_row(row) for row in found]

    def conversation(
        self, session_ids: Sequence[str], *, include_inactive: bool = False
    ) -> list[ConversationMessage]:
        """The messages as they are sent to a model, session after session, in insertion order.

        Of several sessions a user text repeated before any answer comes once (CONTRACT.md section 2).
        """
        found = [
            decode_conversation(row)
            for session_id in session_ids
            for row in self._select(session_id, include_inactive, columns=CONVERSATION_COLUMNS)
        ]
        return found if len(session_ids) == 1 else without_repeated_questions(found)

    def count(self, session_id: str | None = None) -> int:
        """The number of active messages of the session, or of the whole store."""
        stmt = sa.select(sa.func.count()).select_from(_MESSAGES).where(_MESSAGES.c.active)
        with self._transaction.verb() as conn:
            if session_id is not None:
                if not is_usable_id(session_id):
                    return 0
                stmt = stmt.where(_MESSAGES.c.session_id == session_id)
            return conn.scalar(stmt) or 0

    def _select(
        self,
        session_id: str,
        include_inactive: bool,
        after_id: int | None = None,
        limit: int | None = None,
        *,
        columns: tuple[str, ...] = READ_COLUMNS,
    ) -> list[rows.Row]:
        values: dict[str, Any] = {"session_id": session_id}
        conditions: list[sa.ColumnElement[bool]] = [] if include_inactive else [_MESSAGES.c.active]
        if after_id is not None:
            values["after_id"] = require_count("after_id", after_id)
            conditions.append(_MESSAGES.c.id > sa.bindparam("after_id", type_=sa.BigInteger))
        if limit is not None:
            values["at_most"] = require_count("limit", limit)

        def build() -> sa.Executable:
            stmt = rows.select(*conditions, columns=columns)
            return stmt if limit is None else stmt.limit(sa.bindparam("at_most", type_=sa.BigInteger))

        with self._transaction.verb() as conn:
            if not is_usable_id(session_id):
                return []
            key = ("messages.select", columns, include_inactive, after_id is None, limit is None)
            return list(self._operations.compiled(key, build).execute(conn, **values))


def without_repeated_questions(messages: Sequence[ConversationMessage]) -> list[ConversationMessage]:
    """``messages`` without user texts that were asked already and not answered in between."""
    kept: list[ConversationMessage] = []
    unanswered: list[Any] = []
    for message in messages:
        if message["role"] == "assistant":
            unanswered.clear()
        elif message["role"] == "user":
            if message["content"] in unanswered:
                continue
            unanswered.append(message["content"])
        kept.append(message)
    return kept
