"""Sessions: creating, ending, finding, listing."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from typing import Any, cast

import sqlalchemy as sa

from hermes_state import lineage
from hermes_state.errors import InvalidArgumentError, SessionNotFoundError
from hermes_state.json_values import dump_json
from hermes_state.models import SessionRow, SystemPromptRow
from hermes_state.records import SessionRecord
from hermes_state.repositories.base import Repository, require_count, require_id, starts_with, table_of
from hermes_state.text import clean_text, is_usable_id

# Inside the class the name ``list`` is a verb.
Records = list[SessionRecord]
Ids = list[str]

SESSIONS = table_of(SessionRow)
_PROMPTS = table_of(SystemPromptRow)

PLACEHOLDER_SOURCE = "unknown"
_PLAIN_KEYS = ("model", "user_id", "session_key", "chat_id", "chat_type", "thread_id", "cwd")
_LAST_ACTIVE = sa.func.coalesce(SESSIONS.c.last_active_at, SESSIONS.c.started_at)
_PROMPT = sa.func.coalesce(SESSIONS.c.system_prompt, _PROMPTS.c.prompt).label("system_prompt")
_WITH_PROMPT = SESSIONS.outerjoin(_PROMPTS, _PROMPTS.c.hash == SESSIONS.c.system_prompt_hash)
_WHOLE_ROW = sa.select(*[_PROMPT if c.name == "system_prompt" else c for c in SESSIONS.c]).select_from(
    _WITH_PROMPT
)
_IS_CONTINUATION = sa.and_(
    SESSIONS.c.parent_session_id.is_not(None),
    sa.or_(
        SESSIONS.c.kind == "continuation", sa.and_(SESSIONS.c.kind.is_(None), SESSIONS.c.source != "tool")
    ),
)
# Root, branch, and continuations without parent; a row without kind is one of another program.
_LISTED = sa.or_(
    SESSIONS.c.kind.in_(("root", "branch")),
    sa.and_(
        SESSIONS.c.parent_session_id.is_(None),
        sa.func.coalesce(SESSIONS.c.kind, "root").in_(("root", "continuation")),
    ),
)


class SessionRepository(Repository):
    """The table ``sessions``. For unknown ids reads give ``None`` or ``[]`` and setters do nothing."""

    def create(self, session_id: str, source: str, **given: Any) -> str:
        """Creates the session, or fills what an existing row lacks; never overwrites what is set (field report M2).

        ``given`` may hold model, model_config (dict or JSON text), system_prompt, user_id, session_key, chat_id,
        chat_type, thread_id, parent_session_id and cwd. The placeholder source ``unknown`` is replaced. Returns
        the id. Raises ``InvalidArgumentError``, and ``SessionNotFoundError`` for a parent that does not exist.
        """
        require_id("session_id", session_id)
        values = _clean(source, given)
        if values.get("parent_session_id") == session_id:
            raise InvalidArgumentError("parent_session_id", "a session cannot be its own parent")
        with self._transaction.verb():
            stored = self._locked(session_id)
            if stored is None and not self._insert(session_id, values):
                stored = self._locked(session_id)
            if stored is not None:
                self._fill(stored, values)
        return session_id

    def ensure(self, session_id: str, source: str = PLACEHOLDER_SOURCE, **given: Any) -> str:
        """``create`` under the name that callers use when the session may be there already."""
        return self.create(session_id, source, **given)

    def get(self, session_id: str) -> SessionRecord | None:
        """All columns of the session, ``system_prompt`` resolved, ``model_config`` as its text; or ``None``."""
        with self._transaction.verb() as conn:
            if not is_usable_id(session_id):
                return None
            row = conn.execute(_WHOLE_ROW.where(SESSIONS.c.id == session_id)).mappings().first()
        return None if row is None else session_record(row)

    def end(self, session_id: str, end_reason: str) -> None:
        """Closes an open session now; the first reason wins (field report M1)."""
        open_row = sa.and_(SESSIONS.c.id == session_id, SESSIONS.c.ended_at.is_(None))
        self._set(session_id, open_row, ended_at=time.time(), end_reason=_text("end_reason", end_reason))

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
        stmt = _WHOLE_ROW.order_by(_LAST_ACTIVE.desc(), SESSIONS.c.id.desc())
        stmt = stmt.limit(require_count("limit", limit)).offset(require_count("offset", offset))
        if source is not None:
            stmt = stmt.where(SESSIONS.c.source == _text("source", source))
        if not include_children:
            stmt = stmt.where(_LISTED)
        if not include_archived:
            stmt = stmt.where(sa.not_(SESSIONS.c.archived))
        with self._transaction.verb() as conn:
            return [session_record(row) for row in conn.execute(stmt).mappings()]

    def compression_tip(self, session_id: str) -> str:
        """The live end of the compression chain that starts here; the id itself when there is none.

        One statement, whatever the length of the chain; cycles made by other programs end.
        """
        with self._transaction.verb() as conn:
            if not is_usable_id(session_id):
                return session_id
            chain = conn.execute(_compression_chain(session_id)).mappings().all()
        return lineage.tip_of(session_id, cast("list[Mapping[str, Any]]", chain))

    def ancestors(self, session_id: str) -> Ids:
        """The ids from the first session that this one continues to this one, in that order.

        The walk goes up while a session is a continuation: a branch holds its own copy of what was before. One
        statement; cycles made by other programs end.
        """
        with self._transaction.verb() as conn:
            if not is_usable_id(session_id):
                return [session_id]
            above = {row["id"]: row for row in conn.execute(_ancestor_rows(session_id)).mappings()}
        return lineage.continued_from(session_id, cast("dict[str, Mapping[str, Any]]", above))

    def may_be_parent(self, parent_id: str, *, of: str) -> bool:
        """Whether the session ``parent_id`` exists and does not descend from the session ``of``."""
        above = set(self._above(parent_id))
        return bool(above) and of not in above

    def line_above(self, session_id: str) -> Ids:
        """The session and everything above it by parent links, the topmost first. Cycles end."""
        above = self._above(session_id)
        line = [session_id]
        while (parent := above.get(line[-1])) is not None and parent not in line:
            line.append(parent)
        return line[::-1]

    def place_of(self, session_id: str, kind: str | None) -> dict[str, Any]:
        """The lineage columns of a stored session whose parent is placed already; ``kind`` wins when it is given."""
        stored = self._locked(session_id)
        assert stored is not None
        return self._lineage(stored, kind)

    def _above(self, session_id: str) -> dict[str, str | None]:
        found = self._transaction.conn.execute(_ancestor_rows(session_id)).mappings()
        return {row["id"]: row["parent_session_id"] for row in found}

    def _locked(self, session_id: str) -> Mapping[str, Any] | None:
        stmt = sa.select(SESSIONS).where(SESSIONS.c.id == session_id).with_for_update()
        return cast("Mapping[str, Any] | None", self._transaction.conn.execute(stmt).mappings().first())

    def _set(self, session_id: str, condition: sa.ColumnElement[bool], **values: Any) -> None:
        with self._transaction.verb() as conn:
            if is_usable_id(session_id):
                conn.execute(sa.update(SESSIONS).where(condition).values(values))

    def _insert(self, session_id: str, values: dict[str, Any]) -> bool:
        row = {
            **self.with_stored_prompt(values),
            **self._lineage(values),
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
        changes = self.with_stored_prompt(lacking)
        if lacking.keys() & {"source", "model_config", "parent_session_id"}:
            changes |= self._reclassified({**stored, **lacking})
        self._transaction.conn.execute(
            sa.update(SESSIONS).where(SESSIONS.c.id == stored["id"]).values(changes)
        )

    def _reclassified(self, merged: Mapping[str, Any]) -> dict[str, Any]:
        parent_id = merged["parent_session_id"]
        if parent_id is not None and merged["id"] in self._above(parent_id):
            raise InvalidArgumentError("parent_session_id", f"{parent_id!r} descends from {merged['id']!r}")
        found = self._lineage(merged)
        follow = sa.update(SESSIONS).where(SESSIONS.c.root_session_id == merged["id"])
        if found["root_session_id"] is not None:
            self._transaction.conn.execute(follow.values(root_session_id=found["root_session_id"]))
        return found

    def _lineage(self, values: Mapping[str, Any], kind: str | None = None) -> dict[str, Any]:
        parent_id = values.get("parent_session_id")
        parent = self._parent(parent_id) if parent_id is not None else None
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

    def _parent(self, parent_id: str) -> Mapping[str, Any]:
        columns = (SESSIONS.c.id, SESSIONS.c.root_session_id, SESSIONS.c.end_reason)
        row = (
            self._transaction.conn.execute(sa.select(*columns).where(SESSIONS.c.id == parent_id))
            .mappings()
            .first()
        )
        if row is None:
            raise SessionNotFoundError(parent_id)
        return cast("Mapping[str, Any]", row)

    def with_stored_prompt(self, values: dict[str, Any]) -> dict[str, Any]:
        """A copy of ``values`` with the system prompt replaced by its hash; the prompt is stored once per text."""
        prompt = values.get("system_prompt")
        if prompt is None:
            return dict(values)
        digest = hashlib.sha256(prompt.encode()).hexdigest()
        stmt = self._operations.insert(_PROMPTS).values(hash=digest, prompt=prompt).on_conflict_do_nothing()
        self._transaction.conn.execute(stmt)
        return {**{k: v for k, v in values.items() if k != "system_prompt"}, "system_prompt_hash": digest}


def session_record(row: Mapping[Any, Any]) -> SessionRecord:
    """The public form of a whole session row."""
    return cast(SessionRecord, {**row, "kind": lineage.read_kind(row)})


def _compression_chain(session_id: str) -> sa.Select[Any]:
    parent = SESSIONS.alias("parent")
    edges = SESSIONS.join(parent, parent.c.id == SESSIONS.c.parent_session_id)
    chain = sa.select(SESSIONS.c.id).where(SESSIONS.c.id == session_id).cte("chain", recursive=True)
    following = (
        sa.select(SESSIONS.c.id)
        .select_from(edges.join(chain, chain.c.id == parent.c.id))
        .where(_IS_CONTINUATION, parent.c.end_reason == "compression")
    )
    chain = chain.union(following)
    columns = ("id", "parent_session_id", "started_at", "ended_at", "end_reason", "last_active_at")
    return sa.select(*[SESSIONS.c[name] for name in columns]).join(chain, chain.c.id == SESSIONS.c.id)


def _ancestor_rows(session_id: str) -> sa.Select[Any]:
    """The session and everything above it by parent links, in no order."""
    links = sa.select(SESSIONS.c.id, SESSIONS.c.parent_session_id)
    above = links.where(SESSIONS.c.id == session_id).cte("above", recursive=True)
    above = above.union(links.join(above, SESSIONS.c.id == above.c.parent_session_id))
    columns = (SESSIONS.c.id, SESSIONS.c.parent_session_id, SESSIONS.c.kind, SESSIONS.c.source)
    return sa.select(*columns).join(above, above.c.id == SESSIONS.c.id)


def _clean(source: str, given: dict[str, Any]) -> dict[str, Any]:
    unknown = given.keys() - {*_PLAIN_KEYS, "model_config", "system_prompt", "parent_session_id"}
    if unknown:
        raise TypeError(f"unexpected arguments for a session: {', '.join(sorted(unknown))}")
    values: dict[str, Any] = {"source": _text("source", source) or PLACEHOLDER_SOURCE}
    for key in (*_PLAIN_KEYS, "system_prompt"):
        if given.get(key) is not None:
            values[key] = _text(key, given[key])
    if given.get("parent_session_id"):
        values["parent_session_id"] = require_id("parent_session_id", given["parent_session_id"])
    config = _config_text(given.get("model_config"))
    if config is not None:
        values["model_config"] = config
    return values


def _text(argument: str, value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidArgumentError(argument, "it must be text")
    return clean_text(value)


def _config_text(value: Any) -> str | None:
    """``model_config`` as it is stored: a dict encoded, JSON text exactly as it was given; nothing is NULL."""
    if value is None or value in ({}, ""):
        return None
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise InvalidArgumentError("model_config", "it is not JSON") from error
        if not isinstance(parsed, dict):
            raise InvalidArgumentError("model_config", "it must be a JSON object")
        return clean_text(value)
    if not isinstance(value, Mapping):
        raise InvalidArgumentError("model_config", "it must be a dict or the JSON text of one")
    try:
        return clean_text(dump_json(dict(value)))
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError("model_config", str(error)) from error
