"""Verbs on notes."""

from __future__ import annotations

from hermes_state.store.core import StoreCore


class NoteVerbs(StoreCore):
    """Key and value notes."""

    def get_meta(self, key: str) -> str | None:
        """The note kept under ``key``, or ``None``."""
        return self._read(lambda uow: uow.meta.get(key))

    def set_meta(self, key: str, value: str | None) -> None:
        """Keeps a note."""
        self._write(lambda uow: uow.meta.set(key, value))

    def list_meta_prefix(self, prefix: str) -> dict[str, str | None]:
        """The notes whose key starts with ``prefix``, ordered by key; no wildcards, case counts (issue 3, item 5)."""
        return self._read(lambda uow: uow.meta.list_prefix(prefix))
