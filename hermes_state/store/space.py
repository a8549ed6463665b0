"""Verbs on the space that a store takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from hermes_state.errors import StoreReadOnlyError
from hermes_state.reports import ReclaimReport, Size, StoreStatistics
from hermes_state.repositories.base import require_count
from hermes_state.repositories.lease_rows import require_seconds
from hermes_state.repositories.retention_rules import retention
from hermes_state.repositories.space import Stripped
from hermes_state.store.core import StoreCore
from hermes_state.text import is_usable_id
from hermes_state.unit_of_work import UnitOfWork

_SESSIONS_A_PAGE = 200
# As long as the next part has the write lock, nobody else gets it: let them come in between.
_PAUSE_SHARE, _LEAST_PAUSE_SECONDS = 0.25, 0.01


class SpaceVerbs(StoreCore):
    """Looking at sizes and giving space back."""

    def sizes(self) -> list[Size]:
        """The bytes of every table and index, biggest first; empty where SQLite was built without ``dbstat``."""
        return self._read(lambda uow: uow.space.sizes())

    def vacuum(self) -> str:
        """Gives the space of deleted and stripped rows back now; says how, see ``ReclaimReport``.

        A SQLite file is rewritten when nobody else has it open, which may take long and needs free space.
        """
        if self.read_only:
            raise StoreReadOnlyError("the store was opened read-only")
        self.engine.dispose()  # the file is only rewritten when no connection is open, idle ones included
        return self._operations.vacuum(self.engine)

    def statistics(
        self, *, days: int = 30, biggest: int = 20, retention_days: float = 90.0
    ) -> StoreStatistics:
        """A whole store at a glance; every text is read once, so a big one takes its time.

        ``days``: how many days back the growth is shown. ``biggest``: how many sessions, those with the most text.
        ``retention_days``: what ``prune_sessions`` would be asked. Raises ``InvalidArgumentError`` for numbers below 0.
        """
        require_count("days", days)
        require_count("biggest", biggest)
        require_seconds("retention_days", retention_days, zero=True)
        rule = retention(retention_days, None)
        shadowed = self.reclaim(dry_run=True, with_sizes=False)

        def look(uow: UnitOfWork) -> StoreStatistics:
            sessions, messages = uow.pruning.totals(rule)
            return {
                "sizes": uow.space.sizes(),
                "sessions_by_source": uow.statistics.sessions_by_source(),
                "messages": uow.statistics.messages_by_state(),
                "days": uow.statistics.days(days),
                "biggest_sessions": uow.statistics.biggest_sessions(biggest),
                "checkpoints": {
                    "live_bytes": max(0, uow.statistics.carrier_bytes() - shadowed["checkpoint_bytes"]),
                    "shadowed_bytes": shadowed["checkpoint_bytes"],
                    "shadowed_rows": shadowed["rows"],
                },
                "usage_by_model": uow.usage.totals(by="model"),
                "usage_by_day": uow.usage.totals(by="day"),
                "retention": {"days": retention_days, "sessions": sessions, "messages": messages},
            }

        return self._read(look)

    def reclaim(
        self,
        session_id: str | None = None,
        *,
        dry_run: bool = False,
        vacuum: bool = True,
        with_sizes: bool = True,
        on_part: Callable[[ReclaimReport], None] | None = None,
    ) -> ReclaimReport:
        """Strips the shadowed checkpoints of the whole store, or of one session, then gives the space back.

        The rule is that of every append (CONTRACT.md section 4). Each part is a short transaction of its own, so others keep
        writing, and a run that was interrupted is simply started again. ``dry_run`` only looks; its bytes are of the JSON
        text, to within the blanks in it. ``vacuum=False`` leaves the space inside the database, free for new rows.
        ``with_sizes=False`` leaves out the sizes of tables, for which SQLite reads the whole file. ``on_part`` is called after each part with the figures so far. On SQLite the file is rewritten when nobody else
        has it open; see ``ReclaimReport``.
        """
        if self.read_only and not dry_run:
            raise StoreReadOnlyError("the store was opened read-only")
        report: ReclaimReport = {
            "sessions": 0, "rows": 0, "checkpoint_bytes": 0, "sizes_before": self.sizes() if with_sizes else [], "sizes_after": [], "vacuum": None,
        }  # fmt: skip
        wanted = self._sessions_with_carriers() if session_id is None else iter([session_id])
        for each in wanted:
            rows_before = report["rows"]
            for part in self._shadowed_parts(each, dry_run=dry_run):
                report["rows"] += part.row_count
                report["checkpoint_bytes"] += part.text_bytes
                if on_part is not None:
                    on_part(report)
            report["sessions"] += report["rows"] > rows_before
        if vacuum and not dry_run:
            report["vacuum"] = self.vacuum()
        report["sizes_after"] = self.sizes() if with_sizes and not dry_run else report["sizes_before"]
        return report

    def _sessions_with_carriers(self) -> Iterator[str]:
        after: str | None = None
        while page := self._page_of_sessions(after):
            yield from page
            after = page[-1]

    def _page_of_sessions(self, after: str | None) -> list[str]:
        return self._read(lambda uow: uow.space.sessions_with_carriers(after, _SESSIONS_A_PAGE))

    def _shadowed_parts(self, session_id: str, *, dry_run: bool) -> Iterator[Stripped]:
        if not is_usable_id(session_id):
            return
        # What is newer than now is not looked at: others may write without an end.
        after_id, before_id = 0, self._read(lambda uow: uow.space.newest_carrier(session_id))
        while (part := self._part(session_id, after_id, before_id, dry_run=dry_run)) is not None:
            yield part
            after_id = part.last_id

    def _part(self, session_id: str, after_id: int, before_id: int, *, dry_run: bool) -> Stripped | None:
        if dry_run:
            return self._read(lambda uow: uow.space.shadowed_part(session_id, after_id, before_id))
        started = time.monotonic()
        part = self._write(lambda uow: uow.space.strip_part(session_id, after_id, before_id))
        if part is not None:
            time.sleep(max(_LEAST_PAUSE_SECONDS, (time.monotonic() - started) * _PAUSE_SHARE))
        return part
