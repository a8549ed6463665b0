"""Sessions as plain dicts: export with every message whatever its state, import with validation first.

Plain form of issue 2: dicts out, dicts in. Row ids are not carried over; everything else is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from hermes_state.codec import MESSAGE_COLUMNS, EncodedMessage, encode_batch
from hermes_state.errors import InvalidArgumentError, InvalidMessageError
from hermes_state.models import KINDS
from hermes_state.records import ImportReport
from hermes_state.repositories.base import Repository, Transaction
from hermes_state.repositories.counters import SessionCounters
from hermes_state.repositories.messages import MessageRepository
from hermes_state.repositories.session_placing import SESSIONS
from hermes_state.repositories.sessions import SessionRepository
from hermes_state.text import clean_text, is_usable_id

_ACTIVE = MESSAGE_COLUMNS.index("active")
# Worked out from the rows, or from the place where a session lands.
_DERIVED = ("message_count", "tool_call_count", "last_active_at", "system_prompt_hash", "root_session_id")


@dataclass(slots=True)
class _Entry:
    """One checked session of an import."""

    session_id: str
    columns: dict[str, Any]
    messages: list[EncodedMessage]
    parent_id: str | None = None
    states: list[bool] = field(default_factory=list)


class PortableRepository(Repository):
    """Export and import of whole sessions."""

    def __init__(self, transaction: Transaction) -> None:
        super().__init__(transaction)
        self._sessions = SessionRepository(transaction)
        self._messages = MessageRepository(transaction)

    def export_session(self, session_id: str) -> dict[str, Any] | None:
        """The session's columns and, under ``messages``, all its rows in insertion order; or ``None``."""
        session = self._sessions.get(session_id)
        if session is None:
            return None
        messages: list[dict[str, Any]] = [
            dict(row) for row in self._messages.get(session_id, include_inactive=True)
        ]
        for message in messages:
            del message["id"]
        return {**session, "messages": messages}

    def import_sessions(self, sessions: Sequence[Any]) -> ImportReport:
        """Imports sessions as ``export_session`` gives them; the report says what became of each.

        Everything is checked first: one bad entry, and nothing is written. Ids that exist are skipped. Parents may
        come in any order; one that is missing, or would close a circle, is left out (``detached``). Raises
        ``InvalidArgumentError`` when ``sessions`` is no list.
        """
        if isinstance(sessions, (str, bytes, Mapping)) or not isinstance(sessions, Sequence):
            raise InvalidArgumentError("sessions", "it must be a list of session dicts")
        entries, errors = self._checked(sessions)
        if errors:
            return _report([], [], [], errors)
        with self._transaction.verb():
            self._transaction.wrote()
            new = [entry for entry in entries if self._insert(entry)]
            detached = self._attach_parents(new)
            for entry in new:
                self._insert_messages(entry)
        imported = {entry.session_id for entry in new}
        skipped = [entry.session_id for entry in entries if entry.session_id not in imported]
        return _report([entry.session_id for entry in new], skipped, detached, [])

    def _checked(self, sessions: Sequence[Any]) -> tuple[list[_Entry], list[dict[str, Any]]]:
        entries: list[_Entry] = []
        errors: list[dict[str, Any]] = []
        seen: set[str] = set()
        for index, session in enumerate(sessions):
            try:
                entry = self._entry(session, seen)
            except (InvalidArgumentError, InvalidMessageError) as error:
                errors.append({"index": index, "session_id": _claimed_id(session), "error": str(error)})
                continue
            seen.add(entry.session_id)
            entries.append(entry)
        return entries, errors

    def _entry(self, session: Any, seen: set[str]) -> _Entry:
        if not isinstance(session, Mapping):
            raise InvalidArgumentError("session", "it must be a dict")
        session_id = session.get("id")
        if not isinstance(session_id, str) or not is_usable_id(session_id):
            raise InvalidArgumentError("id", "a session needs an id of 1 to 512 characters")
        if session_id in seen:
            raise InvalidArgumentError("id", f"session {session_id!r} stands twice in the list")
        messages = session.get("messages") or []
        if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
            raise InvalidArgumentError("messages", "it must be a list")
        encoded = encode_batch(
            messages,
            session_id=session_id,
            max_text_bytes=self._transaction.max_text_bytes,
            clock=time.time,
            stored_states=True,
        )
        columns = {
            c.name: _column_value(c, session[c.name]) for c in SESSIONS.c if session.get(c.name) is not None
        }
        for name in _DERIVED:
            columns.pop(name, None)
        parent_id = columns.pop("parent_session_id", None)
        states = [bool(message.values[_ACTIVE]) for message in encoded]
        return _Entry(session_id, columns, encoded, parent_id, states)

    def _insert(self, entry: _Entry) -> bool:
        columns = self._sessions.with_stored_prompt(entry.columns)
        columns.setdefault("started_at", time.time())
        if "title" in columns:
            columns["title"] = self._free_title(columns["title"])
        stmt = self._operations.insert(SESSIONS).values(columns).on_conflict_do_nothing(index_elements=["id"])
        return self._transaction.conn.execute(stmt.returning(SESSIONS.c.id)).first() is not None

    def _free_title(self, title: str) -> str:
        """``title``, or the first ``title #N`` from 2 on that no session of the store has."""
        candidate, number = title, 1
        while self._transaction.conn.scalar(sa.select(SESSIONS.c.id).where(SESSIONS.c.title == candidate)):
            number += 1
            candidate = f"{title} #{number}"
        return candidate

    def _attach_parents(self, entries: Sequence[_Entry]) -> list[str]:
        """Sets the parents of new sessions, then their place in the lineage; returns the ids left without parent."""
        detached = []
        for entry in entries:
            if entry.parent_id is None:
                continue
            if self._sessions.may_be_parent(entry.parent_id, of=entry.session_id):
                self._update(entry.session_id, parent_session_id=entry.parent_id)
            else:
                detached.append(entry.session_id)
        self._place(entries)
        return detached

    def _place(self, entries: Sequence[_Entry]) -> None:
        """Sets kind and root of each new session, parents before children."""
        waiting = {entry.session_id: entry for entry in entries}
        for session_id in list(waiting):
            for ancestor in self._sessions.line_above(session_id):
                if (entry := waiting.pop(ancestor, None)) is not None:
                    self._update(ancestor, **self._sessions.place_of(ancestor, entry.columns.get("kind")))

    def _update(self, session_id: str, **values: Any) -> None:
        self._transaction.conn.execute(sa.update(SESSIONS).where(SESSIONS.c.id == session_id).values(values))

    def _insert_messages(self, entry: _Entry) -> None:
        if not entry.messages:
            return
        conn = self._transaction.conn
        self._messages.insert_new(entry.session_id, entry.messages)
        active = [m for m, is_active in zip(entry.messages, entry.states, strict=True) if is_active]
        calls = sum(m.tool_call_count for m in active)
        SessionCounters(conn, self._operations, entry.session_id).set(len(active), calls)
        if any(m.is_carrier for m in active):
            self._operations.strip_shadowed_checkpoints(conn, entry.session_id)


def _claimed_id(session: Any) -> str | None:
    claimed = session.get("id") if isinstance(session, Mapping) else None
    return claimed if isinstance(claimed, str) else None


def _report(
    imported: list[str], skipped: list[str], detached: list[str], errors: list[dict[str, Any]]
) -> ImportReport:
    return {
        "ok": not errors,
        "imported": len(imported),
        "skipped": len(skipped),
        "detached": len(detached),
        "imported_ids": imported,
        "skipped_ids": skipped,
        "errors": errors,
    }


def _column_value(column: sa.Column[Any], value: Any) -> Any:
    """``value`` as the column stores it; raises ``InvalidArgumentError`` for one of another type or out of range."""
    if isinstance(column.type, sa.Boolean):
        if value in (0, 1) and isinstance(value, int):
            return bool(value)
        raise InvalidArgumentError(column.name, "it must be true or false")
    if isinstance(column.type, sa.Integer):
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63:
            return value
        raise InvalidArgumentError(column.name, "it must be a whole number from 0 to 2**63 - 1")
    if isinstance(column.type, sa.Float):
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
        raise InvalidArgumentError(column.name, "it must be a finite number")
    if not isinstance(value, str):
        raise InvalidArgumentError(column.name, "it must be text")
    if column.name == "kind" and value not in KINDS:
        raise InvalidArgumentError("kind", f"it must be one of {', '.join(KINDS)}")
    return clean_text(value)
