"""Rewriting a transcript: the counters equal the active rows after each verb, the strip runs in each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Unpack

import sqlalchemy as sa

from hermes_state.codec import PLACE, EncodedMessage
from hermes_state.repositories import rows
from hermes_state.repositories.appending import Landed
from hermes_state.repositories.carrying import KEY_COLUMNS, message_key
from hermes_state.repositories.clearing import MessageClearing
from hermes_state.repositories.compacting import MessageCompaction
from hermes_state.repositories.message_writes import Holders, landed_row
from hermes_state.repositories.rewinding import MessageRewinds

_MESSAGES = rows.MESSAGES
_TIMESTAMP = PLACE["timestamp"]


class MessageRewrites(MessageCompaction, MessageRewinds, MessageClearing):
    """Verbs that insert new rows in the place of old ones; they raise ``SessionNotFoundError``."""

    def replace(
        self,
        session_id: str,
        messages: Sequence[Any],
        active_only: bool = False,
        *,
        archive_dropped: bool = False,
        **holders: Unpack[Holders],
    ) -> int:
        """Deletes the rows of the session, or only the active ones, and inserts ``messages``; returns their number.

        With ``archive_dropped`` nothing is deleted: see ``SessionDB.replace_messages``.
        """
        if archive_dropped:
            return self._replace_from_the_first_difference(session_id, messages, holders)
        condition = [_MESSAGES.c.active] if active_only else []
        drop = sa.delete(_MESSAGES).where(_MESSAGES.c.session_id == session_id, *condition)
        return self._rewrite(session_id, messages, drop, holders)

    def _replace_from_the_first_difference(
        self, session_id: str, messages: Sequence[Any], holders: Holders
    ) -> int:
        encoded = self.encode(session_id, messages)
        with self._transaction.verb() as conn:
            counters = self.locked_for_rewriting(session_id, holders)
            landed: list[Landed | None] = [*self._common_prefix(session_id, encoded)]
            new = encoded[len(landed) :]
            last_kept = landed_row(landed[-1]).row_id if landed else 0
            dropped = self._rewind_from(session_id, last_kept + 1)
            landed += self.insert_new(session_id, new)
            if new or dropped:
                counters.recount()
            if any(m.is_carrier for m in new):
                self._operations.strip_shadowed_checkpoints(conn, session_id)
        self.stamp_known_at_commit(messages, encoded, landed)
        return len(encoded)

    def _common_prefix(self, session_id: str, encoded: Sequence[EncodedMessage]) -> Iterator[Landed]:
        """The first active rows, as far as role, content as loaded and tool ids are those of the messages."""
        stmt = self._operations.compiled("rewrites.head", _head)
        found = stmt.execute(self._transaction.conn, session_id=session_id, wanted=len(encoded)).all()
        for row, message in zip(found, encoded, strict=False):
            if message_key(row[1:]) != message_key(message.values):
                return
            yield Landed(row[0], row[1 + _TIMESTAMP])

    def _rewrite(
        self, session_id: str, messages: Sequence[Any], make_room: sa.Executable, holders: Holders
    ) -> int:
        encoded = self.encode(session_id, messages)
        with self._transaction.verb() as conn:
            counters = self.locked_for_rewriting(session_id, holders)
            conn.execute(make_room)
            landed = self.insert_new(session_id, encoded)
            counters.set(len(encoded), sum(m.tool_call_count for m in encoded))
            if any(m.is_carrier for m in encoded):
                self._operations.strip_shadowed_checkpoints(conn, session_id)
        self.stamp_known_at_commit(messages, encoded, landed)
        return len(encoded)


def _head() -> sa.Executable:
    stmt = rows.select(rows.ACTIVE, columns=KEY_COLUMNS)
    return stmt.limit(sa.bindparam("wanted", type_=sa.BigInteger))
