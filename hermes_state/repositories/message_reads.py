"""Reading the messages of a session, always in insertion order (by id, never by timestamp)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import sqlalchemy as sa

from hermes_state.alternation import repaired
from hermes_state.decoding import (
    CONVERSATION_COLUMNS,
    PLACED_CONVERSATION_COLUMNS,
    decode_conversation,
    decode_persisted,
    decode_row,
)
from hermes_state.errors import InvalidArgumentError
from hermes_state.records import ConversationMessage, MessageRecord
from hermes_state.repositories import rows
from hermes_state.repositories.base import require_count
from hermes_state.repositories.message_lookups import MessageLookups
from hermes_state.text import is_usable_id

_MESSAGES = rows.MESSAGES
_SESSION = PLACED_CONVERSATION_COLUMNS.index("session_id")
_UID = PLACED_CONVERSATION_COLUMNS.index("message_uid")
_BOUNDS = {"after_id": _MESSAGES.c.id.__gt__, "before_id": _MESSAGES.c.id.__lt__}


class MessageReads(MessageLookups):
    """Whole transcripts and pages of them; an unknown session gives ``[]``."""

    def get(
        self,
        session_id: str,
        include_inactive: bool = False,
        after_id: int | None = None,
        limit: int | None = None,
        *,
        before_id: int | None = None,
        latest: bool = False,
        include_compacted: bool = False,
        offset: int = 0,
    ) -> list[MessageRecord]:
        """Whole rows in insertion order, the active ones; a page of them by keyset or by offset.

        ``after_id``: only ids above it, the first ``limit``. ``before_id``: only ids below it, the last ``limit`` unless
        ``after_id`` is given too. ``latest``: the last ``limit``. A page always comes oldest first (field report G6).
        ``include_compacted`` adds the rows that were summarised away, so that each message comes once: what a compaction
        carried on is its live row. ``include_inactive`` adds also what was rewound. ``offset`` skips rows, from the end
        with ``latest``. Raises ``InvalidArgumentError`` for ``latest`` or ``offset`` with an id it contradicts, and for what is no
        count.
        """
        if latest and after_id is not None:
            raise InvalidArgumentError(
                "latest", "a page starts after after_id or ends at the latest row, not both"
            )
        if require_count("offset", offset):
            if after_id is not None or before_id is not None:
                raise InvalidArgumentError("offset", "a page starts at an offset or at an id, not both")
            limit = 2**63 - 1 if limit is None else limit
        from_end = limit is not None and (latest or (before_id is not None and after_id is None))
        bounds = {"after_id": after_id, "before_id": before_id}
        states = _states(include_inactive, include_compacted)
        found = self._page(session_id, states, bounds, (limit, offset), from_end)
        return [decode_row(row) for row in (reversed(found) if from_end else found)]

    def conversation(
        self,
        session_ids: Sequence[str],
        *,
        include_inactive: bool = False,
        include_row_ids: bool = False,
        repair_alternation: bool = False,
        stamped: bool = False,
        include_compacted: bool = False,
    ) -> list[ConversationMessage]:
        """The messages as they are sent to a model, session after session, in insertion order.

        Of several sessions a message that the later one carries on comes once, there, and so does a user text repeated before any
        answer (CONTRACT.md section 2); with ``include_inactive`` every row comes. One statement, two for several sessions.
        ``include_compacted`` adds what was summarised away.
        ``include_row_ids`` adds ``_row_id``. ``stamped`` stamps each dict as the flusher does, so that it is not
        written again. ``repair_alternation``: see ``hermes_state.alternation.repaired``.
        """
        states = _states(include_inactive, include_compacted)
        found = self._conversation_rows(session_ids, states)
        if not include_inactive:
            found = self.each_once(session_ids, found)
        if stamped:
            messages = [decode_persisted(row) for row in found]
        else:
            width = len(CONVERSATION_COLUMNS)
            messages = [decode_conversation(row[:width]) for row in found]
            if include_row_ids:
                for message, row in zip(messages, found, strict=True):
                    cast("dict[str, Any]", message)["_row_id"] = row[0]
        if len(session_ids) > 1:
            messages = without_repeated_questions(messages)
        return repaired(messages) if repair_alternation else messages

    def each_once(self, session_ids: Sequence[str], found: Sequence[rows.Row]) -> Sequence[rows.Row]:
        """The rows (in ``PLACED_CONVERSATION_COLUMNS``) without those that a later one of the sessions carries on.

        A continuation begins with copies, which keep their uids; one that was taken back there is gone here too.
        """
        if len(session_ids) < 2:
            return found
        place = {session_id: number for number, session_id in enumerate(session_ids)}
        stmt = self._operations.compiled("messages.taken_back", self._taken_back)
        with self._transaction.verb() as conn:
            if not found:
                return found
            taken_back = stmt.execute(conn, wanted=self._operations.list_value(session_ids)).fetchall()
        last: dict[str, int] = {}
        for session_id, uid in (*taken_back, *((row[_SESSION], row[_UID]) for row in found)):
            last[uid] = max(last.get(uid, 0), place[session_id])
        return [row for row in found if last[row[_UID]] == place[row[_SESSION]]]

    def _taken_back(self) -> sa.Executable:
        is_wanted = self._operations.is_any_of(_MESSAGES.c.session_id, "wanted")
        columns = (_MESSAGES.c.session_id, _MESSAGES.c.message_uid)
        return sa.select(*columns).where(is_wanted, ~rows.VISIBLE, _MESSAGES.c.superseded_by.is_(None))

    def _page(
        self,
        session_id: str,
        states: Sequence[sa.ColumnElement[bool]],
        bounds: dict[str, int | None],
        limit_and_offset: tuple[int | None, int],
        from_end: bool,
    ) -> list[rows.Row]:
        """Rows between the bounds; ``from_end`` has them newest first."""
        values = {name: require_count(name, bound) for name, bound in bounds.items() if bound is not None}
        limit, offset = limit_and_offset
        if limit is not None:
            values["at_most"] = require_count("limit", limit)
        if offset:
            values["skipped"] = offset

        def build() -> sa.Executable:
            inside = [
                _BOUNDS[name](sa.bindparam(name, type_=sa.BigInteger)) for name in bounds if name in values
            ]
            stmt = (rows.newest if from_end else rows.select)(*states, *inside)
            if limit is not None:
                stmt = stmt.limit(sa.bindparam("at_most", type_=sa.BigInteger))
            return stmt.offset(sa.bindparam("skipped", type_=sa.BigInteger)) if offset else stmt

        with self._transaction.verb() as conn:
            if not is_usable_id(session_id):
                return []
            key = ("messages.page", tuple(map(str, states)), tuple(sorted(values)), from_end)
            stmt = self._operations.compiled(key, build)
            return list(stmt.execute(conn, session_id=session_id, **values))

    def _conversation_rows(
        self, session_ids: Sequence[str], states: Sequence[sa.ColumnElement[bool]]
    ) -> Sequence[rows.Row]:
        columns = [_MESSAGES.c[name] for name in PLACED_CONVERSATION_COLUMNS]

        def build() -> sa.Executable:
            if len(session_ids) == 1:
                return rows.select(*states, columns=PLACED_CONVERSATION_COLUMNS)
            is_wanted = self._operations.is_any_of(_MESSAGES.c.session_id, "wanted")
            return sa.select(*columns).where(is_wanted, *states)

        with self._transaction.verb() as conn:
            if not all(map(is_usable_id, session_ids)):
                return []
            is_single = len(session_ids) == 1
            key = ("messages.conversation", tuple(map(str, states)), is_single)
            stmt = self._operations.compiled(key, build)
            if is_single:
                return list(stmt.execute(conn, session_id=session_ids[0]))
            found = list(stmt.execute(conn, wanted=self._operations.list_value(session_ids)))
        place = {session_id: number for number, session_id in enumerate(session_ids)}
        return sorted(found, key=lambda row: (place[row[_SESSION]], row[0]))


def _states(include_inactive: bool, include_compacted: bool = False) -> list[sa.ColumnElement[bool]]:
    if include_inactive:
        return []
    return [rows.VISIBLE] if include_compacted else [rows.ACTIVE]


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
