"""Deleting sessions, with everything that depends on them (issue 6, item 4; known-store.md 2.12; field reports L1 to L4).

Messages, reactions and usage go by their foreign keys; leases and prompts, which have none, are taken away here. Delegates
go with their parent. Continuations become roots; branches and tool runs only lose their parent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, cast

import sqlalchemy as sa

from hermes_state import lineage
from hermes_state.errors import DeletionConflictError, InvalidArgumentError
from hermes_state.models import CompressionLockRow, MessageRow, SessionTurnLeaseRow
from hermes_state.repositories import begun_deletions, lineage_walks, system_prompts
from hermes_state.repositories.base import table_of
from hermes_state.repositories.session_placing import SESSIONS, SessionPlacing
from hermes_state.text import is_usable_id

# About as many as SQLite deletes in a twentieth of a second; with a search index it takes longer.
MESSAGES_A_PART = 5_000
_MESSAGES = table_of(MessageRow)
_LOCKS = table_of(CompressionLockRow)
_TURNS = table_of(SessionTurnLeaseRow)
_CHILDREN = SESSIONS.alias("children")
_HAS_ROWS = sa.exists().where(_MESSAGES.c.session_id == SESSIONS.c.id)
_HAS_CHILDREN = sa.exists().where(_CHILDREN.c.parent_session_id == SESSIONS.c.id)
_HAS_DELEGATES = sa.exists().where(
    _CHILDREN.c.parent_session_id == SESSIONS.c.id, _CHILDREN.c.kind == "delegate"
)
# A delegate may hold what its parent does not, so a parent that is empty itself is kept with it.
_EMPTY = sa.and_(
    SESSIONS.c.ended_at.is_not(None),
    sa.not_(SESSIONS.c.archived),
    sa.not_(SESSIONS.c.pinned),
    ~_HAS_ROWS,
    ~_HAS_DELEGATES,
)


class DeletingRepository(SessionPlacing):
    """Deleting inside the unit of work. Ids that are unknown, or that no session can have, are passed over."""

    def targets(self, session_ids: Iterable[Any]) -> list[str]:
        """Those of ``session_ids`` that exist, then their delegates at any depth: all that ``delete`` would delete."""
        with self._transaction.verb():
            return self._targets(usable_ids(session_ids), locks=False)

    def check_expected(self, session_ids: Iterable[Any], expected: Any) -> None:
        """Raises ``DeletionConflictError`` where ``expected`` is given and does not name one that ``delete`` would delete."""
        with self._transaction.verb():
            self._allowed_targets(session_ids, expected, locks=False)

    def delete_part(self, session_ids: Iterable[Any], expected: Any = None) -> list[str] | None:
        """Deletes like ``delete``, but not more messages than a short transaction can; ``None``: call again for the rest.

        Returns every id that went. What has too many messages is marked, hidden and archived first, and loses its oldest ones.
        """
        with self._transaction.verb():
            found = self._allowed_targets(session_ids, expected, locks=True)
            if self.thin(found):
                return None
            self.delete_rows(found)
        return found

    def thin(self, session_ids: Sequence[str]) -> bool:
        """Where these locked sessions hold too many messages for one transaction: deletes their oldest; whether it did."""
        conn = self._transaction.conn
        held = sa.select(_MESSAGES.c.id).where(self._is_wanted(_MESSAGES.c.session_id))
        counted = sa.select(sa.func.count()).select_from(held.limit(MESSAGES_A_PART + 1).subquery())
        if (conn.scalar(counted, self._bound(session_ids)) or 0) <= MESSAGES_A_PART:
            return False
        self._transaction.wrote()
        begun_deletions.begin(self._transaction, session_ids)
        hidden = sa.update(SESSIONS).where(self._is_wanted(SESSIONS.c.id), sa.not_(SESSIONS.c.hidden))
        conn.execute(hidden.values(hidden=True, archived=True), self._bound(session_ids))
        left = MESSAGES_A_PART
        for session_id in session_ids:
            left -= self._delete_oldest(session_id, left)
            if not left:
                break
        return True

    def _delete_oldest(self, session_id: str, limit: int) -> int:
        oldest = (
            sa.select(_MESSAGES.c.id).where(_MESSAGES.c.session_id == session_id).order_by(_MESSAGES.c.id)
        )
        part = sa.delete(_MESSAGES).where(_MESSAGES.c.id.in_(oldest.limit(limit)))
        calls = sa.case((_MESSAGES.c.active, self._operations.list_length(_MESSAGES.c.tool_calls)))
        gone = self._transaction.conn.execute(part.returning(_MESSAGES.c.active, calls)).all()
        left = {
            "message_count": SESSIONS.c.message_count - sum(bool(active) for active, _ in gone),
            "tool_call_count": SESSIONS.c.tool_call_count - sum(number or 0 for _, number in gone),
        }
        counts = {name: sa.case((value < 0, 0), else_=value) for name, value in left.items()}
        self._transaction.conn.execute(sa.update(SESSIONS).where(SESSIONS.c.id == session_id).values(counts))
        return len(gone)

    def delete(self, session_ids: Iterable[Any], expected: Any = None) -> tuple[int, list[str]]:
        """Deletes the sessions and their delegates: how many of ``session_ids`` there were, and every id that went.

        Raises ``DeletionConflictError`` where ``expected`` is given and does not name one that would go.
        """
        with self._transaction.verb():
            found = self._allowed_targets(session_ids, expected, locks=True)
            self.delete_rows(found)
        return len(usable_ids(session_ids).keys() & set(found)), found

    def delete_if_empty(self, session_id: str) -> bool:
        """Deletes a session without rows, title and children, open or ended; whether it did."""
        nothing = sa.and_(SESSIONS.c.title.is_(None), ~_HAS_ROWS, ~_HAS_CHILDREN)
        with self._transaction.verb() as conn:
            if not is_usable_id(session_id) or self.locked(session_id) is None:
                return False
            # A statement of its own: what others committed while the lock was waited for counts.
            stmt = sa.select(SESSIONS.c.id).where(SESSIONS.c.id == session_id, nothing)
            is_empty = conn.scalar(stmt) is not None
            if is_empty:
                self.delete_rows([session_id])
        return is_empty

    def count_empty(self) -> int:
        """How many sessions ``delete_empty`` would delete in all."""
        with self._transaction.verb() as conn:
            return conn.scalar(sa.select(sa.func.count()).select_from(SESSIONS).where(self._is_empty())) or 0

    def delete_empty(self, limit: int) -> list[str]:
        """Deletes ended sessions that never had a message, not archived, pinned or leased, without delegates; their ids.

        ``limit`` bounds the number, so that a caller can keep the transaction short.
        """
        page = sa.select(SESSIONS.c.id).where(self._is_empty()).order_by(SESSIONS.c.id).limit(limit)
        with self._transaction.verb() as conn:
            locked = self._lock(conn.scalars(page).all())
            still = sa.select(SESSIONS.c.id).where(self._is_wanted(SESSIONS.c.id), self._is_empty())
            found = sorted(conn.scalars(still, self._bound(locked)))
            self.delete_rows(found)
        return found

    def delete_rows(self, session_ids: Collection[str]) -> None:
        """Deletes these sessions, which the caller has locked, and no others."""
        if not session_ids:
            return
        conn, bound = self._transaction.conn, self._bound(session_ids)
        self._transaction.wrote()
        self._make_roots(session_ids)
        conn.execute(sa.delete(_LOCKS).where(self._is_wanted(_LOCKS.c.session_id)), bound)
        conn.execute(sa.delete(_TURNS).where(self._is_wanted(_TURNS.c.conversation_id)), bound)
        hashes = sa.select(SESSIONS.c.system_prompt_hash).where(self._is_wanted(SESSIONS.c.id)).distinct()
        prompts = conn.scalars(hashes, bound).all()
        begun_deletions.end(self._transaction, session_ids)
        conn.execute(sa.delete(SESSIONS).where(self._is_wanted(SESSIONS.c.id)), bound)
        system_prompts.drop_unused(self._transaction, prompts)

    def _allowed_targets(self, session_ids: Iterable[Any], expected: Any, *, locks: bool) -> list[str]:
        wanted, allowed = usable_ids(session_ids), expected_ids(expected)
        found = self._targets(wanted, locks=locks)
        if allowed is not None and not allowed.issuperset(found):
            raise DeletionConflictError(sorted(set(found) - allowed))
        return found

    def _targets(self, wanted: Iterable[str], *, locks: bool) -> list[str]:
        # Each level is locked before its children are looked for: nobody can add one from then on.
        present = self._lock if locks else self.present
        found = dict.fromkeys(present(list(wanted)))
        passed = {**found, **self._above(found)}
        level = list(found)
        while level:
            level = list(present([each for each in self._delegates_of(level) if each not in passed]))
            found |= dict.fromkeys(level)
            passed |= dict.fromkeys(level)
        return list(found)

    def _lock(self, session_ids: Iterable[str]) -> Sequence[str]:
        stmt = sa.select(SESSIONS.c.id).where(self._is_wanted(SESSIONS.c.id)).order_by(SESSIONS.c.id)
        return self._transaction.conn.scalars(stmt.with_for_update(), self._bound(session_ids)).all()

    def _above(self, session_ids: Iterable[str]) -> dict[str, None]:
        """Whoever is above one of the sessions: in a circle of delegates, none of them goes."""
        start = sa.select(SESSIONS.c.id, SESSIONS.c.parent_session_id).where(self._is_wanted(SESSIONS.c.id))
        found = start.cte("above", recursive=True)
        parents = sa.select(SESSIONS.c.id, SESSIONS.c.parent_session_id)
        found = found.union(parents.join(found, SESSIONS.c.id == found.c.parent_session_id))
        return dict.fromkeys(self._transaction.conn.scalars(sa.select(found.c.id), self._bound(session_ids)))

    def _delegates_of(self, parents: Iterable[str]) -> list[str]:
        stmt = sa.select(SESSIONS.c.id, SESSIONS.c.kind, SESSIONS.c.model_config).where(
            self._is_wanted(SESSIONS.c.parent_session_id),
            sa.or_(SESSIONS.c.kind == "delegate", SESSIONS.c.kind.is_(None)),
        )
        found = self._transaction.conn.execute(stmt, self._bound(parents))
        return [row.id for row in found if is_pure_delegate(row.kind, row.model_config)]

    def _make_roots(self, session_ids: Collection[str]) -> None:
        """Lets the conversations that continue the deleted sessions begin with what is left of them."""
        conn, bound = self._transaction.conn, self._bound(session_ids)
        is_left = ~self._is_wanted(SESSIONS.c.id)
        is_first = sa.and_(self._is_wanted(SESSIONS.c.parent_session_id), is_left)
        continues = lineage_walks.is_continuation(SESSIONS)
        first = sa.select(SESSIONS.c.id, SESSIONS.c.id.label("root")).where(is_first, continues)
        found = first.cte("found", recursive=True)
        following = sa.select(SESSIONS.c.id, found.c.root).join(
            found, SESSIONS.c.parent_session_id == found.c.id
        )
        found = found.union(following.where(continues, is_left))
        followed = sa.update(SESSIONS).where(SESSIONS.c.id == found.c.id, found.c.id != found.c.root)
        conn.execute(followed.values(root_session_id=found.c.root), bound)
        begun = {"parent_session_id": None, "kind": "root", "root_session_id": None}
        conn.execute(sa.update(SESSIONS).where(is_first, continues).values(begun), bound)

    def _is_empty(self) -> sa.ColumnElement[bool]:
        """Nothing was written, and nobody is about to: whoever holds a live lease is."""
        conversation = sa.func.coalesce(SESSIONS.c.root_session_id, SESSIONS.c.id)
        now = self._operations.clock()
        turn = sa.exists().where(_TURNS.c.conversation_id == conversation, _TURNS.c.expires_at > now)
        lock = sa.exists().where(_LOCKS.c.session_id == SESSIONS.c.id, _LOCKS.c.expires_at > now)
        return sa.and_(_EMPTY, ~turn, ~lock)

    def _is_wanted(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
        return self._operations.is_any_of(column, "wanted")

    def _bound(self, session_ids: Iterable[str]) -> dict[str, Any]:
        return {"wanted": self._operations.list_value(session_ids)}


def usable_ids(session_ids: Iterable[Any]) -> dict[str, None]:
    """What can be an id, each once and in order; ``InvalidArgumentError`` for what is no list of ids."""
    if isinstance(session_ids, (str, bytes, Mapping)) or not isinstance(session_ids, Iterable):
        raise InvalidArgumentError("session_ids", "it must be a list of session ids")
    return dict.fromkeys(cast("str", each) for each in session_ids if is_usable_id(each))


def expected_ids(given: Any) -> frozenset[str] | None:
    """The ids that a caller agreed to lose; ``None`` for any, ``InvalidArgumentError`` for what is no list of ids."""
    if given is None:
        return None
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise InvalidArgumentError("expected_delete_ids", "it must be a list of session ids")
    return frozenset(each for each in given if isinstance(each, str))


def is_pure_delegate(kind: str | None, model_config: str | None) -> bool:
    """Whether the session only worked for its parent; a branch that inherited the marker is none (field report L4)."""
    config = lineage.parsed_config(model_config)
    return bool(kind == "delegate" or config.get("_delegate_from")) and not config.get("_branched_from")
