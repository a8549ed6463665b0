"""The history of a conversation as a person sees it: each message once, over compactions and continuations.

A compaction in place leaves one visible row of a message that it carries on. A continuation begins with copies of the
last messages before it, which keep their uids: then the copy is shown, where the conversation goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from hermes_state.alternation import repaired
from hermes_state.decoding import PERSISTED_MARKER, PLACED_CONVERSATION_COLUMNS, decode_persisted
from hermes_state.records import ConversationMessage, ResumeConversations
from hermes_state.repositories import rows
from hermes_state.repositories.message_reads import without_repeated_questions
from hermes_state.repositories.message_views import HIDDEN, MessageViews
from hermes_state.text import is_usable_id

_MESSAGES = rows.MESSAGES
_COLUMNS = (*PLACED_CONVERSATION_COLUMNS, "active")
_ID, _ACTIVE = _COLUMNS.index("id"), _COLUMNS.index("active")
_SESSION = _COLUMNS.index("session_id")
_KIND = _COLUMNS.index("display_kind")


class MessageDisplays(MessageViews):
    """Reads over the sessions of a lineage, first session first; unknown ones give nothing."""

    def resume(self, session_ids: Sequence[str], *, repair_alternation: bool = False) -> ResumeConversations:
        """What the model is sent of the last session, and what is shown of all of them; read once.

        Every dict is stamped, as ``conversation(..., stamped=True)`` does.
        """
        found = self._visible_rows(session_ids)
        model = [
            decode_persisted(row[:-1]) for row in found if row[_ACTIVE] and row[_SESSION] == session_ids[-1]
        ]
        return ResumeConversations(
            repaired(model) if repair_alternation else model, self._display(session_ids, found)
        )

    def display_prefix(self, session_ids: Sequence[str]) -> list[ConversationMessage]:
        """What ``resume`` shows of the sessions before the last one."""
        if len(session_ids) < 2:
            return []
        shown = self._display(session_ids, self._visible_rows(session_ids))
        own: dict[str, Any] = {PERSISTED_MARKER: session_ids[-1]}
        return [message for message in shown if not own.items() <= message.items()]

    def _display(self, session_ids: Sequence[str], found: Sequence[rows.Row]) -> list[ConversationMessage]:
        shown = [row for row in self.each_once(session_ids, found) if row[_KIND] != HIDDEN]
        messages = [decode_persisted(row[:-1]) for row in shown]
        return without_repeated_questions(messages) if len(session_ids) > 1 else messages

    def _visible_rows(self, session_ids: Sequence[str]) -> list[rows.Row]:
        stmt = self._operations.compiled("displays.rows", self._visible)
        with self._transaction.verb() as conn:
            if not all(map(is_usable_id, session_ids)):
                return []
            found = stmt.execute(conn, wanted=self._operations.list_value(session_ids)).fetchall()
        place = {session_id: number for number, session_id in enumerate(session_ids)}
        return sorted(found, key=lambda row: (place[row[_SESSION]], row[_ID]))

    def _visible(self) -> sa.Executable:
        columns = [_MESSAGES.c[name] for name in _COLUMNS]
        is_wanted = self._operations.is_any_of(_MESSAGES.c.session_id, "wanted")
        return sa.select(*columns).where(is_wanted, rows.VISIBLE)
