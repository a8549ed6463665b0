"""Verbs on sessions as plain dicts: export and import."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from hermes_state.errors import UndecodableTextError
from hermes_state.records import ImportReport
from hermes_state.repositories.exporting import require_ids
from hermes_state.repositories.import_entries import ImportLimits, OnExisting, checked_entries
from hermes_state.repositories.importing import report
from hermes_state.store.core import StoreCore


class PortableVerbs(StoreCore):
    """Sessions out of a store and into one. Of one session, everything is exported as it stood at one moment."""

    def export_session(self, session_id: str) -> dict[str, Any] | None:
        """The session with all its messages, whatever their state, as ``import_sessions`` takes it; or ``None``."""
        return self._read(lambda uow: uow.portable.export_session(session_id))

    def export_session_lineage(self, session_id: str) -> list[dict[str, Any]]:
        """``export_session`` of the compression chain through the session, first to last; ``[]`` for an unknown id."""
        return list(self.iter_export(self._read(lambda uow: uow.lineages.compression_lineage(session_id))))

    def export_all(self, source: str | None = None) -> list[dict[str, Any]]:
        """``export_session`` of every session, or of those with this source, by id; all of it in memory."""
        return list(self.iter_export(source=source))

    def iter_export(
        self,
        session_ids: Iterable[str] | None = None,
        *,
        source: str | None = None,
        in_parts: bool = False,
    ) -> Iterator[dict[str, Any]]:
        """``export_session`` of one session after another; the whole store by id, or the ids that are given.

        Unknown ids are left out, and ids given twice come twice. Memory depends on the largest session only; with
        ``in_parts`` on nothing: a session of more than about 1,000 messages or 4 MiB comes in several dicts, of which each
        after the first has the keys ``continues`` (the id) and ``messages``. Between two sessions no connection is held; one made
        meanwhile may be missing. Raises ``InvalidArgumentError`` for one text instead of a list.
        """
        wanted = self._ids(source) if session_ids is None else iter(require_ids(session_ids))
        return self._exported(wanted, source if session_ids is not None else None, in_parts)

    def import_sessions(
        self,
        sessions: Sequence[Any],
        *,
        on_existing: OnExisting = "skip",
        limits: ImportLimits | None = None,
    ) -> ImportReport:
        """Imports what the export verbs gave, all or nothing; see ``SessionImports.import_sessions`` for the rules.

        A checked list of at most 500 sessions and 25 MiB, unless ``limits`` says otherwise; files of any size go
        through ``hermes_state.transfer.import_file``.
        """
        # Before the transaction: a refused list must not wait for the write lock.
        entries, errors = checked_entries(
            sessions, on_existing, limits or ImportLimits(), self.max_text_bytes
        )
        if errors:
            return report([], {}, [], [], errors)
        return self._write(lambda uow: uow.portable.import_entries(entries, on_existing))

    def _exported(
        self, session_ids: Iterator[str], source: str | None, in_parts: bool
    ) -> Iterator[dict[str, Any]]:
        for session_id in session_ids:
            if in_parts:
                yield from self._parts(session_id, source)
            elif (session := self.export_session(session_id)) is not None and _is_of(session, source):
                yield session

    def _ids(self, source: str | None) -> Iterator[str]:
        after: str | None = None
        while page := self._read(lambda uow, after=after: uow.portable.ids_after(after, source)):  # type: ignore[misc]
            yield from page
            after = page[-1]

    def _parts(self, session_id: str, source: str | None) -> Iterator[dict[str, Any]]:
        given: int | None = None
        try:
            for part in self._parts_of_one_moment(session_id):
                if not _is_of(part, source):
                    return
                given = (given or 0) + len(part["messages"])
                yield part
        except UndecodableTextError:
            # From now on such text is read with U+FFFD in it; the messages that came already stay as they are.
            yield from _after(self._parts_of_one_moment(session_id), given)

    def _parts_of_one_moment(self, session_id: str) -> Iterator[dict[str, Any]]:
        with self._unit(commits=False) as uow:
            yield from uow.portable.export_parts(session_id)


def _after(parts: Iterator[dict[str, Any]], given: int | None) -> Iterator[dict[str, Any]]:
    """The parts behind the first ``given`` messages; all of them when nothing was given yet."""
    for part in parts:
        if given is None:
            yield part
        elif len(part["messages"]) > given:
            name = part.get("continues", part.get("id"))
            yield {"continues": name, "messages": part["messages"][given:]}
            given = 0
        else:
            given -= len(part["messages"])


def _is_of(part: dict[str, Any], source: str | None) -> bool:
    return source is None or "continues" in part or part["source"] == source
