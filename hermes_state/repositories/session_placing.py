"""The place of a session in its lineage: parent, ``kind``, ``root_session_id`` (DESIGN.md, decision 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import sqlalchemy as sa

from hermes_state import lineage
from hermes_state.errors import InvalidArgumentError, ParentNotFoundError
from hermes_state.repositories import lineage_walks
from hermes_state.repositories.base import Repository
from hermes_state.repositories.session_values import FLAGS, ROUTING_KEYS, WORKSPACE_KEYS
from hermes_state.text import is_usable_id

SESSIONS = lineage_walks.SESSIONS
_OF_PARENT = ("id", "root_session_id", "end_reason", *ROUTING_KEYS, *WORKSPACE_KEYS, *FLAGS)


class SessionPlacing(Repository):
    """What the repositories of sessions need to know about parents."""

    def locked(self, session_id: str) -> Mapping[str, Any] | None:
        """The session's columns, its row locked until the transaction ends; or ``None``."""
        stmt = sa.select(SESSIONS).where(SESSIONS.c.id == session_id).with_for_update()
        return cast("Mapping[str, Any] | None", self._transaction.conn.execute(stmt).mappings().first())

    def exists(self, session_id: str) -> bool:
        """Whether there is such a session."""
        stmt = sa.select(SESSIONS.c.id).where(SESSIONS.c.id == session_id)
        return is_usable_id(session_id) and self._transaction.conn.scalar(stmt) is not None

    def present(self, session_ids: Sequence[str]) -> Sequence[str]:
        """Those of ``session_ids`` that exist."""
        stmt = sa.select(SESSIONS.c.id).where(self._operations.is_any_of(SESSIONS.c.id, "wanted"))
        with self._transaction.verb() as conn:
            usable = [each for each in session_ids if is_usable_id(each)]
            return conn.scalars(stmt, {"wanted": self._operations.list_value(usable)}).all()

    def place_of(self, values: Mapping[str, Any], kind: str | None) -> dict[str, Any]:
        """The lineage columns of a session of these ``values`` below its parent; ``kind`` wins when it is given."""
        return placed(values, self._parent_of(values), kind)

    def set_root(self, session_ids: Sequence[str], root_session_id: str) -> None:
        """Tells continuations which session their conversation begins with."""
        is_wanted = self._operations.is_any_of(SESSIONS.c.id, "wanted")
        stmt = sa.update(SESSIONS).where(is_wanted).values(root_session_id=root_session_id)
        self._transaction.conn.execute(stmt, {"wanted": self._operations.list_value(session_ids)})

    def _reclassified(self, merged: Mapping[str, Any]) -> dict[str, Any]:
        """The lineage columns after a change of parent, source or config; what continues the session follows it."""
        parent_id = merged["parent_session_id"]
        if parent_id is not None and merged["id"] in lineage_walks.above(self._transaction.conn, parent_id):
            raise InvalidArgumentError("parent_session_id", f"{parent_id!r} descends from {merged['id']!r}")
        found = placed(merged, self._parent_of(merged))
        below = lineage_walks.continuations_below(self._transaction.conn, merged["id"], compressed_only=False)
        followers = [session_id for session_id in below if session_id != merged["id"]]
        if followers:
            self.set_root(followers, found["root_session_id"] or merged["id"])
        return found

    def _parent_of(self, values: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What a child needs to know of its parent, which stays as it is until the transaction ends.

        Raises ``ParentNotFoundError`` for one that does not exist.
        """
        parent_id = values.get("parent_session_id")
        if parent_id is None:
            return None
        stmt = sa.select(*[SESSIONS.c[name] for name in _OF_PARENT]).where(SESSIONS.c.id == parent_id)
        stmt = stmt.with_for_update(read=True)
        row = self._transaction.conn.execute(stmt).mappings().first()
        if row is None:
            raise ParentNotFoundError(parent_id)
        return cast("Mapping[str, Any]", row)


def placed(
    values: Mapping[str, Any], parent: Mapping[str, Any] | None, kind: str | None = None
) -> dict[str, Any]:
    """The lineage columns of a session below ``parent``; ``kind`` wins when it is given."""
    kind = kind or lineage.classify(
        source=values["source"],
        model_config=values.get("model_config"),
        has_parent=parent is not None,
        parent_end_reason=None if parent is None else parent["end_reason"],
    )
    root = None
    if kind == "continuation" and parent is not None:
        root = parent["root_session_id"] or parent["id"]
    return {"kind": kind, "root_session_id": root}
