"""Verbs that compare the store with its own rows."""

from __future__ import annotations

from collections.abc import Iterator

from hermes_state.errors import StoreReadOnlyError
from hermes_state.reports import Difference, difference
from hermes_state.store.searching import SearchVerbs
from hermes_state.store.space import SpaceVerbs

_SESSIONS_A_PAGE = 200
_MOST_ORPHANS = 1_000
_MOST_ROUNDS = 1_000


class VerifyingVerbs(SpaceVerbs, SearchVerbs):
    """Finding, and mending, what other programs or a fault left contradictory."""

    def verify(self, repair: bool = False) -> list[Difference]:
        """Compares counters, last activity, the first session of chains, usage, checkpoints, keys and the
        search index with the rows; names sessions whose deletion was begun and not finished.

        Also runs the integrity check of SQLite. Returns every difference; with ``repair`` those that can be derived from
        other rows are mended, each in a short transaction, and say so (``repaired``). Of rows whose session is gone at most
        1,000 of each table are named; they are only reported. Others may go on writing.
        """
        if repair and self.read_only:
            raise StoreReadOnlyError("the store was opened read-only")
        of_index = self._of_index(repair=repair)
        found = self._read(lambda uow: uow.verifying.integrity())
        found += self._read(lambda uow: uow.verifying.orphans(_MOST_ORPHANS))
        found += self._read(lambda uow: uow.verifying.half_deleted())
        self._mend(found, repair=repair)
        for each in self._rounds(repair=repair):
            self._mend(each, repair=repair)
            found += each
        return of_index + found + self._usage(repair=repair) + self._shadowed(repair=repair)

    def _rounds(self, *, repair: bool) -> Iterator[list[Difference]]:
        """Differences page by page; again when a mended session may have changed what its children should say."""
        for _ in range(_MOST_ROUNDS):
            roots = 0
            after: str | None = None
            while page := self._page_of_ids(after):
                after = page[-1]
                differences = self._derived(page)
                roots += sum(each["column"] == "root_session_id" for each in differences)
                yield differences
            if not (repair and roots):
                return

    def _page_of_ids(self, after: str | None) -> list[str]:
        return self._read(lambda uow: uow.verifying.page_of_sessions(after, _SESSIONS_A_PAGE))

    def _derived(self, page: list[str]) -> list[Difference]:
        return self._read(lambda uow: uow.verifying.derived(page))

    def _mend(self, found: list[Difference], *, repair: bool) -> None:
        for each in found:
            if repair and each["repairable"]:
                self._mend_one(each)
                each["repaired"] = True

    def _mend_one(self, found: Difference) -> None:
        self._write(lambda uow: uow.verifying.mend(found))

    def _usage(self, *, repair: bool) -> list[Difference]:
        found: list[Difference] = []
        after: str | None = None
        while page := self._page_of_ids(after):
            after = page[-1]
            found += self._usage_of(page)
        if repair:
            wanted = dict.fromkeys(each["id"] for each in found if each["repairable"])
            for session_id in wanted:
                self._mend_usage(session_id)
            for each in found:
                each["repaired"] = each["repairable"]
        return found

    def _usage_of(self, page: list[str]) -> list[Difference]:
        return self._read(lambda uow: uow.usage_verifying.differences(page))

    def _mend_usage(self, session_id: str) -> None:
        self._write(lambda uow: uow.usage_verifying.mend(session_id))

    def _of_index(self, *, repair: bool) -> list[Difference]:
        found = self._read(lambda uow: uow.search_index.difference())
        if found and repair:
            self.rebuild_search_index()
            found[0]["repaired"] = True
        return found

    def _shadowed(self, *, repair: bool) -> list[Difference]:
        found = []
        for session_id in self._sessions_with_carriers():
            report = self.reclaim(session_id, dry_run=not repair, vacuum=False, with_sizes=False)
            if report["rows"]:
                each = difference("messages", session_id, "codex_reasoning_items", report["rows"], 0)
                each["repaired"] = repair
                found.append(each)
        return found
