"""Writing checked sessions: rows, place in the lineage, counters, strip."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from hermes_state.codec import PLACE
from hermes_state.records import ImportReport
from hermes_state.repositories import rows, satellites
from hermes_state.repositories.base import Repository, Transaction, starts_with
from hermes_state.repositories.counters import SessionCounters
from hermes_state.repositories.import_entries import (
    ImportEntry,
    ImportLimits,
    MessagePart,
    OnExisting,
    Successor,
    checked_entries,
    in_order,
)
from hermes_state.repositories.messages import MessageRepository
from hermes_state.repositories.reactions import ReactionRepository
from hermes_state.repositories.session_placing import SESSIONS
from hermes_state.repositories.sessions import SessionRepository
from hermes_state.text import MAX_ID_CHARACTERS

UNKNOWN_SUCCESSOR = 0
"""No row has this id: what carries the message on is not (yet) in this store, and the message stays superseded."""

_ACTIVE, _SESSION = PLACE["active"], PLACE["session_id"]
_MESSAGES = rows.MESSAGES


@dataclass(slots=True)
class NewSession:
    """A session that an import is writing: the id it got, and what was counted so far."""

    session_id: str
    is_detached: bool = False
    active: int = 0
    calls: int = 0
    has_carrier: bool = False


class SessionImports(Repository):
    """Importing; every verb runs inside the caller's transaction."""

    def __init__(self, transaction: Transaction) -> None:
        super().__init__(transaction)
        self._sessions = SessionRepository(transaction)
        self._messages = MessageRepository(transaction)

    def import_sessions(
        self,
        sessions: Sequence[Any],
        *,
        on_existing: OnExisting = "skip",
        limits: ImportLimits | None = None,
    ) -> ImportReport:
        """Imports sessions as ``export_session`` gives them; the report says what became of each.

        Everything is checked first: one bad entry, and nothing is written. Ids that exist are skipped, or imported
        under the id ``<id>-2`` (``on_existing="rename"``), which parents in the list follow. Parents may come in any order;
        one that is missing, or would close a circle, is left out (``detached``). ``limits``: ``ImportLimits()`` by default.
        Raises ``InvalidArgumentError`` when ``sessions`` is no list, or longer than the limit.
        """
        entries, errors = checked_entries(
            sessions, on_existing, limits or ImportLimits(), self._transaction.max_text_bytes
        )
        if errors:
            return report([], {}, [], [], errors)
        return self.import_entries(entries, on_existing)

    def import_entries(self, entries: Sequence[ImportEntry], on_existing: OnExisting) -> ImportReport:
        """``import_sessions`` of a list that was checked before."""
        with self._transaction.verb():
            self._transaction.wrote()
            new = self._write(in_order(entries), on_existing)
        wanted = [entry.session_id for entry in entries]
        detached = [id_ for id_ in wanted if id_ in new and new[id_].is_detached]
        renamed = {id_: new[id_].session_id for id_ in wanted if id_ in new and new[id_].session_id != id_}
        return report(
            [new[id_].session_id for id_ in wanted if id_ in new],
            renamed,
            [id_ for id_ in wanted if id_ not in new],
            detached,
            [],
        )

    def begin(
        self, entry: ImportEntry, renamed: Mapping[str, str], on_existing: OnExisting = "skip"
    ) -> NewSession | None:
        """Inserts the session without messages; ``None`` when its id exists and is to be skipped.

        ``renamed`` holds the new ids of sessions of the same import. A parent must have been imported before.
        """
        with self._transaction.verb():
            self._transaction.wrote()
            parent_id = renamed.get(entry.parent_id or "", entry.parent_id)
            new = NewSession(entry.session_id)
            if parent_id is not None and not self._sessions.exists(parent_id):
                parent_id, new.is_detached = None, True
            columns = self._columns(entry, parent_id)
            if not self._insert(new.session_id, columns):
                if on_existing == "skip":
                    return None
                new.session_id = self._insert_renamed(entry.session_id, columns)
            ReactionRepository(self._transaction).add_imported(new.session_id, entry.reactions)
            satellites.insert_rows(self._transaction.conn, new.session_id, entry.others)
        return new

    def write_messages(self, new: NewSession, parts: Iterable[MessagePart]) -> list[Successor]:
        """Writes the messages of a session that ``begin`` inserted, whatever their state; counters and strip follow.

        Returns what ``set_successors`` is to be told.
        """
        successors: list[Successor] = []
        with self._transaction.verb() as conn:
            for part in parts:
                self._add_messages(new, part)
                successors += part.successors
            SessionCounters(conn, self._operations, new.session_id).set(new.active, new.calls)
            if new.has_carrier:
                self._operations.strip_shadowed_checkpoints(conn, new.session_id)
        return successors

    def set_successors(self, successors: Iterable[Successor], *, only_pending: bool = False) -> None:
        """Tells superseded rows which row carries them on. Where that is not in the store, they count as superseded all
        the same, and are pending; rows that know their successor already are left alone.
        """
        with self._transaction.verb():
            for successor in successors:
                row_id = self._row_id(successor.to_session_id, successor.to_message_uid)
                self._set_successor(
                    successor, UNKNOWN_SUCCESSOR if row_id is None else row_id, only_pending=only_pending
                )

    def _add_messages(self, new: NewSession, part: MessagePart) -> None:
        if not part.messages:
            return
        for message in part.messages:
            message.values[_SESSION] = new.session_id
        self._messages.insert_new(new.session_id, part.messages)
        active = [message for message in part.messages if message.values[_ACTIVE]]
        new.active += len(active)
        new.calls += sum(message.tool_call_count for message in active)
        new.has_carrier = new.has_carrier or any(message.is_carrier for message in active)

    def _write(self, entries: Sequence[ImportEntry], on_existing: OnExisting) -> dict[str, NewSession]:
        new: dict[str, NewSession] = {}
        renamed: dict[str, str] = {}
        successors: list[Successor] = []
        for entry in entries:
            session = self.begin(entry, renamed, on_existing)
            if session is None:
                continue
            new[entry.session_id] = session
            renamed[entry.session_id] = session.session_id
            successors += self.write_messages(session, [entry.part])
        self.set_successors(followed(successor, renamed) for successor in successors)
        return new

    def _columns(self, entry: ImportEntry, parent_id: str | None) -> dict[str, Any]:
        columns = self._sessions.with_stored_prompt(entry.columns)
        columns.setdefault("started_at", time.time())
        columns.setdefault("source", "unknown")
        columns["parent_session_id"] = parent_id
        if "title" in columns:
            columns["title"] = self._free_title(columns["title"])
        return columns | self._sessions.place_of(columns, entry.columns.get("kind"))

    def _insert(self, session_id: str, columns: Mapping[str, Any]) -> bool:
        stmt = self._operations.insert(SESSIONS).values({**columns, "id": session_id})
        stmt = stmt.on_conflict_do_nothing(index_elements=["id"])
        return self._transaction.conn.execute(stmt.returning(SESSIONS.c.id)).first() is not None

    def _insert_renamed(self, session_id: str, columns: Mapping[str, Any]) -> str:
        """Inserts under the first free ``<id>-2``, ``<id>-3``, ... and returns it."""
        number = 1
        while True:
            number += 1
            ending = f"-{number}"
            candidate = session_id[: MAX_ID_CHARACTERS - len(ending)] + ending
            if self._insert(candidate, columns):
                return candidate

    def _free_title(self, title: str) -> str:
        """``title``, or the first ``title #N`` from 2 on that no session of the store has."""
        numbered = sa.select(SESSIONS.c.title).where(starts_with(SESSIONS.c.title, title))
        taken = set(self._transaction.conn.scalars(numbered))
        candidate, number = title, 1
        while candidate in taken:
            number += 1
            candidate = f"{title} #{number}"
        return candidate

    def _row_id(self, session_id: str | None, message_uid: str | None) -> int | None:
        if session_id is None or message_uid is None:
            return None
        stmt = self._operations.compiled("importing.row_id", _row_id_stmt)
        return stmt.execute(
            self._transaction.conn, session_id=session_id, message_uid=message_uid
        ).scalar_one_or_none()

    def _set_successor(self, successor: Successor, row_id: int, *, only_pending: bool) -> None:
        stmt = self._operations.compiled(
            ("importing.successor", only_pending), lambda: _successor_stmt(only_pending)
        )
        stmt.execute(
            self._transaction.conn,
            session_id=successor.session_id,
            message_uid=successor.message_uid,
            successor=row_id,
        )


def followed(successor: Successor, renamed: Mapping[str, str]) -> Successor:
    """``successor`` with the ids that its sessions got."""
    return replace(
        successor,
        session_id=renamed.get(successor.session_id, successor.session_id),
        to_session_id=renamed.get(successor.to_session_id or "", successor.to_session_id),
    )


def report(
    imported: list[str],
    renamed: dict[str, str],
    skipped: list[str],
    detached: list[str],
    errors: list[dict[str, Any]],
) -> ImportReport:
    """The report of an import; ids under which sessions were imported, and ids that the list gave."""
    return {
        "ok": not errors,
        "imported": len(imported),
        "skipped": len(skipped),
        "detached": len(detached),
        "imported_ids": imported,
        "skipped_ids": skipped,
        "detached_ids": detached,
        "renamed_ids": renamed,
        "errors": errors,
    }


def _row_id_stmt() -> sa.Executable:
    return sa.select(_MESSAGES.c.id).where(
        rows.OF_SESSION, _MESSAGES.c.message_uid == sa.bindparam("message_uid")
    )


def _successor_stmt(only_pending: bool) -> sa.Executable:
    # A row of a session that was there before is pending when it says so, not when it says nothing.
    found = (
        _MESSAGES.c.superseded_by
        if only_pending
        else sa.func.coalesce(_MESSAGES.c.superseded_by, UNKNOWN_SUCCESSOR)
    )
    stmt = sa.update(_MESSAGES).where(
        rows.OF_SESSION, _MESSAGES.c.message_uid == sa.bindparam("message_uid"), found == UNKNOWN_SUCCESSOR
    )
    return stmt.values(superseded_by=sa.bindparam("successor", type_=sa.BigInteger))
