"""Walks over parent links: one recursive statement each, whatever the length.

Cycles that another program made end, because UNION drops a session that was reached already (known store, W8, W39).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import sqlalchemy as sa

from hermes_state.models import SessionRow
from hermes_state.repositories.base import table_of

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


def above(conn: sa.Connection, session_id: str) -> Links:
    """The session and everything above it by parent links."""
    links = sa.select(SESSIONS.c.id, SESSIONS.c.parent_session_id)
    found = links.where(SESSIONS.c.id == session_id).cte("above", recursive=True)
    found = found.union(links.join(found, SESSIONS.c.id == found.c.parent_session_id))
    return _links(conn, found)


def continuations_below(conn: sa.Connection, session_id: str, *, compressed_only: bool) -> Links:
    """The session and what continues it, at any depth; over compression edges only if ``compressed_only``."""
    return _links(conn, _below(_start(session_id, "start"), compressed_only=compressed_only))


def connected_by_compression(conn: sa.Connection, session_id: str) -> Links:
    """Every session of the compression chains through the session: up to the first one, and all below that."""
    child, parent = SESSIONS.alias("child"), SESSIONS.alias("parent")
    upwards = _start(session_id, "upwards")
    upwards = upwards.union(
        sa.select(parent.c.id)
        .select_from(
            upwards.join(child, child.c.id == upwards.c.id).join(
                parent, parent.c.id == child.c.parent_session_id
            )
        )
        .where(is_continuation(child), parent.c.end_reason == "compression")
    )
    return _links(conn, _below(upwards, compressed_only=True))


def _start(session_id: str, name: str) -> sa.CTE:
    return sa.select(SESSIONS.c.id).where(SESSIONS.c.id == session_id).cte(name, recursive=True)


def _below(start: sa.CTE, *, compressed_only: bool) -> sa.CTE:
    child, parent = SESSIONS.alias("follower"), SESSIONS.alias("followed")
    below = sa.select(start.c.id).cte("below", recursive=True)
    edges = below.join(parent, parent.c.id == below.c.id).join(
        child, child.c.parent_session_id == parent.c.id
    )
    following = sa.select(child.c.id).select_from(edges).where(is_continuation(child))
    if compressed_only:
        following = following.where(parent.c.end_reason == "compression")
    return below.union(following)


def _links(conn: sa.Connection, found: sa.CTE) -> Links:
    columns = [SESSIONS.c[name] for name in _LINK_COLUMNS]
    stmt = sa.select(*columns).join(found, found.c.id == SESSIONS.c.id)
    rows = cast("list[Mapping[str, Any]]", conn.execute(stmt).mappings().all())
    return {row["id"]: row for row in rows}
