"""Finding one's way among the sessions of a conversation."""

from __future__ import annotations

import sqlalchemy as sa

from hermes_state import lineage
from hermes_state.models import MessageRow
from hermes_state.repositories import lineage_walks
from hermes_state.repositories.base import Repository, Transaction, table_of
from hermes_state.repositories.sessions import SessionRepository
from hermes_state.text import is_usable_id

_SESSIONS = lineage_walks.SESSIONS
_MESSAGES = table_of(MessageRow)


class LineageLookups(Repository):
    """Reads. Each walk is one statement; cycles that another program made end."""

    def __init__(self, transaction: Transaction) -> None:
        super().__init__(transaction)
        self._sessions = SessionRepository(transaction)

    def compression_lineage(self, session_id: str) -> list[str]:
        """The ids of the compression chain through the session, from its first to its live end; ``[]`` if unknown."""
        with self._transaction.verb() as conn:
            if not is_usable_id(session_id):
                return []
            found = lineage_walks.connected_by_compression(conn, session_id)
        return lineage.lineage_of(session_id, found) if session_id in found else []

    def conversation_root(self, session_id: str) -> str:
        """The first session of the conversation, going up while a session is a continuation; else the id itself."""
        return self._sessions.ancestors(session_id)[0]

    def resume_id(self, session_id: str) -> str:
        """Where a resume goes on: from the live tip down the newest-started continuations, the last one with rows.

        The tip when none of them has rows, the id itself when it is unknown. At most three statements.
        """
        with self._transaction.verb() as conn:
            if not is_usable_id(session_id):
                return session_id
            tip = self._sessions.compression_tip(session_id)
            path = lineage.resume_path(
                tip, lineage_walks.continuations_below(conn, tip, compressed_only=False)
            )
            if len(path) == 1:
                return path[0]
            has_rows = sa.exists().where(_MESSAGES.c.session_id == _SESSIONS.c.id)
            is_wanted = self._operations.is_any_of(_SESSIONS.c.id, "wanted")
            stmt = sa.select(_SESSIONS.c.id).where(is_wanted, has_rows)
            filled = set(conn.scalars(stmt, {"wanted": self._operations.list_value(path)}))
        return next((found for found in reversed(path) if found in filled), path[0])

    def live_compression_child(self, session_id: str) -> str | None:
        """The one open continuation of a session that was ended by compression; ``None`` for none or several."""
        parent = _SESSIONS.alias("parent")
        stmt = (
            sa.select(_SESSIONS.c.id)
            .join(parent, parent.c.id == _SESSIONS.c.parent_session_id)
            .where(
                parent.c.id == session_id,
                parent.c.end_reason == "compression",
                lineage_walks.is_continuation(_SESSIONS),
                _SESSIONS.c.ended_at.is_(None),
            )
        )
        with self._transaction.verb() as conn:
            if not is_usable_id(session_id):
                return None
            found = conn.scalars(stmt.limit(2)).all()
        return found[0] if len(found) == 1 else None

    def is_explicit_fork(self, session_id: str) -> bool:
        """Whether the session has a parent and is its branch, its delegate, or what follows its reset."""
        columns = [_SESSIONS.c[name] for name in ("kind", "source", "parent_session_id")]
        with self._transaction.verb() as conn:
            if not is_usable_id(session_id):
                return False
            row = conn.execute(sa.select(*columns).where(_SESSIONS.c.id == session_id)).mappings().first()
        if row is None or row["parent_session_id"] is None:
            return False
        return lineage.read_kind(row) in ("branch", "delegate", "root")
