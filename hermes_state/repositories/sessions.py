"""Sessions: creating, ending, finding, listing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, cast

import sqlalchemy as sa

from hermes_state import lineage
from hermes_state.errors import InvalidArgumentError, SessionExistsError
from hermes_state.records import SessionRecord
from hermes_state.repositories import lineage_walks
from hermes_state.repositories.base import require_count, require_id, starts_with
from hermes_state.repositories.session_filters import ACTIVITY, SessionFilters, conditions
from hermes_state.repositories.session_placing import SESSIONS, placed
from hermes_state.repositories.session_updates import SessionUpdates
from hermes_state.repositories.session_values import (
    PLACEHOLDER_SOURCE,
    checked_values,
    inherited,
    optional_text,
)
from hermes_state.repositories.system_prompts import PROMPTS
from hermes_state.text import is_usable_id

# Inside the class the name ``list`` is a verb.
Records = list[SessionRecord]
Ids = list[str]

_PROMPT = sa.func.coalesce(SESSIONS.c.system_prompt, PROMPTS.c.prompt).label("system_prompt")
_WITH_PROMPT = SESSIONS.outerjoin(PROMPTS, PROMPTS.c.hash == SESSIONS.c.system_prompt_hash)
WHOLE_ROW = sa.select(*[_PROMPT if c.name == "system_prompt" else c for c in SESSIONS.c]).select_from(
    _WITH_PROMPT
)


class SessionRepository(SessionUpdates):
    """The table ``sessions``. For unknown ids reads give ``None`` or ``[]`` and setters do nothing."""

    def create(self, session_id: str, source: str, **given: Any) -> str:
        """Creates the session, or fills what an existing row lacks; never overwrites what is set (field report M2).

        ``given`` may hold model, model_config (dict or JSON text), system_prompt, user_id, session_key, chat_id,
        chat_type, thread_id, parent_session_id, cwd, git_branch and git_repo_root. A child takes cwd and git columns
        over from its parent, and from one that was ended by compression whom it talks to. The placeholder source
        ``unknown`` is replaced. Returns the id. Raises ``InvalidArgumentError``, and ``ParentNotFoundError`` for a
        parent that does not exist.
        """
        require_id("session_id", session_id)
        values = checked_values(source, given)
        if values.get("parent_session_id") == session_id:
            raise InvalidArgumentError("parent_session_id", "a session cannot be its own parent")
        with self._transaction.verb():
            stored = self.locked(session_id)
            if stored is None and not self._insert(session_id, values):
                stored = self.locked(session_id)
            if stored is not None:
                self._fill(stored, values)
        return session_id

    def create_new(self, session_id: str, source: str, kind: str, **given: Any) -> None:
        """A session of this ``kind`` that must not exist yet: raises ``SessionExistsError``, else as ``create``."""
        require_id("session_id", session_id)
        values = checked_values(source, given)
        with self._transaction.verb():
            if not self._insert(session_id, values, kind):
                raise SessionExistsError(session_id)

    def ensure(self, session_id: str, source: str = PLACEHOLDER_SOURCE, **given: Any) -> str:
        """``create`` under the name that callers use when the session may be there already."""
        return self.create(session_id, source, **given)

    def get(self, session_id: str) -> SessionRecord | None:
        """All columns of the session, ``system_prompt`` resolved, ``model_config`` as its text; or ``None``."""
        with self._transaction.verb() as conn:
            if not is_usable_id(session_id):
                return None
            row = conn.execute(WHOLE_ROW.where(SESSIONS.c.id == session_id)).mappings().first()
        return None if row is None else session_record(row)

    def end(self, session_id: str, end_reason: str) -> None:
        """Closes an open session now; the first reason wins (field report M1)."""
        open_row = sa.and_(SESSIONS.c.id == session_id, SESSIONS.c.ended_at.is_(None))
        self._set(
            session_id, open_row, ended_at=time.time(), end_reason=optional_text("end_reason", end_reason)
        )

    def reopen(self, session_id: str) -> None:
        """Opens an ended session again, whatever ended it."""
        self._set(session_id, SESSIONS.c.id == session_id, ended_at=None, end_reason=None)

    def resolve_id(self, id_or_prefix: str) -> str | None:
        """The session of exactly this id, else the only one whose id starts with it, else ``None``.

        Case counts and no character is a wildcard (field report L8).
        """
        with self._transaction.verb() as conn:
            if not is_usable_id(id_or_prefix):
                return None
            stmt = (
                sa.select(SESSIONS.c.id)
                .where(starts_with(SESSIONS.c.id, id_or_prefix))
                .order_by(SESSIONS.c.id)
            )
            found = conn.scalars(stmt.limit(2)).all()
        if found and (found[0] == id_or_prefix or len(found) == 1):
            return str(found[0])
        return None

    def list(
        self,
        limit: int = 20,
        offset: int = 0,
        source: str | None = None,
        *,
        include_children: bool = False,
        include_archived: bool = False,
    ) -> Records:
        """A page of sessions, most recently active first, ties by id descending; the same order on both databases.

        Continuations, delegates and tool runs are left out unless ``include_children``.
        """
        filters: SessionFilters = {
            "source": source,
            "include_children": include_children,
            "include_archived": include_archived,
            "include_hidden": True,
        }
        stmt = WHOLE_ROW.where(*conditions(self._operations, filters))
        stmt = stmt.order_by(ACTIVITY.desc(), SESSIONS.c.id.desc())
        stmt = stmt.limit(require_count("limit", limit)).offset(require_count("offset", offset))
        with self._transaction.verb() as conn:
            return [session_record(row) for row in conn.execute(stmt).mappings()]

    def compression_tip(self, session_id: str) -> str:
        """The live end of the compression chain that starts here; the id itself when there is none.

        One statement, whatever the length of the chain; cycles made by other programs end.
        """
        with self._transaction.verb() as conn:
            if not is_usable_id(session_id):
                return session_id
            chain = lineage_walks.continuations_below(conn, session_id, compressed_only=True)
        return lineage.tip_of(session_id, chain)

    def ancestors(self, session_id: str) -> Ids:
        """The ids from the first session that this one continues to this one, in that order.

        The walk goes up while a session is a continuation: a branch holds its own copy of what was before. One
        statement; cycles made by other programs end.
        """
        with self._transaction.verb() as conn:
            if not is_usable_id(session_id):
                return [session_id]
            found = lineage_walks.above(conn, session_id, continuations_only=True)
        return lineage.continued_from(session_id, found)

    def _insert(self, session_id: str, values: dict[str, Any], kind: str | None = None) -> bool:
        parent = self._parent_of(values)
        place = placed(values, parent, kind)
        taken = {} if parent is None else inherited(parent, place["kind"], values)
        row = {
            **self.with_stored_prompt(values),
            **taken,
            **place,
            "id": session_id,
            "created_source": values["source"],
            "started_at": time.time(),
        }
        stmt = self._operations.insert(SESSIONS).values(row).on_conflict_do_nothing().returning(SESSIONS.c.id)
        return self._transaction.conn.execute(stmt).first() is not None

    def _fill(self, stored: Mapping[str, Any], values: dict[str, Any]) -> None:
        has_prompt = stored["system_prompt"] is not None or stored["system_prompt_hash"] is not None
        lacking = {
            key: value
            for key, value in values.items()
            if key != "source" and stored[key] is None and not (key == "system_prompt" and has_prompt)
        }
        if stored["source"] == PLACEHOLDER_SOURCE and values["source"] != PLACEHOLDER_SOURCE:
            lacking |= {"source": values["source"], "created_source": values["source"]}
        if not lacking:
            return
        changes: dict[str, Any] = {}
        if _may_change_kind(stored["kind"], lacking):
            changes = self._reclassified({**stored, **lacking})
        if (parent := self._parent_of(lacking)) is not None:
            changes |= inherited(parent, changes["kind"], {**stored, **lacking})
        # Last, because a refused parent must leave nothing behind.
        changes |= self.with_stored_prompt(lacking)
        self._transaction.conn.execute(
            sa.update(SESSIONS).where(SESSIONS.c.id == stored["id"]).values(changes)
        )


def _may_change_kind(kind: str | None, filled: Mapping[str, Any]) -> bool:
    """A parent or a marker decides anew; a real source only about a kind that nobody chose (``create_branch``)."""
    if "parent_session_id" in filled or lineage.has_marker(filled.get("model_config")):
        return True
    return "source" in filled and kind not in ("branch", "delegate")


def session_record(row: Mapping[Any, Any]) -> SessionRecord:
    """The public form of a whole session row."""
    return cast(SessionRecord, {**row, "kind": lineage.read_kind(row)})
