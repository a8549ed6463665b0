"""Verbs on notes, export and import."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hermes_state.records import ImportReport
from hermes_state.store.core import StoreCore


class NoteVerbs(StoreCore):
    """Key and value notes, and sessions as plain dicts."""

    def get_meta(self, key: str) -> str | None:
        """The note kept under ``key``, or ``None``."""
        return self._read(lambda uow: uow.meta.get(key))

    def set_meta(self, key: str, value: str | None) -> None:
        """Keeps a note."""
        self._write(lambda uow: uow.meta.set(key, value))

    def list_meta_prefix(self, prefix: str) -> dict[str, str | None]:
        """The notes whose key starts with ``prefix``, ordered by key; no wildcards, case counts (issue 3, item 5)."""
        return self._read(lambda uow: uow.meta.list_prefix(prefix))

    def export_session(self, session_id: str) -> dict[str, Any] | None:
        """The session with all its messages, whatever their state, as ``import_sessions`` takes it; or ``None``."""
        return self._read(lambda uow: uow.portable.export_session(session_id))

    def import_sessions(self, sessions: Sequence[Any]) -> ImportReport:
        """Imports what ``export_session`` gave; see ``PortableRepository.import_sessions``."""
        return self._write(lambda uow: uow.portable.import_sessions(sessions))
