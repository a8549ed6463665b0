"""Changing one message where it stands: what was sent for it, its text, how it is displayed (known store, section 2.3).

The session row is locked first, so that no compaction copies the row meanwhile. A message that a compaction has carried
on is changed in the row that carries it now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from hermes_state.codec import PLACE
from hermes_state.errors import InvalidArgumentError
from hermes_state.json_values import dump_json
from hermes_state.payloads import decoded
from hermes_state.repositories import rows
from hermes_state.repositories.counters import SessionCounters
from hermes_state.repositories.message_writes import MessageWrites
from hermes_state.text import is_usable_id

_MESSAGES = rows.MESSAGES
_ID = _MESSAGES.c.id
_ONE: sa.ColumnElement[int] = sa.literal_column("1")


class MessageEdits(MessageWrites):
    """Setters. For a row that is not there they change nothing and say so."""

    def set_api_content(self, session_id: str, row_id: int, api_content: str | None) -> bool:
        """Keeps what was really sent for a message; whether the session shows such a row.

        Raises ``InvalidMessageError`` for what is no text.
        """
        values = self._encoded(session_id, "user", api_content=api_content)
        is_possible = rows.may_be_id("row_id", row_id)
        with self._transaction.verb():
            if not is_possible or not self._locked_if_there(session_id):
                return False
            return self._set(session_id, self._row_of_today(session_id, row_id), values)

    def set_latest_user_api_content(self, session_id: str, api_content: str | None) -> int | None:
        """``set_api_content`` for the newest active user message; its row id, ``None`` when there is none."""
        values = self._encoded(session_id, "user", api_content=api_content)
        with self._transaction.verb():
            if not self._locked_if_there(session_id):
                return None
            newest = self._find("edits.newest_question", _newest_question, session_id)
            if newest is not None:
                self._set(session_id, newest[0], values)
        return None if newest is None else newest[0]

    def set_user_content(self, session_id: str, row_id: int, content: Any) -> None:
        """Replaces the content of an active user message; what was sent for the old one (``api_content``) is forgotten.

        Raises ``SessionNotFoundError``, ``CompressionSessionClosedError``, ``InvalidMessageError`` for content that cannot
        be stored, and ``InvalidArgumentError`` for a row that is no active user message of the session.
        """
        values = self._encoded(session_id, "user", content=content, content_parts=None, api_content=None)
        is_possible = rows.may_be_id("row_id", row_id)
        with self._transaction.verb() as conn:
            SessionCounters(conn, self._operations, session_id).lock()
            present = self._row_of_today(session_id, row_id) if is_possible else None
            found = self._find("edits.question", _active_question, session_id, row_id=present or 0)
            if found is None:
                raise InvalidArgumentError(
                    "row_id", f"session {session_id!r} has no active user message {row_id}"
                )
            self._set(session_id, found[0], values)

    def set_matching_display_kind(
        self,
        session_id: str,
        role: str,
        content: Any,
        display_kind: str | None,
        display_metadata: Mapping[str, Any] | None = None,
    ) -> int | None:
        """Says how the newest active message of this role and content is displayed; its row id, or ``None``.

        ``display_metadata`` is merged into what is there. Raises ``InvalidMessageError`` for what cannot be stored,
        and ``InvalidArgumentError`` for metadata that is no dict.
        """
        if display_metadata is not None and not isinstance(display_metadata, Mapping):
            raise InvalidArgumentError("display_metadata", "it must be a dict")
        given = self._encoded(
            session_id, role, content=content, content_parts=None, display_kind=display_kind,
            display_metadata=display_metadata,
        )  # fmt: skip
        wanted = {"role": given["role"], "content": given["content"], "parts": given["content_parts"]}
        with self._transaction.verb():
            if not self._locked_if_there(session_id):
                return None
            found = self._find("edits.matching", _newest_matching, session_id, **wanted)
            if found is None:
                return None
            changed = {"display_kind": given["display_kind"]}
            if given["display_metadata"] is not None:
                merged = metadata_of(found[1]) | decoded(given["display_metadata"])
                changed["display_metadata"] = dump_json(merged)
            self._set(session_id, found[0], changed)
        return int(found[0])

    def _encoded(self, session_id: str, role: str, **keys: Any) -> dict[str, Any]:
        """The columns of ``keys`` as a message that holds them is stored: the one validator decides."""
        given = {key: value for key, value in keys.items() if value is not None}
        (encoded,) = self.encode(session_id, [{"role": role, **given}])
        return {name: encoded.values[PLACE[name]] for name in ("role", *keys)}

    def _locked_if_there(self, session_id: str) -> bool:
        if not is_usable_id(session_id):
            return False
        return SessionCounters(self._transaction.conn, self._operations, session_id).lock_if_there()

    def _row_of_today(self, session_id: str, row_id: int) -> int | None:
        row = rows.present(self._transaction, session_id, row_id)
        return None if row is None else int(row.id)

    def _find(self, key: str, build: Any, session_id: str, **values: Any) -> Any:
        stmt = self._operations.compiled(key, build)
        found = stmt.execute(self._transaction.conn, session_id=session_id, **values).fetchall()
        return found[0] if found else None

    def _set(self, session_id: str, row_id: int | None, values: Mapping[str, Any]) -> bool:
        changed = {name: value for name, value in values.items() if name != "role"}
        stmt = self._operations.compiled(("edits.set", *changed), lambda: _setting(list(changed)))
        bound = {f"new_{name}": value for name, value in changed.items()}
        found = stmt.execute(self._transaction.conn, session_id=session_id, row_id=row_id or 0, **bound)
        return found.fetchall() != []


def metadata_of(text: Any) -> dict[str, Any]:
    """The object in a stored ``display_metadata`` text; what another program wrote instead of one is kept under ``value``."""
    if text is None:
        return {}
    value = decoded(text)
    if isinstance(value, dict):
        return value
    return {"value": text if value is None else value}


def _setting(names: list[str]) -> sa.Executable:
    values = {name: sa.bindparam(f"new_{name}", type_=_MESSAGES.c[name].type) for name in names}
    stmt = sa.update(_MESSAGES).where(rows.OF_SESSION, sa.bindparam("row_id") == _ID, rows.VISIBLE)
    return stmt.values(values).returning(_ID)


def _newest_question() -> sa.Executable:
    return rows.newest(rows.ACTIVE, _MESSAGES.c.role == "user", columns=("id",)).limit(_ONE)


def _active_question() -> sa.Executable:
    is_row = sa.bindparam("row_id", type_=sa.BigInteger) == _ID
    return sa.select(_ID).where(rows.OF_SESSION, is_row, rows.ACTIVE, _MESSAGES.c.role == "user")


def _newest_matching() -> sa.Executable:
    conditions = (
        _MESSAGES.c.role == sa.bindparam("role"),
        _MESSAGES.c.content.is_not_distinct_from(sa.bindparam("content", type_=sa.Text())),
        sa.cast(_MESSAGES.c.content_parts, sa.Text()).is_not_distinct_from(
            sa.bindparam("parts", type_=sa.Text())
        ),
    )
    return rows.newest(rows.ACTIVE, *conditions, columns=("id", "display_metadata")).limit(_ONE)
