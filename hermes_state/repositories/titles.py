"""Titles of sessions. The unique index decides who has one; a lost race is undone to a savepoint (N1 to N3, E6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from hermes_state import lineage, titles
from hermes_state.errors import (
    ConstraintViolationError,
    InvalidArgumentError,
    StoreBusyError,
    TitleConflictError,
)
from hermes_state.repositories import lineage_walks
from hermes_state.repositories.base import starts_with
from hermes_state.repositories.session_placing import SESSIONS, SessionPlacing
from hermes_state.text import clean_text, is_usable_id

_ATTEMPTS = 20


class TitleRepository(SessionPlacing):
    """Naming and finding by name. Titles are compared letter by letter; no character is a wildcard."""

    def get(self, session_id: str) -> tuple[str | None, str | None]:
        """Title and who gave it; two ``None`` for an unknown session."""
        stmt = sa.select(SESSIONS.c.title, SESSIONS.c.title_source).where(SESSIONS.c.id == session_id)
        with self._transaction.verb() as conn:
            row = conn.execute(stmt).first() if is_usable_id(session_id) else None
        return (None, None) if row is None else (row[0], row[1])

    def set(self, session_id: str, title: str | None) -> bool:
        """Names the session for its user, nothing takes the name away; whether there is such a session.

        A title that a compression ancestor has moves here. Raises ``TitleConflictError`` for that of another session, and
        ``InvalidArgumentError`` for one that is too long.
        """
        name = titles.sanitize_title(title)
        with self._transaction.verb():
            if self._locked(session_id) is None:
                return False
            if name is None:
                self._write(session_id, None, None)
                return True
            for _ in range(_ATTEMPTS):
                owner = self._owner(name)
                if owner not in (None, session_id):
                    self._take_over(session_id, name, str(owner))
                if self._try(session_id, name, titles.USER):
                    return True
            raise StoreBusyError("others keep giving that title away")

    def set_auto(self, session_id: str, title: str | None, source: str) -> str | None:
        """Names the session by rule or by a model; returns the name it got, ``None`` when it keeps what it has.

        Only a name of lower rank is replaced (derived < llm < user). One that is taken gets a number: ``notes #2``.
        """
        if source not in titles.RANKS or source == titles.USER:
            known = ", ".join(name for name in titles.RANKS if name != titles.USER)
            raise InvalidArgumentError("source", f"it must be one of {known}")
        name = titles.sanitize_title(title)
        with self._transaction.verb():
            stored = self._locked(session_id)
            if stored is None or name is None:
                return None
            if not titles.may_replace(stored["title"], stored["title_source"], source):
                return None
            for _ in range(_ATTEMPTS):
                owner = self._owner(name)
                candidate = name if owner in (None, session_id) else self.next_in_lineage(name)
                if self._try(session_id, candidate, source):
                    return candidate
            raise StoreBusyError("others keep taking the next free number of that title")

    def set_source(self, session_id: str, source: str | None) -> None:
        """Says who gave the title: a source of ``titles.RANKS``, or ``None`` for nobody knows."""
        if source is not None and source not in titles.RANKS:
            raise InvalidArgumentError("source", f"it must be one of {', '.join(titles.RANKS)}, or None")
        with self._transaction.verb() as conn:
            if is_usable_id(session_id):
                conn.execute(
                    sa.update(SESSIONS).where(SESSIONS.c.id == session_id).values(title_source=source)
                )

    def owner_of(self, title: str) -> str | None:
        """The session of exactly this title, or ``None``."""
        with self._transaction.verb():
            return self._owner(_wanted(title))

    def resolve(self, title: str) -> str | None:
        """The newest session among those named ``title #N``; without any, the one of exactly this title."""
        name = _wanted(title)
        with self._transaction.verb():
            variants = [row for row in self._variants(name) if row.title != name]
            if not variants:
                return self._owner(name)
        return str(max(variants, key=lambda row: (row.started_at, row.id)).id)

    def next_in_lineage(self, base: str) -> str:
        """``base`` without its number if nobody has it, else with the number after the highest; the plain one counts as 1."""
        name = titles.sanitize_title(base)
        if name is None:
            raise InvalidArgumentError("base", "it is empty")
        name, _ = titles.split_number(name)
        with self._transaction.verb():
            numbers = [titles.split_number(row.title)[1] for row in self._variants(name)]
        return titles.numbered(name, max(numbers) + 1) if numbers else name

    def _locked(self, session_id: str) -> Mapping[str, Any] | None:
        return self.locked(session_id) if is_usable_id(session_id) else None

    def _owner(self, title: str) -> str | None:
        return self._transaction.conn.scalar(sa.select(SESSIONS.c.id).where(SESSIONS.c.title == title))

    def _variants(self, base: str) -> list[Any]:
        """Sessions named ``base``, or ``base`` and a number."""
        # A long base is cut to make room for its number, so the variants begin with what is left of it.
        stem = titles.numbered(base, 999_999_999)[: -len(" #999999999")]
        stmt = sa.select(SESSIONS.c.id, SESSIONS.c.title, SESSIONS.c.started_at)
        found = self._transaction.conn.execute(stmt.where(starts_with(SESSIONS.c.title, stem))).all()
        return [row for row in found if row.title == base or _is_variant(row.title, base)]

    def _take_over(self, session_id: str, title: str, owner: str) -> None:
        found = lineage_walks.above(self._transaction.conn, session_id, continuations_only=True)
        if owner not in lineage.compressed_above(session_id, found):
            raise TitleConflictError(title, owner)
        self._transaction.wrote()
        self._write(owner, None, None, only_if=title)

    def _try(self, session_id: str, title: str, source: str) -> bool:
        """Whether the unique index let the title through; a refusal leaves the transaction as it was."""
        try:
            with self._transaction.conn.begin_nested():
                self._write(session_id, title, source)
        except ConstraintViolationError:
            if self._owner(title) is None:
                raise
            return False
        return True

    def _write(
        self, session_id: str, title: str | None, source: str | None, *, only_if: str | None = None
    ) -> None:
        stmt = sa.update(SESSIONS).where(SESSIONS.c.id == session_id)
        if only_if is not None:
            stmt = stmt.where(SESSIONS.c.title == only_if)
        self._transaction.conn.execute(stmt.values(title=title, title_source=source))


def _wanted(title: Any) -> str:
    if not isinstance(title, str):
        raise InvalidArgumentError("title", "it must be text")
    return clean_text(title)


def _is_variant(title: str, base: str) -> bool:
    stem, number = titles.split_number(title)
    return number > 1 and title == titles.numbered(base, number) and bool(stem)
