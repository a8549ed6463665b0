"""Key and value notes of the store (table ``state_meta``)."""

from __future__ import annotations

import sqlalchemy as sa

from hermes_state.models import MetaRow
from hermes_state.repositories.base import Repository, require_id, table_of
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
