"""Which conversations are old enough to go, and deleting or hiding them (issue 6, item 4; field reports I7, L6, L7).

A conversation is a session that begins one, what continues it, and the delegates of these. It goes as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from hermes_state.models import CompressionLockRow, MessageRow, SessionTurnLeaseRow
from hermes_state.repositories import begun_deletions, lineage_walks
from hermes_state.repositories.base import table_of
from hermes_state.repositories.deleting import MESSAGES_A_PART, DeletingRepository, is_pure_delegate
from hermes_state.repositories.retention_rules import Retention
from hermes_state.repositories.session_placing import SESSIONS

_HEADS_A_PAGE = 200
_MESSAGES = table_of(MessageRow)
_LEASES = (
    (table_of(CompressionLockRow), "session_id"),
    (table_of(SessionTurnLeaseRow), "conversation_id"),
)
_READ = (
    "id", "parent_session_id", "kind", "model_config", "started_at", "ended_at", "end_reason", "pinned", "archived",
    "message_count", "estimated_cost_usd", "actual_cost_usd",
)  # fmt: skip
_BELONGS = sa.or_(lineage_walks.is_continuation(SESSIONS), SESSIONS.c.kind == "delegate")


class Page(NamedTuple):
    """Some of the conversations meant: the last first session looked at, and the ids of what may go."""

    after: str
    session_ids: list[str]


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
        """Deletes the next conversations that the rule means; ``None`` when there are no more.

        Kept are those with a pinned session, a live lease or compaction lock, or an open session. One that is too big for a
        short transaction loses its oldest messages, and is looked at again: the page then names nothing and ends where it began.
        """
        with self._transaction.verb():
            page = self._page(rule, after, locks=True)
            if page is None:
                return None
            if self.thin(page.session_ids):
                return Page(after or "", [])
            self.delete_rows(page.session_ids)
            return page

    def archive(self, rule: Retention, after: str | None) -> Page | None:
        """Hides the next conversations that the rule means; delegates stay as they are."""
        with self._transaction.verb() as conn:
            page = self._page(rule, after, locks=True)
            if page is None:
                return None
            stmt = sa.update(SESSIONS).where(self._is_wanted(SESSIONS.c.id))
            conn.execute(stmt.values(archived=True, auto_archived=True), self._bound(page.session_ids))
            return page

    def count_idle_open(self, rule: Retention) -> int:
        """How many sessions are old and unpinned but were never ended, so that ``prune`` keeps them (field report L6)."""
        stmt = sa.select(sa.func.count()).select_from(SESSIONS).where(rule.idle_open(self._operations))
        with self._transaction.verb() as conn:
            return conn.scalar(stmt) or 0

    def _page(self, rule: Retention, after: str | None, *, locks: bool) -> Page | None:
        stmt = (
            sa.select(SESSIONS.c.id)
            .where(rule.begins(self._operations))
            .order_by(SESSIONS.c.id)
            .limit(_HEADS_A_PAGE)
        )
        if after is not None:
            stmt = stmt.where(after < SESSIONS.c.id)
        heads = list(self._transaction.conn.scalars(stmt))
        if not heads:
            return None
        families = self._families(heads, rule)
        named = {head: names for head in heads if (names := rule.names(families[head]))}
        taken = _first(named, self._sizes(each for names in named.values() for each in names))
        if locks:
            locked = set(self._lock(row["id"] for head in taken for row in families[head]))
            # Again, because only now nobody changes them, or adds to them.
            families = self._families(taken, rule)
        held = self._held(row["id"] for head in taken for row in families[head])
        found: list[str] = []
        for head in taken:
            ids = [row["id"] for row in families[head]]
            if held.isdisjoint(ids) and (not locks or locked.issuperset(ids)):
                found += rule.names(families[head])
        return Page(heads[-1] if len(taken) == len(named) else taken[-1], found)

    def _families(self, heads: Sequence[str], rule: Retention) -> dict[str, list[Mapping[str, Any]]]:
        """The sessions of each conversation, its first one first, then whoever belongs to one before."""
        start = sa.select(SESSIONS.c.id, SESSIONS.c.id.label("head")).where(self._is_wanted(SESSIONS.c.id))
        found = start.cte("found", recursive=True)
        following = sa.select(SESSIONS.c.id, found.c.head)
        following = following.join(found, SESSIONS.c.parent_session_id == found.c.id).where(_BELONGS)
        found = found.union(following)
        columns = [SESSIONS.c[name] for name in _READ]
        judged = {"is_old": rule.is_old(), "fits": rule.fits(self._operations), "is_named": rule.is_named()}
        stmt = sa.select(found.c.head, *columns, *(term.label(name) for name, term in judged.items()))
        stmt = stmt.join_from(found, SESSIONS, SESSIONS.c.id == found.c.id)
        rows = self._as_before(self._transaction.conn.execute(stmt, self._bound(heads)).mappings().all())
        below: dict[tuple[str, str | None], list[Mapping[str, Any]]] = {}
        first: dict[str, Mapping[str, Any]] = {}
        for row in rows:
            if row["id"] == row["head"]:
                first[row["head"]] = {**row, "is_work": False, "is_first": True}
            else:
                below.setdefault((row["head"], row["parent_session_id"]), []).append(row)
        return {head: _gathered(first[head], below) if head in first else [] for head in heads}

    def _as_before(self, found: Sequence[Mapping[Any, Any]]) -> list[dict[str, Any]]:
        """With the numbers of messages from before a deletion that was begun: what is left of them says nothing any more."""
        before = begun_deletions.begun(self._transaction, {row["id"] for row in found})
        return [{**row, "message_count": before.get(row["id"], row["message_count"])} for row in found]

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
            family.append({**child, "is_work": is_delegate or parent["is_work"], "is_first": False})
    return family


def _first(named: Mapping[str, Iterable[str]], sizes: Mapping[str, int]) -> list[str]:
    """As many conversations, in order, as one transaction should delete; at least one."""
    taken: list[str] = []
    total = 0
    for head, session_ids in named.items():
        total += sum(sizes.get(session_id, 0) for session_id in session_ids)
        if taken and total > MESSAGES_A_PART:
            break
        taken.append(head)
    return taken
