"""Which conversations are old enough to go, and deleting or hiding them (issue 6, item 4; field reports I7, L6, L7).

A conversation is a session that begins one, what continues it, and the delegates of these. It goes as a whole or not at all.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa

from hermes_state.models import CompressionLockRow, MessageRow, SessionTurnLeaseRow
from hermes_state.repositories import lineage_walks
from hermes_state.repositories.base import table_of
from hermes_state.repositories.deleting import DeletingRepository, is_pure_delegate
from hermes_state.repositories.lease_rows import require_seconds
from hermes_state.repositories.session_placing import SESSIONS
from hermes_state.repositories.session_values import optional_text

DEFAULT_DAYS = 90.0
_DAY_SECONDS = 86_400.0
_HEADS_A_PAGE = 200
# About as many as SQLite deletes in a quarter of a second, search index included.
_MESSAGES_A_PAGE = 5_000
_MESSAGES = table_of(MessageRow)
_LEASES = (
    (table_of(CompressionLockRow), "session_id"),
    (table_of(SessionTurnLeaseRow), "conversation_id"),
)
_LAST_ACTIVE = sa.func.coalesce(SESSIONS.c.last_active_at, SESSIONS.c.started_at)
_BEGINS = sa.or_(
    SESSIONS.c.parent_session_id.is_(None),
    SESSIONS.c.kind.in_(("root", "branch", "tool")),
    sa.and_(SESSIONS.c.kind.is_(None), SESSIONS.c.source == "tool"),
)
_BELONGS = sa.or_(lineage_walks.is_continuation(SESSIONS), SESSIONS.c.kind == "delegate")


@dataclass(frozen=True)
class Retention:
    """Which conversations are meant; made by ``retention``."""

    before: float | None
    """Epoch seconds: last active before this. ``None``: of any age."""
    source: str | None = None
    with_open: bool = False
    """Conversations that nobody ended too."""

    def begins(self) -> sa.ColumnElement[bool]:
        """What the first session of such a conversation fulfils."""
        terms = [_BEGINS, sa.not_(SESSIONS.c.pinned), self.is_old()]
        if not self.with_open:
            terms.append(SESSIONS.c.ended_at.is_not(None))
        if self.source is not None:
            terms.append(SESSIONS.c.source == self.source)
        return sa.and_(*terms)

    def is_old(self) -> sa.ColumnElement[bool]:
        """Whether a session was last active before the time."""
        return sa.true() if self.before is None else self.before > _LAST_ACTIVE


class Page(NamedTuple):
    """Some of the conversations meant: the last first session looked at, and the ids of what may go."""

    after: str
    session_ids: list[str]


def retention(older_than_days: Any, source: Any, *, with_open: bool = False) -> Retention:
    """The rule of the arguments: 90 days unless given, any age where only a source is given (field report L7).

    Raises ``InvalidArgumentError`` for days that are negative or no finite number, and for a source that is no text.
    """
    wanted = optional_text("source", source)
    if older_than_days is None:
        older_than_days = DEFAULT_DAYS if wanted is None else None
    if older_than_days is None:
        return Retention(None, wanted, with_open)
    days = require_seconds("older_than_days", older_than_days, zero=True)
    return Retention(time.time() - days * _DAY_SECONDS, wanted, with_open)


class PruningRepository(DeletingRepository):
    """Pages of old conversations; a caller keeps each in a transaction of its own."""

    def candidates(self, rule: Retention, after: str | None) -> Page | None:
        """The next conversations that ``prune`` would delete; ``None`` when there are no more."""
        with self._transaction.verb():
            return self._page(rule, after, locks=False)

    def totals(self, rule: Retention) -> tuple[int, int]:
        """How many sessions ``prune`` would delete in all, and how many messages of every state with them."""
        sessions = messages = 0
        after: str | None = None
        while (page := self.candidates(rule, after)) is not None:
            sessions += len(page.session_ids)
            messages += sum(self._sizes(page.session_ids).values())
            after = page.after
        return sessions, messages

    def prune(self, rule: Retention, after: str | None) -> Page | None:
        """Deletes the next conversations that are old as a whole; ``None`` when there are no more.

        Kept are those with a pinned session, a live lease or compaction lock, an open session, or one of another source.
        """
        with self._transaction.verb():
            page = self._page(rule, after, locks=True)
            if page is not None:
                self.delete_rows(page.session_ids)
            return page

    def archive(self, rule: Retention, after: str | None) -> Page | None:
        """Hides the next conversations that are old as a whole; delegates stay as they are."""
        with self._transaction.verb() as conn:
            page = self._page(rule, after, locks=True)
            if page is None:
                return None
            is_meant = sa.and_(self._is_wanted(SESSIONS.c.id), sa.not_(SESSIONS.c.archived))
            chain = sa.or_(SESSIONS.c.kind.is_(None), SESSIONS.c.kind != "delegate")
            stmt = sa.update(SESSIONS).where(is_meant, chain).values(archived=True, auto_archived=True)
            hidden = conn.scalars(stmt.returning(SESSIONS.c.id), self._bound(page.session_ids)).all()
            return Page(page.after, list(hidden))

    def count_idle_open(self, rule: Retention) -> int:
        """How many sessions are old and unpinned but were never ended, so that ``prune`` keeps them (field report L6)."""
        terms = [SESSIONS.c.ended_at.is_(None), sa.not_(SESSIONS.c.pinned), rule.is_old()]
        if rule.source is not None:
            terms.append(SESSIONS.c.source == rule.source)
        with self._transaction.verb() as conn:
            return conn.scalar(sa.select(sa.func.count()).select_from(SESSIONS).where(*terms)) or 0

    def _page(self, rule: Retention, after: str | None, *, locks: bool) -> Page | None:
        stmt = sa.select(SESSIONS.c.id).where(rule.begins()).order_by(SESSIONS.c.id).limit(_HEADS_A_PAGE)
        if after is not None:
            stmt = stmt.where(after < SESSIONS.c.id)
        heads = list(self._transaction.conn.scalars(stmt))
        if not heads:
            return None
        families = self._families(heads, rule)
        sizes = self._sizes(row["id"] for family in families.values() for row in family)
        taken = _first(heads, families, sizes)
        if locks:
            locked = set(self._lock(row["id"] for head in taken for row in families[head]))
            # Again, because only now nobody changes them, or adds to them.
            families = self._families(taken, rule)
        held = self._held(row["id"] for head in taken for row in families[head])
        found: list[str] = []
        for head in taken:
            ids = [row["id"] for row in families[head]]
            is_ours = not locks or locked.issuperset(ids)
            if is_ours and held.isdisjoint(ids) and _is_old_as_a_whole(families[head], rule):
                found += ids
        return Page(taken[-1], found)

    def _families(self, heads: Sequence[str], rule: Retention) -> dict[str, list[Mapping[str, Any]]]:
        """The sessions of each conversation, its first one first, then whoever belongs to one before."""
        start = sa.select(SESSIONS.c.id, SESSIONS.c.id.label("head")).where(self._is_wanted(SESSIONS.c.id))
        found = start.cte("found", recursive=True)
        following = sa.select(SESSIONS.c.id, found.c.head)
        following = following.join(found, SESSIONS.c.parent_session_id == found.c.id).where(_BELONGS)
        found = found.union(following)
        names = ("id", "parent_session_id", "kind", "source", "model_config", "ended_at", "pinned")
        columns = [SESSIONS.c[name] for name in names]
        stmt = sa.select(found.c.head, rule.is_old().label("is_old"), *columns)
        stmt = stmt.join_from(found, SESSIONS, SESSIONS.c.id == found.c.id)
        rows = self._transaction.conn.execute(stmt, self._bound(heads)).mappings().all()
        below: dict[tuple[str, str | None], list[Mapping[str, Any]]] = {}
        first: dict[str, Mapping[str, Any]] = {}
        for row in rows:
            if row["id"] == row["head"]:
                first[row["head"]] = {**row, "is_work": False}
            else:
                below.setdefault((row["head"], row["parent_session_id"]), []).append(dict(row))
        return {head: _gathered(first[head], below) if head in first else [] for head in heads}

    def _sizes(self, session_ids: Iterable[str]) -> dict[str, int]:
        stmt = sa.select(_MESSAGES.c.session_id, sa.func.count()).where(
            self._is_wanted(_MESSAGES.c.session_id)
        )
        found = self._transaction.conn.execute(
            stmt.group_by(_MESSAGES.c.session_id), self._bound(session_ids)
        )
        return {row[0]: row[1] for row in found}

    def _held(self, session_ids: Iterable[str]) -> set[str]:
        bound = self._bound(session_ids)
        held: set[str] = set()
        for table, key in _LEASES:
            is_live = table.c.expires_at > self._operations.clock()
            stmt = sa.select(table.c[key]).where(self._is_wanted(table.c[key]), is_live)
            held.update(self._transaction.conn.scalars(stmt, bound))
        return held


def _gathered(
    first: Mapping[str, Any], below: Mapping[tuple[str, str | None], list[Mapping[str, Any]]]
) -> list[Mapping[str, Any]]:
    family = [first]
    seen = {first["id"]}
    for parent in family:  # grows as it goes
        for child in below.get((first["head"], parent["id"]), []):
            is_delegate = is_pure_delegate(child["kind"], child["model_config"])
            if child["id"] in seen or (child["kind"] == "delegate" and not is_delegate):
                continue
            seen.add(child["id"])
            family.append({**child, "is_work": is_delegate or parent["is_work"]})
    return family


def _first(
    heads: Sequence[str], families: Mapping[str, list[Mapping[str, Any]]], sizes: Mapping[str, int]
) -> list[str]:
    """As many conversations, in order, as one transaction should delete; at least one."""
    taken: list[str] = []
    total = 0
    for head in heads:
        total += sum(sizes.get(row["id"], 0) for row in families[head])
        if taken and total > _MESSAGES_A_PAGE:
            break
        taken.append(head)
    return taken


def _is_old_as_a_whole(family: Sequence[Mapping[str, Any]], rule: Retention) -> bool:
    """Delegates are often left open, so only their age counts."""
    if not family:
        return False
    return all(row["is_old"] and not row["pinned"] and (row["is_work"] or _fits(row, rule)) for row in family)


def _fits(row: Mapping[str, Any], rule: Retention) -> bool:
    is_done = rule.with_open or row["ended_at"] is not None
    return is_done and (rule.source is None or row["source"] == rule.source)
