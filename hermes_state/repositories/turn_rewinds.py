"""Taking back a turn that is named by its number, as a person counts questions (known store, section 2.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import sqlalchemy as sa

from hermes_state.codec import PLACE
from hermes_state.errors import InvalidArgumentError, RewindConflictError
from hermes_state.records import RewindResult
from hermes_state.repositories import rows
from hermes_state.repositories.message_views import HIDDEN
from hermes_state.repositories.message_writes import Holders
from hermes_state.repositories.rewinding import MessageRewinds

_MESSAGES = rows.MESSAGES
_COLUMNS = ("id", "content", "content_parts")


class TurnRewinds(MessageRewinds):
    """Rewinding by number. The number is looked up once the session row is locked."""

    def rewind_user_turn(
        self,
        session_id: str,
        ordinal: int,
        *,
        warm_history: list[Any] | None = None,
        **holders: Unpack[Holders],
    ) -> RewindResult:
        """Rewinds to the user message number ``ordinal``; see ``SessionDB.rewind_user_turn``."""
        number = _whole(ordinal)
        if warm_history is not None and not isinstance(warm_history, list):
            raise InvalidArgumentError("warm_history", "it must be the live list of message dicts")
        with self._transaction.verb() as conn:
            self.locked_for_rewriting(session_id, holders)
            skipped = number if number >= 0 else -1 - number
            stmt = self._operations.compiled(("turns.question", number < 0), lambda: _question(number < 0))
            found = stmt.execute(conn, session_id=session_id, skipped=skipped).first()
            if found is None:
                raise InvalidArgumentError(
                    "ordinal", f"session {session_id!r} has no active user message {ordinal}"
                )
            cut = None if warm_history is None else self._place(session_id, warm_history, ordinal, found)
            result = self.rewind(session_id, found.id, **holders)
        if warm_history is not None:
            self._transaction.after_commit.append(lambda: warm_history.__delitem__(slice(cut, None)))
        return result

    def _place(self, session_id: str, history: list[Any], ordinal: int, found: Any) -> int:
        """Where the question stands in the live list: by its row id, else by number and content."""
        questions = []
        for place, message in enumerate(history):
            if not isinstance(message, Mapping):
                continue
            if message.get("_row_id") == found.id:
                return place
            if message.get("role") == "user" and message.get("display_kind") != HIDDEN:
                questions.append(place)
        if -len(questions) <= ordinal < len(questions):
            place = questions[ordinal]
            message = history[place]
            (row,) = self.encode(session_id, [{"role": "user", "content": message.get("content")}])
            stored = [row.values[PLACE[name]] for name in _COLUMNS[1:]]
            if message.get("_row_id") is None and stored == [*found[1:]]:
                return place
        raise RewindConflictError(session_id, f"message {found.id} is not in the live list")


def _whole(ordinal: Any) -> int:
    if isinstance(ordinal, bool) or not isinstance(ordinal, int) or not -(2**63) <= ordinal < 2**63:
        raise InvalidArgumentError("ordinal", "it must be a whole number")
    return ordinal


def _question(from_end: bool) -> sa.Executable:
    conditions = (rows.ACTIVE, _MESSAGES.c.role == "user", _MESSAGES.c.display_kind.is_distinct_from(HIDDEN))
    found = (rows.newest if from_end else rows.select)(*conditions, columns=_COLUMNS)
    return found.offset(sa.bindparam("skipped", type_=sa.BigInteger)).limit(sa.literal_column("1"))
