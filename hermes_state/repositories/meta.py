"""Key and value notes of the store (table ``state_meta``)."""

from __future__ import annotations

import sqlalchemy as sa

from hermes_state.models import MetaRow
from hermes_state.repositories.base import Repository, require_id, starts_with, table_of
from hermes_state.text import clean_text, is_usable_id

_META = table_of(MetaRow)


class MetaRepository(Repository):
    """Reads and sets notes inside the unit of work."""

    def get(self, key: str) -> str | None:
        """The value of ``key``, or ``None``."""
        with self._transaction.verb() as conn:
            if not is_usable_id(key):
                return None
            return conn.scalar(sa.select(_META.c.value).where(_META.c.key == key))

    def held(self, key: str) -> str | None:
        """As ``get``; until the transaction ends nobody else can change the note, nor make it."""
        require_id("key", key)
        stmt = sa.select(_META.c.value).where(_META.c.key == key).with_for_update()
        with self._transaction.verb() as conn:
            conn.execute(self._operations.insert(_META).values(key=key).on_conflict_do_nothing())
            return conn.scalar(stmt)

    def list_prefix(self, prefix: str) -> dict[str, str | None]:
        """The notes whose key starts with ``prefix``, ordered by key (code points).

        No character is a wildcard, case counts; ``""`` gives every note.
        """
        if prefix and not is_usable_id(prefix):
            return {}
        stmt = sa.select(_META.c.key, _META.c.value).order_by(_META.c.key)
        if prefix:
            stmt = stmt.where(starts_with(_META.c.key, prefix))
        with self._transaction.verb() as conn:
            return {row.key: row.value for row in conn.execute(stmt)}

    def set(self, key: str, value: str | None) -> None:
        """Sets ``key`` (1 to 512 characters, else ``InvalidArgumentError``) to ``value``."""
        require_id("key", key)
        stmt = self._operations.insert(_META).values(
            key=key, value=None if value is None else clean_text(value)
        )
        with self._transaction.verb() as conn:
            conn.execute(
                stmt.on_conflict_do_update(index_elements=["key"], set_={"value": stmt.excluded.value})
            )
