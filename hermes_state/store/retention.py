"""Verbs that keep a store from growing for ever."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Unpack

from hermes_state import transcript_files
from hermes_state.errors import HermesStateError, StoreReadOnlyError
from hermes_state.records import AutoPruneReport
from hermes_state.repositories.lease_rows import require_seconds
from hermes_state.repositories.pruning import Page
from hermes_state.repositories.retention_rules import Retention, RetentionFilters, retention
from hermes_state.store.deleting import DeletingVerbs, Folder, pause_after
from hermes_state.unit_of_work import UnitOfWork

LAST_AUTO_PRUNE = "last_auto_prune"
LAST_AUTO_VACUUM = "last_auto_vacuum"
_HOUR_SECONDS = 3_600.0
_VACUUM_INTERVAL_SECONDS = 30 * 24 * _HOUR_SECONDS
_FREE_SHARE = 0.25


class RetentionVerbs(DeletingVerbs):
    """Deleting and hiding whole conversations, by age and by the keywords of ``RetentionFilters``.

    A conversation is the session that begins it, its continuations, and the delegates of these. It is kept as a whole when one of
    them is pinned, was active since, or is held by a live lease or compaction lock; and when its sessions are not all ended, or
    not all of the ``source`` (delegates apart). ``older_than_days`` counts from the last activity: 90 unless given, any age when
    a filter leaves something out. ``InvalidArgumentError`` for days that are negative or no finite number, and for empty filters.
    """

    def prune_sessions(
        self,
        older_than_days: float | None = None,
        source: str | None = None,
        sessions_dir: Folder = None,
        *,
        expected_delete_ids: Iterable[str] | None = None,
        on_part: Callable[[int], None] | None = None,
        **filters: Unpack[RetentionFilters],
    ) -> int:
        """Deletes the conversations meant; how many sessions went. ``list_prune_candidates`` is its dry run.

        In short transactions, each whole: others keep writing, and an interrupted run is simply started again. With
        ``expected_delete_ids``, what the dry run named, no other session goes, whatever has grown old since. ``on_part`` is told
        the number so far. Files: see ``delete_session``. The space stays in the database; see ``reclaim``.
        """
        rule = retention(older_than_days, source, only=expected_delete_ids, **filters)
        folder = transcript_files.checked_folder("sessions_dir", sessions_dir)
        count = 0
        for page in self._old_parts(rule, lambda uow, after: uow.pruning.prune(rule, after)):
            self._remove_files(folder, page.session_ids)
            count += len(page.session_ids)
            if on_part is not None:
                on_part(count)
        return count

    def list_prune_candidates(
        self,
        older_than_days: float | None = None,
        source: str | None = None,
        **filters: Unpack[RetentionFilters],
    ) -> list[str]:
        """The ids that ``prune_sessions`` with the same arguments would delete now, conversation by conversation."""
        return self._all_candidates(retention(older_than_days, source, **filters))

    def count_prune_matches(
        self,
        older_than_days: float | None = None,
        source: str | None = None,
        **filters: Unpack[RetentionFilters],
    ) -> int:
        """How many sessions ``prune_sessions`` would delete."""
        return len(self.list_prune_candidates(older_than_days, source, **filters))

    def count_idle_open_sessions(
        self,
        older_than_days: float | None = None,
        source: str | None = None,
        **filters: Unpack[RetentionFilters],
    ) -> int:
        """How many unpinned sessions are as old but were never ended: ``prune_sessions`` keeps their conversations.

        Each counts by itself; bounds of messages and costs, which are those of conversations, do not count here.
        """
        rule = retention(older_than_days, source, **filters)
        return self._read(lambda uow: uow.pruning.count_idle_open(rule))

    def archive_stale_sessions(
        self,
        older_than_days: float | None = None,
        source: str | None = None,
        **filters: Unpack[RetentionFilters],
    ) -> int:
        """Hides the conversations meant from lists, open ones too; how many sessions were hidden.

        They are marked ``auto_archived``. Nothing is deleted; ``set_session_archived`` shows a conversation again.
        """
        rule = retention(older_than_days, source, to_hide=True, **filters)
        parts = self._old_parts(rule, lambda uow, after: uow.pruning.archive(rule, after))
        return sum(len(page.session_ids) for page in parts)

    def list_archive_candidates(
        self,
        older_than_days: float | None = None,
        source: str | None = None,
        **filters: Unpack[RetentionFilters],
    ) -> list[str]:
        """The ids that ``archive_stale_sessions`` with the same arguments would hide now."""
        return self._all_candidates(retention(older_than_days, source, to_hide=True, **filters))

    def maybe_auto_prune_and_vacuum(
        self,
        retention_days: float = 90,
        min_interval_hours: float = 24,
        vacuum: bool = True,
        sessions_dir: Folder = None,
    ) -> AutoPruneReport:
        """``prune_sessions`` once in so many hours, for a start-up: never raises, what went wrong stands in ``error``.

        The time of the last run is the note ``last_auto_prune``, epoch seconds as text; anything else counts as never. Of several
        processes one does it. The file is vacuumed when something was pruned, over a quarter of it is free, and the last time
        is 30 days ago.
        """
        report: AutoPruneReport = {"skipped": False, "pruned": 0, "vacuumed": False, "error": None}
        try:
            interval = require_seconds("min_interval_hours", min_interval_hours, zero=True) * _HOUR_SECONDS
            retention(retention_days, None)
            transcript_files.checked_folder("sessions_dir", sessions_dir)
            if not self._claim(LAST_AUTO_PRUNE, interval):
                report["skipped"] = True
                return report
            report["pruned"] = self.prune_sessions(retention_days, sessions_dir=sessions_dir)
            if vacuum and report["pruned"] and self._is_worth_a_vacuum():
                self.engine.dispose()  # the file is only rewritten when no connection is open, idle ones included
                report["vacuumed"] = self._operations.vacuum(self.engine) != "kept"
        except (HermesStateError, OSError) as error:
            report["error"] = f"{type(error).__name__}: {error}"
        return report

    def _old_parts(
        self, rule: Retention, work: Callable[[UnitOfWork, str | None], Page | None]
    ) -> Iterator[Page]:
        if self.read_only:
            raise StoreReadOnlyError("the store was opened read-only")
        after: str | None = None
        while True:
            # Looked for outside a write transaction: when nothing is old, nobody waits.
            if (page := self._candidates(rule, after)) is None:
                return
            if not page.session_ids:
                after = page.after
                continue
            started = time.monotonic()
            page = self._old_part(work, after)
            if page is None:
                return
            yield page
            after = page.after
            pause_after(started)

    def _old_part(
        self, work: Callable[[UnitOfWork, str | None], Page | None], after: str | None
    ) -> Page | None:
        return self._write(lambda uow: work(uow, after))

    def _all_candidates(self, rule: Retention) -> list[str]:
        found: list[str] = []
        after: str | None = None
        while (page := self._candidates(rule, after)) is not None:
            found += page.session_ids
            after = page.after
        return found

    def _candidates(self, rule: Retention, after: str | None) -> Page | None:
        return self._read(lambda uow: uow.pruning.candidates(rule, after))

    def _is_worth_a_vacuum(self) -> bool:
        if self._read(lambda uow: uow.space.free_share()) <= _FREE_SHARE:
            return False
        return self._claim(LAST_AUTO_VACUUM, _VACUUM_INTERVAL_SECONDS)

    def _claim(self, key: str, interval_seconds: float) -> bool:
        """Whether the last time under ``key`` is that long ago; then it is now."""

        def claim(uow: UnitOfWork) -> bool:
            now = time.time()
            last = _epoch(uow.meta.held(key))
            # A time of the future is that of a clock that was wrong.
            if last is not None and 0 <= now - last < interval_seconds:
                return False
            uow.meta.set(key, str(now))
            return True

        return self._write(claim)


def _epoch(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None
