"""Single facts about the messages of a session: ids, roles, counts. Each is one statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import sqlalchemy as sa

from hermes_state.decoding import as_text
from hermes_state.errors import SessionTooLargeError
from hermes_state.repositories import rows
from hermes_state.repositories.base import Repository, require_count
from hermes_state.text import is_usable_id

_MESSAGES = rows.MESSAGES
_ONE: sa.ColumnElement[int] = sa.literal_column("1")


class MessageLookups(Repository):
    """Reads; an unknown session gives ``[]``, 0, ``None`` or ``False``."""

    def count(self, session_id: str | None = None) -> int:
        """The number of active messages of the session, or of the whole store."""
        stmt = sa.select(sa.func.count()).select_from(_MESSAGES).where(rows.ACTIVE)
        with self._transaction.verb() as conn:
            if session_id is not None:
                if not is_usable_id(session_id):
                    return 0
                stmt = stmt.where(_MESSAGES.c.session_id == session_id)
            return conn.scalar(stmt) or 0

    def count_for_resume(self, session_ids: Sequence[str]) -> int:
        """The number of active messages of the sessions; nothing is loaded (field report P3)."""
        with self._transaction.verb() as conn:
            wanted = self._operations.list_value(filter(is_usable_id, session_ids))
            stmt = self._operations.compiled("lookups.count_of", self._count_of)
            return stmt.execute(conn, wanted=wanted).scalar() or 0

    def require_resume_safe(self, session_ids: Sequence[str], limit: int) -> None:
        """Raises ``SessionTooLargeError`` when the sessions hold more than ``limit`` active rows; 0 allows any number."""
        if not require_count("limit", limit):
            return
        found = self.count_for_resume(session_ids)
        if found > limit:
            raise SessionTooLargeError(session_ids[-1], found, limit)

    def active_ids(self, session_id: str) -> list[int]:
        """The ids of the active rows in insertion order."""
        return [row[0] for row in self._found("lookups.active_ids", _active_ids, session_id)]

    def latest_row_id(self, session_id: str) -> int | None:
        """The highest row id of the session, whatever the row's state; ``None`` without rows."""
        return cast("int | None", self._first("lookups.latest_id", _latest_id, session_id))

    def active_watermark(self, session_id: str) -> int:
        """The highest id of an active row; 0 when there is none. Rows above it arrived later."""
        return self._first("lookups.watermark", _watermark, session_id) or 0

    def role(self, session_id: str, row_id: int) -> str | None:
        """The role of a row of the session, whatever its state; ``None`` when it has no such row."""
        if not rows.may_be_id("row_id", row_id):
            return None
        return cast("str | None", self._first("lookups.role", _role, session_id, row_id=row_id))

    def latest_conversation_role(self, session_id: str) -> str | None:
        """``"user"`` or ``"assistant"``: whose the newest active message of either is; ``None`` without one."""
        return cast("str | None", self._first("lookups.latest_role", _latest_role, session_id))

    def has_platform_id(self, session_id: str, platform_message_id: Any) -> bool:
        """Whether a row of the session, in any state, has this platform id; whole numbers count as their digits."""
        wanted = platform_message_id
        if isinstance(wanted, int) and not isinstance(wanted, bool):
            wanted = str(wanted)
        if not is_usable_id(wanted):
            return False
        return self._first("lookups.platform_id", _with_platform_id, session_id, wanted=wanted) is not None

    def has_archived(self, session_id: str) -> bool:
        """Whether a row of the session was summarised away; rewound rows do not count (known store, W21)."""
        return self._first("lookups.archived", _archived, session_id) is not None

    def _first(self, key: str, build: Any, session_id: str, **values: Any) -> Any:
        found = self._found(key, build, session_id, **values)
        return as_text(found[0])[0] if found else None

    def _found(self, key: str, build: Any, session_id: str, **values: Any) -> Sequence[Any]:
        with self._transaction.verb() as conn:
            if not is_usable_id(session_id):
                return []
            return self._operations.compiled(key, build).execute(conn, session_id=session_id, **values).all()

    def _count_of(self) -> sa.Executable:
        is_wanted = self._operations.is_any_of(_MESSAGES.c.session_id, "wanted")
        return sa.select(sa.func.count()).select_from(_MESSAGES).where(is_wanted, rows.ACTIVE)


def _active_ids() -> sa.Executable:
    return rows.select(rows.ACTIVE, columns=("id",))


def _latest_id() -> sa.Executable:
    return rows.newest(columns=("id",)).limit(_ONE)


def _watermark() -> sa.Executable:
    return rows.newest(rows.ACTIVE, columns=("id",)).limit(_ONE)


def _role() -> sa.Executable:
    is_row = _MESSAGES.c.id == sa.bindparam("row_id", type_=sa.BigInteger)
    return sa.select(_MESSAGES.c.role).where(rows.OF_SESSION, is_row)


def _latest_role() -> sa.Executable:
    speaks = _MESSAGES.c.role.in_([sa.literal_column("'user'"), sa.literal_column("'assistant'")])
    return rows.newest(rows.ACTIVE, speaks, columns=("role",)).limit(_ONE)


def _with_platform_id() -> sa.Executable:
    has_id = _MESSAGES.c.platform_message_id == sa.bindparam("wanted")
    return sa.select(_MESSAGES.c.id).where(rows.OF_SESSION, has_id).limit(_ONE)


def _archived() -> sa.Executable:
    # The bare column, as in the partial index.
    is_compacted: sa.ColumnElement[bool] = sa.literal_column("messages.compacted")
    return sa.select(_MESSAGES.c.id).where(rows.OF_SESSION, is_compacted).limit(_ONE)
