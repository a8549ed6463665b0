"""Pages of sessions as their owner sees them (issue 6, item 1; known-store.md 2.5; weak points W6, W7, W8, W11).

A page costs three statements whatever the store holds: the rows, the live ends of their chains, the previews.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import sqlalchemy as sa

from hermes_state import lineage
from hermes_state.errors import InvalidArgumentError
from hermes_state.records import ListedSession, SessionPage
from hermes_state.repositories import lineage_walks, rows
from hermes_state.repositories.base import Repository, require_count
from hermes_state.repositories.session_filters import (
    ACTIVITY,
    SessionFilters,
    ascii_lower,
    conditions,
    contains,
)
from hermes_state.repositories.session_placing import SESSIONS
from hermes_state.repositories.sessions import WHOLE_ROW, session_record
from hermes_state.text import clean_text, is_usable_id
from hermes_state.types import Equals

_MESSAGES = rows.MESSAGES
_NO_CURSOR = "it is not a next_cursor of such a page"
_MEMBER = SESSIONS.alias("member")
_PREVIEW_CHARACTERS, _READ_FOR_PREVIEW = 60, 1_000
# What the live end of a chain says in the place of its first session, which keeps its own start.
_OF_THE_TIP = (
    "id", "ended_at", "end_reason", "message_count", "tool_call_count", "title", "title_source", "last_active_at", "model",
    "model_config", "system_prompt", "system_prompt_hash", "cwd", "git_branch", "git_repo_root", "last_activity_at",
    "last_activity_description", "last_activity_provenance",
)  # fmt: skip


class SessionListRepository(Repository):
    """Lists and counts by the same predicates. One odd row of another program never breaks a page."""

    def page(
        self,
        limit: int = 20,
        offset: int = 0,
        *,
        cursor: str | None = None,
        order_by_last_active: bool = False,
        project_compression_tips: bool = True,
        **filters: Any,
    ) -> SessionPage:
        """One page and the cursor of the next; see ``SessionDB.list_sessions_rich`` and ``list_sessions_page``."""
        wanted = cast("SessionFilters", filters)
        by_chain = order_by_last_active and not filters.get("include_children")
        order = ACTIVITY if order_by_last_active else SESSIONS.c.started_at
        stmt = self._by_activity_of_chains(wanted) if by_chain else self._plain(wanted, order)
        stmt = stmt.limit(require_count("limit", limit) + 1).offset(require_count("offset", offset))
        if cursor is not None:
            value, session_id = self._decoded_cursor(cursor)
            place = sa.tuple_(*self._place(order, by_chain=by_chain))
            stmt = stmt.where(place < sa.tuple_(value, sa.literal(session_id, SESSIONS.c.id.type)))
        with self._transaction.verb() as conn:
            found = conn.execute(stmt).mappings().all()
            shown = self._shown(
                found[:limit], project=project_compression_tips and not filters.get("include_children")
            )
        following = found[limit - 1] if limit and len(found) > limit else None
        return {"sessions": shown, "next_cursor": None if following is None else _cursor_of(following)}

    def count(self, **filters: Any) -> int:
        """How many sessions a list with these filters shows in all."""
        stmt = sa.select(sa.func.count()).select_from(SESSIONS)
        stmt = stmt.where(*conditions(self._operations, cast("SessionFilters", filters)))
        with self._transaction.verb() as conn:
            return conn.scalar(stmt) or 0

    def has_at_least(self, number: int, **filters: Any) -> bool:
        """Whether a list with these filters shows that many; stops counting there."""
        least = require_count("number", number)
        stmt = sa.select(SESSIONS.c.id).where(*conditions(self._operations, cast("SessionFilters", filters)))
        with self._transaction.verb() as conn:
            return len(conn.execute(stmt.limit(least)).all()) >= least

    def count_by_source(self, **filters: Any) -> dict[str, int]:
        """How many sessions of each source a list shows, by name."""
        stmt = sa.select(SESSIONS.c.source, sa.func.count())
        stmt = stmt.where(*conditions(self._operations, cast("SessionFilters", filters)))
        with self._transaction.verb() as conn:
            found = conn.execute(stmt.group_by(SESSIONS.c.source)).all()
        return dict(sorted((str(source), number) for source, number in found))

    def by_id(self, query: Any, limit: int = 20, *, include_archived: bool = True) -> list[ListedSession]:
        """Sessions whose id is ``query``, begins with it, or holds it, in that order; case does not count."""
        part = ascii_lower(clean_text(query)) if isinstance(query, str) else ""
        if not part:
            return []
        low = self._operations.ascii_lower(SESSIONS.c.id)
        begins = sa.func.substr(low, 1, len(part)) == part
        rank = sa.case((low == part, 0), (begins, 1), else_=2)
        stmt = WHOLE_ROW.add_columns(ACTIVITY.label("_value"), SESSIONS.c.id.label("_place")).where(
            contains(low, part)
        )
        if not include_archived:
            stmt = stmt.where(sa.not_(SESSIONS.c.archived))
        stmt = stmt.order_by(rank, ACTIVITY.desc(), SESSIONS.c.id.desc()).limit(require_count("limit", limit))
        with self._transaction.verb() as conn:
            return self._shown(conn.execute(stmt).mappings().all(), project=False)

    def _decoded_cursor(self, cursor: Any) -> tuple[sa.ColumnElement[Any], str]:
        """Where a page ended. Other programs may have stored text or bytes for times in SQLite; those are given back."""
        try:
            value, session_id = json.loads(base64.urlsafe_b64decode(cursor.encode("ascii")))
            if isinstance(value, dict):
                value = bytes.fromhex(value["blob"])
            elif isinstance(value, str):
                value.encode()
            else:
                value = _time(value)
            session_id.encode()
        except (AttributeError, KeyError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise InvalidArgumentError("cursor", _NO_CURSOR) from error
        is_odd = not isinstance(value, float) or not is_usable_id(session_id)
        is_nan = isinstance(value, float) and math.isnan(value)
        if is_nan or (is_odd and not self._operations.is_embedded):
            raise InvalidArgumentError("cursor", _NO_CURSOR)
        return sa.literal(value, sa.Double if isinstance(value, float) else None), session_id

    def _plain(self, filters: SessionFilters, order: sa.ColumnElement[Any]) -> sa.Select[Any]:
        stmt = WHOLE_ROW.add_columns(order.label("_value"), SESSIONS.c.id.label("_place"))
        return stmt.where(*conditions(self._operations, filters)).order_by(order.desc(), SESSIONS.c.id.desc())

    def _by_activity_of_chains(self, filters: SessionFilters) -> sa.Select[Any]:
        """Walks the index of activity; a conversation counts at its most recently active session, once."""
        member, later = _MEMBER, SESSIONS.alias("later")
        first = sa.func.coalesce(member.c.root_session_id, member.c.id)
        of_same = sa.or_(later.c.root_session_id == first, later.c.id == first)
        is_later = sa.tuple_(_activity(later), later.c.id) > sa.tuple_(_activity(member), member.c.id)
        stmt = WHOLE_ROW.add_columns(_activity(member).label("_value"), member.c.id.label("_place"))
        stmt = stmt.join(member, first == SESSIONS.c.id)
        stmt = stmt.where(*conditions(self._operations, filters), ~sa.exists().where(of_same, is_later))
        return stmt.order_by(_activity(member).desc(), member.c.id.desc())

    def _place(self, order: sa.ColumnElement[Any], *, by_chain: bool) -> Sequence[sa.ColumnElement[Any]]:
        if by_chain:
            return (_activity(_MEMBER), _MEMBER.c.id)
        return (order, SESSIONS.c.id)

    def _shown(self, found: Sequence[sa.RowMapping], *, project: bool) -> list[ListedSession]:
        page = [{name: value for name, value in row.items() if not name.startswith("_")} for row in found]
        records = [cast("dict[str, Any]", session_record(row)) for row in page]
        if project:
            self._project(records)
        previews = self._previews([record["id"] for record in records])
        for record, row in zip(records, found, strict=True):
            activity = record["last_active_at"]
            record["preview"] = previews.get(record["id"], "")
            record["last_active"] = record["started_at"] if activity is None else activity
            if isinstance(row["_value"], float) and project:
                record["last_active"] = max((record["last_active"], row["_value"]), key=_number)
        return cast("list[ListedSession]", records)

    def _project(self, records: list[dict[str, Any]]) -> None:
        """A session that was ended by compression is shown as the live end of its chain."""
        compressed = [record["id"] for record in records if record["end_reason"] == "compression"]
        if not compressed:
            return
        chains = lineage_walks.chains_below(self._transaction.conn, self._operations, compressed)
        tips = {session_id: lineage.tip_of(session_id, chains) for session_id in compressed}
        for record in records:
            tip = tips.get(record["id"], record["id"])
            if tip != record["id"]:
                record["_lineage_root_id"] = record["id"]
                whole = chains[tip]
                record |= {name: whole[name] for name in _OF_THE_TIP}

    def _previews(self, session_ids: Iterable[str]) -> dict[str, str]:
        """The beginning of each session's first shown user text, in one line."""
        wanted = self._operations.list_value([each for each in session_ids if is_usable_id(each)])
        first = (
            sa.select(sa.func.substr(_MESSAGES.c.content, 1, _READ_FOR_PREVIEW))
            .where(
                Equals(_MESSAGES.c.session_id, SESSIONS.c.id),
                _MESSAGES.c.role == "user",
                rows.VISIBLE,
                _MESSAGES.c.content != "",
                _MESSAGES.c.display_kind.is_distinct_from("hidden"),
            )
            .order_by(_MESSAGES.c.session_id, _MESSAGES.c.id)
            .limit(1)
        )
        stmt = sa.select(SESSIONS.c.id, first.scalar_subquery())
        stmt = stmt.where(self._operations.is_any_of(SESSIONS.c.id, "wanted"))
        found = self._transaction.conn.execute(stmt, {"wanted": wanted}).all()
        return {session_id: _preview(text) for session_id, text in found if text is not None}


def _activity(sessions: sa.FromClause) -> sa.ColumnElement[Any]:
    return sa.func.coalesce(sessions.c.last_active_at, sessions.c.started_at)


def _number(value: Any) -> float:
    return value if isinstance(value, (int, float)) else 0.0


def _preview(text: Any) -> str:
    line = " ".join((text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)).split())
    return line if len(line) <= _PREVIEW_CHARACTERS else f"{line[:_PREVIEW_CHARACTERS]}..."


def _time(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError("true and false are no times")
    return float(value)


def _cursor_of(row: Mapping[Any, Any]) -> str:
    value = row["_value"]
    if isinstance(value, bytes):  # SQLite orders a BLOB of another program behind numbers and texts
        value = {"blob": value.hex()}
    return base64.urlsafe_b64encode(json.dumps([value, row["_place"]]).encode()).decode()
