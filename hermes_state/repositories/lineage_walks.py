"""Walks over parent links: one recursive statement each, whatever the length.

Cycles that another program made end, because UNION drops a session that was reached already (known store, W8, W39).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import sqlalchemy as sa

from hermes_state.dialects import DialectOperations
from hermes_state.models import SessionRow
from hermes_state.repositories.base import table_of
from hermes_state.repositories.system_prompts import PROMPTS

SESSIONS = table_of(SessionRow)
Links = dict[str, Mapping[str, Any]]

_LINK_COLUMNS = (
    "id", "parent_session_id", "root_session_id", "kind", "source", "started_at", "ended_at", "end_reason",
    "last_active_at",
)  # fmt: skip


def is_continuation(sessions: sa.FromClause) -> sa.ColumnElement[bool]:
    """Whether the row continues its parent; a row without kind is one of another program."""
    return sa.and_(
        sessions.c.parent_session_id.is_not(None),
        sa.or_(
            sessions.c.kind == "continuation", sa.and_(sessions.c.kind.is_(None), sessions.c.source != "tool")
        ),
    )


def above(conn: sa.Connection, session_id: str, *, continuations_only: bool = False) -> Links:
    """The session and everything above it by parent links; only as long as one is a continuation if asked."""
    found = _start(session_id).cte("above", recursive=True)
    parents = sa.select(*_columns(SESSIONS)).join(found, SESSIONS.c.id == found.c.parent_session_id)
    if continuations_only:
        parents = parents.where(is_continuation(found))
    return _links(conn, found.union(parents))


def continuations_below(conn: sa.Connection, session_id: str, *, compressed_only: bool) -> Links:
    """The session and what continues it, at any depth; over compression edges only if ``compressed_only``."""
    return _links(conn, _below(_start(session_id), compressed_only=compressed_only))


def chains_below(conn: sa.Connection, operations: DialectOperations, session_ids: Sequence[str]) -> Links:
    """Whole rows of the sessions and of what continues them over compression edges; one statement for all."""
    wanted = operations.is_any_of(SESSIONS.c.id, "wanted", session_ids)
    found = _below(sa.select(*_columns(SESSIONS)).where(wanted), compressed_only=True)
    prompt = sa.func.coalesce(SESSIONS.c.system_prompt, PROMPTS.c.prompt).label("system_prompt")
    stmt = (
        sa.select(*[prompt if column.name == "system_prompt" else column for column in SESSIONS.c])
        .join_from(SESSIONS, found, found.c.id == SESSIONS.c.id)
        .outerjoin(PROMPTS, PROMPTS.c.hash == SESSIONS.c.system_prompt_hash)
    )
    return {row["id"]: row for row in cast("list[Mapping[str, Any]]", conn.execute(stmt).mappings().all())}


def connected_by_compression(conn: sa.Connection, session_id: str) -> Links:
    """Every session of the compression chains through the session: up to the first one, and all below that."""
    upwards = _start(session_id).cte("upwards", recursive=True)
    parents = sa.select(*_columns(SESSIONS)).join(upwards, SESSIONS.c.id == upwards.c.parent_session_id)
    upwards = upwards.union(parents.where(is_continuation(upwards), SESSIONS.c.end_reason == "compression"))
    return _links(conn, _below(sa.select(*_columns(upwards)), compressed_only=True))


def _start(session_id: str) -> sa.Select[Any]:
    return sa.select(*_columns(SESSIONS)).where(SESSIONS.c.id == session_id)


def _below(start: sa.Select[Any], *, compressed_only: bool) -> sa.CTE:
    # All columns travel along, so that a step is one look-up by parent; equal rows are the same session.
    below = start.cte("below", recursive=True)
    following = sa.select(*_columns(SESSIONS)).join(below, SESSIONS.c.parent_session_id == below.c.id)
    following = following.where(is_continuation(SESSIONS))
    if compressed_only:
        following = following.where(below.c.end_reason == "compression")
    return below.union(following)


def _columns(sessions: sa.FromClause) -> list[sa.ColumnElement[Any]]:
    return [sessions.c[name] for name in _LINK_COLUMNS]


def _links(conn: sa.Connection, found: sa.CTE) -> Links:
    rows = cast("list[Mapping[str, Any]]", conn.execute(sa.select(found)).mappings().all())
    return {row["id"]: row for row in rows}
