"""What the store takes on disk, and the checkpoints in it that nobody will read again (issue 4, item 4)."""

from __future__ import annotations

from typing import NamedTuple

import sqlalchemy as sa

from hermes_state.checkpoints import has_checkpoint, strip_items
from hermes_state.json_values import dump_json
from hermes_state.payloads import decoded
from hermes_state.reports import Size
from hermes_state.repositories import rows
from hermes_state.repositories.base import Repository
from hermes_state.repositories.counters import SessionCounters

_MESSAGES = rows.MESSAGES
_ROWS_A_PART = 256
_BYTES_A_PART = 16 * 2**20
_ID, _SESSION, _ITEMS = _MESSAGES.c.id, _MESSAGES.c.session_id, _MESSAGES.c.codex_reasoning_items


class Stripped(NamedTuple):
    """A part of a session that was stripped: the last row id looked at, rows changed, bytes of JSON text gone."""

    last_id: int
    row_count: int
    text_bytes: int


class SpaceRepository(Repository):
    """Reads and strips in parts, so that a caller can keep its transactions short."""

    def sizes(self) -> list[Size]:
        """The bytes of every table and index, biggest first; empty where SQLite was built without ``dbstat``."""
        with self._transaction.verb() as conn:
            return self._operations.sizes(conn)

    def free_share(self) -> float:
        """Which part of the database is free pages, from 0 to 1; 0 where the server gives them out by itself."""
        with self._transaction.verb() as conn:
            return self._operations.free_share(conn)

    def sessions_with_carriers(self, after: str | None, limit: int) -> list[str]:
        """The next sessions, in order of their ids, that may hold more than one carrier."""
        stmt = sa.select(_SESSION).where(self._operations.looks_like_carrier)
        if after is not None:
            stmt = stmt.where(after < _SESSION)
        stmt = stmt.group_by(_SESSION).having(sa.func.count() > 1).order_by(_SESSION).limit(limit)
        with self._transaction.verb() as conn:
            return list(conn.scalars(stmt))

    def newest_carrier(self, session_id: str) -> int:
        """The id of the session's newest carrier; 0 without one."""
        with self._transaction.verb() as conn:
            return self._operations.newest_carrier(conn, session_id) or 0

    def strip_part(self, session_id: str, after_id: int, before_id: int) -> Stripped | None:
        """Strips the next shadowed rows between the ids, about 16 MiB of them; ``None`` when there are no more."""
        with self._transaction.verb() as conn:
            if not SessionCounters(conn, self._operations, session_id).lock_if_there():
                return None
            before = self._part(session_id, after_id, before_id)
            if not before:
                return None
            last_id = max(before)
            self._operations.strip_shadowed_checkpoints(conn, session_id, last_id + 1)
            after = self._bytes(session_id, sa.and_(after_id < _ID, last_id >= _ID))
            gone = {row_id: size - after.get(row_id, 0) for row_id, size in before.items()}
            return Stripped(last_id, sum(size > 0 for size in gone.values()), sum(gone.values()))

    def shadowed_part(self, session_id: str, after_id: int, before_id: int) -> Stripped | None:
        """About what ``strip_part`` would do; changes nothing."""
        with self._transaction.verb() as conn:
            part = self._part(session_id, after_id, before_id)
            if not part:
                return None
            stmt = sa.select(_ITEMS).where(
                _MESSAGES.c.session_id == session_id,
                self._operations.looks_like_carrier,
                after_id < _ID,
                max(part) >= _ID,
            )
            gone = [size for text in conn.scalars(stmt) if (size := _bytes_of_checkpoints(text))]
            return Stripped(max(part), len(gone), sum(gone))

    def _part(self, session_id: str, after_id: int, before_id: int) -> dict[int, int]:
        """The bytes of the next shadowed rows that may be carriers, by id."""
        # The newest carrier may have been taken back since the caller saw it.
        end = min(before_id, self.newest_carrier(session_id))
        found = self._bytes(session_id, sa.and_(after_id < _ID, end > _ID), _ROWS_A_PART)
        total = 0
        part: dict[int, int] = {}
        for row_id, size in found.items():
            total += size
            if part and total > _BYTES_A_PART:
                break
            part[row_id] = size
        return part

    def _bytes(
        self, session_id: str, condition: sa.ColumnElement[bool], row_limit: int | None = None
    ) -> dict[int, int]:
        stmt = sa.select(_ID, self._operations.text_bytes(_ITEMS)).where(
            _MESSAGES.c.session_id == session_id, self._operations.looks_like_carrier, condition
        )
        found = self._transaction.conn.execute(stmt.order_by(_ID).limit(row_limit)).all()
        return dict(found)


def _bytes_of_checkpoints(text: str) -> int:
    items = decoded(text)
    if not has_checkpoint(items):
        return 0
    kept = strip_items(items)
    return len(text.encode(errors="replace")) - (
        0 if kept is None else len(dump_json(kept).encode(errors="replace"))
    )
