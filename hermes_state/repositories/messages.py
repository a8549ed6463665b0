"""Messages of a session: appending, reading, rewriting."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

import sqlalchemy as sa

from hermes_state.codec import MESSAGE_COLUMNS, EncodedMessage, encode_batch
from hermes_state.decoding import CONVERSATION_COLUMNS, READ_COLUMNS, decode_conversation, decode_row
from hermes_state.records import ConversationMessage, MessageRecord
from hermes_state.repositories import rows
from hermes_state.repositories.appending import BatchAppend, Landed
from hermes_state.repositories.base import Repository, require_count
from hermes_state.repositories.counters import SessionCounters
from hermes_state.text import is_usable_id

_UID = MESSAGE_COLUMNS.index("message_uid")
_TIMESTAMP = MESSAGE_COLUMNS.index("timestamp")
_MESSAGES = rows.MESSAGES


class MessageRepository(Repository):
    """The table ``messages``. Reads of an unknown session give ``[]`` or 0; writes raise ``SessionNotFoundError``."""

    def encode(self, session_id: str, messages: Sequence[Any]) -> list[EncodedMessage]:
        """The checked rows of ``messages``; raises ``InvalidMessageError`` before any SQL."""
        return encode_batch(
            messages, session_id=session_id, max_text_bytes=self._transaction.max_text_bytes, clock=time.time
        )

    def append_batch(
        self, session_id: str, messages: Sequence[Any], *, turn_lease_holder: str | None = None
    ) -> int:
        """Appends the messages, all or none; returns the number of rows inserted (CONTRACT.md section 3)."""
        if not messages:
            return 0
        return self.append_encoded(session_id, messages, self.encode(session_id, messages), turn_lease_holder)

    def append(self, session_id: str, role: str, content: Any = None, **keys: Any) -> int:
        """Appends one message and returns its row id, the existing one for a duplicate."""
        message = {"role": role, "content": content, **keys}
        with self._transaction.verb():
            batch = BatchAppend(self._transaction, session_id, self.encode(session_id, [message]))
            batch.run(None)
        return _landed(batch.landed[0]).row_id

    def append_encoded(
        self,
        session_id: str,
        messages: Sequence[Any],
        encoded: Sequence[EncodedMessage],
        turn_lease_holder: str | None = None,
    ) -> int:
        """Appends rows that ``encode`` made of ``messages``; the dicts are stamped once the unit has committed."""
        with self._transaction.verb():
            batch = BatchAppend(self._transaction, session_id, encoded)
            batch.run(turn_lease_holder)
        self._stamp_at_commit(messages, encoded, batch.landed)
        return batch.rows_inserted

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

    def replace(self, session_id: str, messages: Sequence[Any], active_only: bool = False) -> int:
        """Deletes the rows of the session, or only the active ones, and inserts ``messages``; returns their number."""
        condition = [_MESSAGES.c.active] if active_only else []
        drop = sa.delete(_MESSAGES).where(_MESSAGES.c.session_id == session_id, *condition)
        return self._rewrite(session_id, messages, drop)

    def archive_and_compact(self, session_id: str, compacted: Sequence[Any]) -> int:
        """Archives every active row as compacted and inserts ``compacted`` as the live ones; returns their number."""
        archive = (
            sa.update(_MESSAGES)
            .where(_MESSAGES.c.session_id == session_id, _MESSAGES.c.active)
            .values(active=False, compacted=True)
        )
        return self._rewrite(session_id, compacted, archive)

    def clear(self, session_id: str) -> int:
        """Deletes every row of the session, whatever its state; returns their number."""
        with self._transaction.verb() as conn:
            if not is_usable_id(session_id):
                return 0
            gone = conn.execute(sa.delete(_MESSAGES).where(_MESSAGES.c.session_id == session_id))
            SessionCounters(conn, self._operations, session_id).set(0, 0)
        return gone.rowcount

    def _rewrite(self, session_id: str, messages: Sequence[Any], make_room: sa.Executable) -> int:
        encoded = self.encode(session_id, messages)
        with self._transaction.verb() as conn:
            counters = SessionCounters(conn, self._operations, session_id)
            counters.lock()
            conn.execute(make_room)
            landed = self.insert_new(session_id, encoded)
            counters.set(len(encoded), sum(m.tool_call_count for m in encoded))
            if any(m.is_carrier for m in encoded):
                self._operations.strip_shadowed_checkpoints(conn, session_id)
        # A dict that knows its row learns the new one; rows that get_messages gave stay as they are.
        known = [m if isinstance(m, dict) and "_row_id" in m else None for m in messages]
        self._stamp_at_commit(known, encoded, landed)
        return len(encoded)

    def insert_new(self, session_id: str, encoded: Sequence[EncodedMessage]) -> list[Landed | None]:
        """Inserts every message as a row of its own; a uid that is taken is replaced by a new one, none is lost."""
        taken = set(rows.by_uid(self._transaction, session_id, [m.values[_UID] for m in encoded]))
        for message in encoded:
            if message.values[_UID] in taken:
                message.values[_UID] = uuid4().hex
            taken.add(message.values[_UID])
        ids = self._operations.insert_messages(
            self._transaction.conn, MESSAGE_COLUMNS, [m.values for m in encoded]
        )
        return [Landed(ids[m.values[_UID]], m.values[_TIMESTAMP]) for m in encoded]

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

    def _stamp_at_commit(
        self, messages: Sequence[Any], encoded: Sequence[EncodedMessage], landed: Sequence[Landed | None]
    ) -> None:
        self._transaction.after_commit.append(_stamper(messages, landed))
        self._transaction.outcome_unknown.append(_identifier(messages, encoded))


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


def _stamper(messages: Sequence[Any], landed: Sequence[Landed | None]) -> Callable[[], None]:
    def stamp() -> None:
        for message, place in zip(messages, landed, strict=True):
            if isinstance(message, dict):
                message["_row_id"] = _landed(place).row_id
                message["timestamp"] = _landed(place).timestamp

    return stamp


def _identifier(messages: Sequence[Any], encoded: Sequence[EncodedMessage]) -> Callable[[], None]:
    """What makes a retry safe when nobody knows whether a COMMIT took place: the dicts keep the uids of their rows."""

    def identify() -> None:
        for message, row in zip(messages, encoded, strict=True):
            if isinstance(message, dict):
                message.setdefault("_message_uid", row.values[_UID])

    return identify


def _landed(place: Landed | None) -> Landed:
    assert place is not None
    return place
