"""Taking messages back and bringing them back: only the state of rows changes (issue 3, item 1; known-store.md 2.3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Unpack

import sqlalchemy as sa

from hermes_state.decoding import decode_row
from hermes_state.errors import InvalidArgumentError, RewindConflictError
from hermes_state.records import MessageRecord, RewindResult
from hermes_state.repositories import rows
from hermes_state.repositories.base import require_count
from hermes_state.repositories.message_writes import Holders, MessageWrites

_MESSAGES = rows.MESSAGES
_ID = _MESSAGES.c.id


class MessageRewinds(MessageWrites):
    """Rewinding and restoring. The session row is locked first, so that two rewinds at once share no row (field report I4)."""

    def rewind(
        self,
        session_id: str,
        target_message_id: int,
        *,
        expected_active_ids: Iterable[int] | None = None,
        **holders: Unpack[Holders],
    ) -> RewindResult:
        """Makes the active rows from the user's message ``target_message_id`` on rewound, itself included.

        Returns how many there were, the target as it stood, and the id of the last row that is still active. Raises
        ``InvalidArgumentError`` for a target that is no user's message of this session, and ``RewindConflictError`` when
        the active rows are not those of ``expected_active_ids``. A target that a compaction has carried on stands for the
        row that carries it; one that was summarised away, or that went to another session, is a ``RewindConflictError``:
        everything behind it, the summary too, would go.
        """
        target_id = require_count("target_message_id", target_message_id)
        expected = None if expected_active_ids is None else sorted(expected_active_ids)
        with self._transaction.verb():
            counters = self.locked_for_rewriting(session_id, holders)
            target = self._target(session_id, target_id)
            if expected is not None and expected != self._active_ids(session_id):
                raise RewindConflictError(session_id, "its active messages are not the expected ones")
            rewound = self._rewind_from(session_id, target["id"])
            counters.recount(rewinds=1)
            head = self._ids("rewinding.head", _newest_active, session_id)
        return RewindResult(
            rewound_count=rewound, target_message=target, new_head_id=head[0] if head else None
        )

    def restore_rewound(self, session_id: str, since_message_id: int, **holders: Unpack[Holders]) -> int:
        """Makes the rewound rows from the id ``since_message_id`` on active again; returns their number.

        Compacted rows stay as they are. So do originals that a compaction carried on, and messages of a platform that
        were sent again meanwhile: their copy is the live one (field report E3).
        """
        since = require_count("since_message_id", since_message_id)
        with self._transaction.verb() as conn:
            counters = self.locked_for_rewriting(session_id, holders)
            restored = self._ids("rewinding.restore", _restore, session_id, row_id=since)
            if restored:
                counters.recount()
                self._operations.strip_shadowed_checkpoints(conn, session_id)
        return len(restored)

    def _target(self, session_id: str, row_id: int) -> MessageRecord:
        present = rows.present(self._transaction, session_id, row_id)
        target = self._row(session_id, row_id if present is None else present.id)
        if target is None:
            raise InvalidArgumentError("target_message_id", f"session {session_id!r} has no message {row_id}")
        if target["role"] != "user":
            raise InvalidArgumentError("target_message_id", f"message {row_id} is not a user's")
        if present is None:
            raise RewindConflictError(
                session_id, f"message {row_id} went on elsewhere and is no longer in this session"
            )
        if present.compacted:
            raise RewindConflictError(session_id, f"message {row_id} was summarised away")
        return target

    def _row(self, session_id: str, row_id: int) -> MessageRecord | None:
        stmt = self._operations.compiled(
            "rewinding.target", lambda: rows.select(sa.bindparam("row_id") == _ID)
        )
        row = stmt.execute(self._transaction.conn, session_id=session_id, row_id=row_id).first()
        return None if row is None else decode_row(row)

    def _active_ids(self, session_id: str) -> list[int]:
        return self._ids("rewinding.active", lambda: rows.select(rows.ACTIVE, columns=("id",)), session_id)

    def _rewind_from(self, session_id: str, row_id: int) -> int:
        return len(self._ids("rewinding.rewind", _rewind, session_id, row_id=row_id))

    def _ids(self, key: str, build: Any, session_id: str, **values: Any) -> list[int]:
        stmt = self._operations.compiled(key, build)
        return [row[0] for row in stmt.execute(self._transaction.conn, session_id=session_id, **values)]


def _rewind() -> sa.Executable:
    stmt = sa.update(_MESSAGES).where(rows.OF_SESSION, rows.ACTIVE, sa.bindparam("row_id") <= _ID)
    return stmt.values(active=sa.false()).returning(_ID)


def _restore() -> sa.Executable:
    other = _MESSAGES.alias("other")
    is_live_copy = sa.or_(
        sa.literal_column("other.active"),
        sa.and_(_is_restorable(other), other.c.id > _ID),
    )
    sent_again = sa.exists().where(
        other.c.session_id == sa.bindparam("session_id"),
        other.c.platform_message_id == _MESSAGES.c.platform_message_id,
        other.c.role == _MESSAGES.c.role,
        other.c.content.is_not_distinct_from(_MESSAGES.c.content),
        is_live_copy,
    )
    stmt = sa.update(_MESSAGES).where(rows.OF_SESSION, _is_restorable(_MESSAGES), ~sent_again)
    return stmt.values(active=sa.true()).returning(_ID)


def _is_restorable(row: sa.FromClause) -> sa.ColumnElement[bool]:
    return sa.and_(
        ~row.c.active, ~row.c.compacted, row.c.superseded_by.is_(None), row.c.id >= sa.bindparam("row_id")
    )


def _newest_active() -> sa.Executable:
    return rows.newest(rows.ACTIVE, columns=("id",)).limit(sa.literal_column("1"))
