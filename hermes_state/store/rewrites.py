"""Verbs that rewrite a transcript."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hermes_state.records import RewindResult
from hermes_state.store.core import StoreCore


class RewriteVerbs(StoreCore):
    """Replacing, compacting, taking back and deleting messages.

    All verbs but the compaction refuse while somebody else is at work on the conversation: ``LeaseHeldError`` for its turn
    lease, ``SessionCompressionInProgressError`` for the session's compaction lock. Whoever holds one of them says so by
    ``turn_lease_holder`` or ``compression_lock_holder``, and is refused (``SessionTurnLeaseLostError``) when it is lost.
    """

    def replace_messages(
        self,
        session_id: str,
        messages: Sequence[Any],
        active_only: bool = False,
        *,
        archive_dropped: bool = False,
        turn_lease_holder: str | None = None,
        compression_lock_holder: str | None = None,
    ) -> int:
        """Deletes the session's rows (or only the active ones) and inserts ``messages``; returns their number.

        ``archive_dropped`` deletes nothing and touches the active rows only: as far as these begin with ``messages``
        (same role, content and tool ids) they stay with their ids, the others become rewound, and what differs is
        inserted behind them.
        """
        self._encode(session_id, messages)  # a refused message waits for no write lock
        return self._write(
            lambda uow: uow.messages.replace(
                session_id,
                messages,
                active_only,
                archive_dropped=archive_dropped,
                turn_lease_holder=turn_lease_holder,
                compression_lock_holder=compression_lock_holder,
            )
        )

    def archive_and_compact(
        self,
        session_id: str,
        compacted: Sequence[Any],
        *,
        watermark: int | None = None,
        lock_holder: str | None = None,
        tail_count: int = 0,
        carried_messages: Sequence[Any] | None = None,
        model_config_patch: Mapping[str, Any] | None = None,
    ) -> int:
        """Archives the live rows as compacted and inserts ``compacted`` as the live ones; returns the number of live rows.

        ``watermark``: the highest row id that the summary covers; live rows above it arrived meanwhile and follow the
        compacted ones as copies. ``lock_holder`` must hold the compaction lock. The last ``tail_count`` messages, and those
        among ``carried_messages``, are live rows carried on verbatim, found by ``_row_id``, uid, or role, content and tool
        ids. One whose row was rewound meanwhile is left out. Rows carried on keep their uid; their originals become rewound, so that a search finds each message once, and
        never come back. ``model_config_patch`` is merged into the session's settings; ``None`` removes a key. Repeating a
        compaction whose COMMIT was lost on the way back changes nothing.

        Raises ``SessionNotFoundError``, ``CompressionSessionClosedError``, ``SessionCompressionInProgressError`` for a lock
        that is not held, ``InvalidArgumentError`` for a watermark from the future, and ``InvalidMessageError``.
        """
        self._encode(session_id, compacted)  # a refused message waits for no write lock
        return self._write(
            lambda uow: uow.messages.archive_and_compact(
                session_id,
                compacted,
                watermark=watermark,
                lock_holder=lock_holder,
                tail_count=tail_count,
                carried_messages=carried_messages,
                model_config_patch=model_config_patch,
            )
        )

    def clear_messages(
        self,
        session_id: str,
        keep_last_n: int | None = None,
        before_timestamp: float | dt.datetime | None = None,
        *,
        turn_lease_holder: str | None = None,
        compression_lock_holder: str | None = None,
    ) -> int:
        """Deletes the rows of the session, whatever their state; returns their number.

        ``keep_last_n`` spares that many of the newest active rows, ``before_timestamp`` (epoch seconds or a datetime)
        the rows of that time or later; both together spare what either spares. 0 for an unknown session.
        """
        return self._write(
            lambda uow: uow.messages.clear(
                session_id,
                keep_last_n,
                before_timestamp,
                turn_lease_holder=turn_lease_holder,
                compression_lock_holder=compression_lock_holder,
            )
        )

    def delete_messages(
        self,
        session_id: str,
        ids: Iterable[int],
        *,
        turn_lease_holder: str | None = None,
        compression_lock_holder: str | None = None,
    ) -> int:
        """Deletes the rows of the session among ``ids``; returns how many there were. Other sessions are untouched."""
        wanted = list(ids)
        return self._write(
            lambda uow: uow.messages.delete(
                session_id,
                wanted,
                turn_lease_holder=turn_lease_holder,
                compression_lock_holder=compression_lock_holder,
            )
        )

    def rewind_to_message(
        self,
        session_id: str,
        target_message_id: int,
        *,
        expected_active_ids: Iterable[int] | None = None,
        turn_lease_holder: str | None = None,
        compression_lock_holder: str | None = None,
    ) -> RewindResult:
        """Takes back the active rows from the user's message ``target_message_id`` on, itself included.

        They are kept, hidden from context, display and search. Returns how many there were (0 when it was rewound
        before; the number of rewinds rises even then), the target as it stood, and the id of the last active row. Raises
        ``InvalidArgumentError`` for a target that is no user's message of this session, and ``RewindConflictError`` when
        ``expected_active_ids`` is given and the active rows are others. A rewind past the newest carrier leaves no
        checkpoint, so the whole history is sent again (CONTRACT.md section 4, rule 8).
        """
        expected = None if expected_active_ids is None else list(expected_active_ids)
        return self._write(
            lambda uow: uow.messages.rewind(
                session_id,
                target_message_id,
                expected_active_ids=expected,
                turn_lease_holder=turn_lease_holder,
                compression_lock_holder=compression_lock_holder,
            )
        )

    def restore_rewound(
        self,
        session_id: str,
        since_message_id: int,
        *,
        turn_lease_holder: str | None = None,
        compression_lock_holder: str | None = None,
    ) -> int:
        """Makes the rewound rows from the id ``since_message_id`` on active again; returns their number.

        Compacted rows stay as they are. So do originals that a compaction carried on, and messages of a platform that
        were sent again meanwhile: their copy is the live one. The strip runs, since an old carrier may come back.
        """
        return self._write(
            lambda uow: uow.messages.restore_rewound(
                session_id,
                since_message_id,
                turn_lease_holder=turn_lease_holder,
                compression_lock_holder=compression_lock_holder,
            )
        )
