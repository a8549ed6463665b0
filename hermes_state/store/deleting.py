"""Verbs that delete sessions."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from hermes_state import transcript_files
from hermes_state.repositories.deleting import expected_ids, usable_ids
from hermes_state.store.core import StoreCore

_SESSIONS_A_PART = 500
_IDS_A_PART = 200
# As long as the next part has the write lock, nobody else gets it: let them come in between.
_PAUSE_SHARE, _LEAST_PAUSE_SECONDS = 0.25, 0.01
Folder = str | os.PathLike[str] | None


def pause_after(started: float) -> None:
    """Lets other writers in, for a share of the time since ``started``, of the monotonic clock."""
    time.sleep(max(_LEAST_PAUSE_SECONDS, (time.monotonic() - started) * _PAUSE_SHARE))


class DeletingVerbs(StoreCore):
    """Deleting sessions for good, with messages, usage, reactions, leases, and prompts that nobody else uses.

    Delegates go with their parent, continuations become conversations of their own, branches stay. With ``sessions_dir`` the
    files ``<id>.json``, ``<id>.jsonl`` and ``request_dump_<id>_*.json`` of whatever was deleted are removed from that folder
    after the commit.
    """

    def delete_session(
        self,
        session_id: str,
        sessions_dir: Folder = None,
        *,
        expected_delete_ids: Iterable[str] | None = None,
    ) -> bool:
        """Deletes the session and its delegates; ``False`` for an unknown id. See ``delete_sessions``."""
        return self.delete_sessions([session_id], sessions_dir, expected_delete_ids=expected_delete_ids) == 1

    def delete_sessions(
        self,
        session_ids: Iterable[Any],
        sessions_dir: Folder = None,
        *,
        expected_delete_ids: Iterable[str] | None = None,
    ) -> int:
        """Deletes the sessions and their delegates; how many of ``session_ids`` there were.

        Up to 200 ids and 5,000 messages go in one transaction. More go in several short ones, so that others keep writing; a
        session that is too big for one is hidden and archived, and loses its oldest messages first. Interrupted, call again;
        until then ``verify`` names what is half deleted.
        Ids that are unknown, empty or no text are passed over. ``expected_delete_ids``: what ``get_session_delete_targets`` named; when
        another session would go too, a delegate that came since, nothing goes (of what came between two transactions, nothing
        more) and ``DeletionConflictError`` names it. Raises ``InvalidArgumentError`` for a single text.
        """
        folder = transcript_files.checked_folder("sessions_dir", sessions_dir)
        wanted = list(usable_ids(session_ids))
        expected = expected_ids(expected_delete_ids)
        parts = deque(
            wanted[first : first + _IDS_A_PART] for first in range(0, len(wanted) or 1, _IDS_A_PART)
        )
        if len(parts) > 1:
            self._read(lambda uow: uow.deleting.check_expected(wanted, expected))
        gone: set[str] = set()
        for deleted in self._delete_in_parts(parts, expected):
            self._remove_files(folder, deleted)
            gone.update(deleted)
        return len(gone.intersection(wanted))

    def get_session_delete_targets(self, session_id: str) -> list[str]:
        """The ids that ``delete_session`` would delete, the session first; ``[]`` for an unknown id."""
        return self._read(lambda uow: uow.deleting.targets([session_id]))

    def delete_session_if_empty(self, session_id: str, sessions_dir: Folder = None) -> bool:
        """Deletes the session if it has no message of any state, no title and no children; whether it did."""
        folder = transcript_files.checked_folder("sessions_dir", sessions_dir)
        is_gone = self._write(lambda uow: uow.deleting.delete_if_empty(session_id))
        self._remove_files(folder, [session_id] if is_gone else [])
        return is_gone

    def count_empty_sessions(self) -> int:
        """How many sessions ``delete_empty_sessions`` would delete."""
        return self._read(lambda uow: uow.deleting.count_empty())

    def delete_empty_sessions(self, sessions_dir: Folder = None) -> int:
        """Deletes the ended sessions without a message of any state; returns their number.

        Archived and pinned ones stay, those with delegates, and those that a live lease or lock holds. In parts of 500, each a transaction of its own.
        """
        folder = transcript_files.checked_folder("sessions_dir", sessions_dir)
        count = 0
        while deleted := self._write(lambda uow: uow.deleting.delete_empty(_SESSIONS_A_PART)):
            self._remove_files(folder, deleted)
            count += len(deleted)
        return count

    def _delete_in_parts(
        self, parts: deque[list[str]], expected: frozenset[str] | None
    ) -> Iterator[list[str]]:
        started: float | None = None
        while parts:
            if started is not None:
                pause_after(started)
            started = time.monotonic()
            deleted = self._write(lambda uow: uow.deleting.delete_part(parts[0], expected))
            if deleted is not None:
                parts.popleft()
                yield deleted

    def _remove_files(self, folder: str | None, deleted: Collection[str]) -> None:
        if folder is not None and deleted:
            transcript_files.remove(folder, deleted, self._present)

    def _present(self, session_ids: list[str]) -> set[str]:
        return self._read(lambda uow: set(uow.sessions.present(session_ids)))
