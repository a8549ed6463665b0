"""Windows into a session for display: what stands around a row, and the latest questions.

Every view is a range of the index on (session, id): a number of statements that depends neither on the session's
length nor on the window's. Rewound rows are never shown (known store, section 2.4 and W2).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa

from hermes_state.decoding import READ_COLUMNS, decode_row
from hermes_state.errors import InvalidArgumentError
from hermes_state.records import AnchoredView, MessageRecord, MessageWindow, RecentUserMessage
from hermes_state.repositories import rows
from hermes_state.repositories.base import require_count
from hermes_state.repositories.message_reads import MessageReads
from hermes_state.text import clean_text, is_usable_id

_MESSAGES = rows.MESSAGES
_ID = _MESSAGES.c.id
_ANCHOR = sa.bindparam("anchor", type_=sa.BigInteger)
_AT_MOST = sa.bindparam("at_most", type_=sa.BigInteger)
_ID_PLACE = READ_COLUMNS.index("id")
HIDDEN = "hidden"
"""The ``display_kind`` of a program's scaffolding, which is sent to the model but shown to nobody."""
_MOST_ROWS = 2**31
_PREVIEW_CHARACTERS = 80
_READ_FOR_PREVIEW = 4_000
_NO_TEXT = "[multimodal content]"


class MessageViews(MessageReads):
    """Reads for display; an unknown session or anchor gives an empty view."""

    def around(self, session_id: str, anchor_id: int, window: int = 5) -> MessageWindow:
        """The anchor with up to ``window`` visible rows on each side, in insertion order; two statements.

        A count below ``window`` means that the session begins or ends there. Empty when the anchor is no visible row of
        the session. A negative window is 0.
        """
        width = _at_least_zero("window", window)
        upto = self._rows(session_id, anchor_id, "upto", width + 1)
        if not upto or upto[-1]["id"] != anchor_id:
            return {"window": [], "messages_before": 0, "messages_after": 0}
        after = self._rows(session_id, anchor_id, "after", width) if width else []
        return {"window": upto + after, "messages_before": len(upto) - 1, "messages_after": len(after)}

    def anchored_view(
        self,
        session_id: str,
        anchor_id: int,
        window: int = 5,
        bookend: int = 3,
        keep_roles: Collection[str] | None = ("user", "assistant"),
    ) -> AnchoredView:
        """``around`` of which only ``keep_roles`` and the anchor stay, and the session's first and last messages.

        ``bookend_start`` and ``bookend_end`` are up to ``bookend`` rows of those roles that have text and stand outside the
        window, in insertion order. ``keep_roles=None`` keeps every role. Three statements at most.
        """
        roles = _roles(keep_roles)
        count = _at_least_zero("bookend", bookend)
        found = self.around(session_id, anchor_id, window)
        view: AnchoredView = {**found, "bookend_start": [], "bookend_end": []}
        if not found["window"]:
            return view
        first, last = found["window"][0]["id"], found["window"][-1]["id"]
        view["window"] = [
            m for m in found["window"] if roles is None or m["role"] in roles or m["id"] == anchor_id
        ]
        if count and roles != []:
            outside = self._bookends(session_id, (first, last), count, roles)
            view["bookend_start"] = [m for m in outside if m["id"] < first]
            view["bookend_end"] = [m for m in outside if m["id"] > last]
        return view

    def recent_user_messages(
        self, session_id: str, limit: int = 20, include_inactive: bool = False
    ) -> list[RecentUserMessage]:
        """The latest user messages, newest first, each with a preview of at most 80 characters in one line."""
        at_most = min(require_count("limit", limit), _MOST_ROWS)
        stmt = self._operations.compiled(
            ("views.recent", include_inactive), lambda: _recent_questions(include_inactive)
        )
        with self._transaction.verb() as conn:
            if not is_usable_id(session_id):
                return []
            found: Sequence[Any] = stmt.execute(conn, session_id=session_id, at_most=at_most).all()
        return [
            {"id": row_id, "timestamp": timestamp, "preview": _preview(text, bool(is_longer), has_parts)}
            for row_id, timestamp, text, is_longer, has_parts in found
        ]

    def _rows(self, session_id: str, anchor_id: int, side: str, count: int) -> list[MessageRecord]:
        is_possible = rows.may_be_id("anchor_id", anchor_id)

        def build() -> sa.Executable:
            if side == "after":
                return rows.select(rows.VISIBLE, _ID > _ANCHOR).limit(_AT_MOST)
            return rows.newest(rows.VISIBLE, _ID <= _ANCHOR).limit(_AT_MOST)

        with self._transaction.verb() as conn:
            if not is_usable_id(session_id) or not is_possible:
                return []
            stmt = self._operations.compiled(("views", side), build)
            found = list(stmt.execute(conn, session_id=session_id, anchor=anchor_id, at_most=count))
        return [decode_row(row) for row in (found if side == "after" else reversed(found))]

    def _bookends(
        self, session_id: str, window: tuple[int, int], count: int, roles: Sequence[str] | None
    ) -> list[MessageRecord]:
        stmt = self._operations.compiled(
            ("views.bookends", roles is None), lambda: self._bookends_of(with_roles=roles is not None)
        )
        values = {"first": window[0], "last": window[1], "at_most": count}
        if roles is not None:
            values["roles"] = self._operations.list_value(roles)
        with self._transaction.verb() as conn:
            found = stmt.execute(conn, session_id=session_id, **values).all()
        return [decode_row(row) for row in sorted(found, key=lambda row: row[_ID_PLACE])]

    def _bookends_of(self, *, with_roles: bool) -> sa.Executable:
        conditions = [rows.VISIBLE, _MESSAGES.c.content != ""]
        if with_roles:
            conditions.append(self._operations.is_any_of(_MESSAGES.c.role, "roles"))
        before, after = sa.bindparam("first", type_=sa.BigInteger), sa.bindparam("last", type_=sa.BigInteger)
        start = rows.select(*conditions, before > _ID).limit(_AT_MOST).subquery()
        end = rows.newest(*conditions, after < _ID).limit(_AT_MOST)
        return sa.union_all(sa.select(start), sa.select(end.subquery()))


def _recent_questions(include_inactive: bool) -> sa.Executable:
    conditions = (
        [_MESSAGES.c.role == "user"] if include_inactive else [_MESSAGES.c.role == "user", rows.ACTIVE]
    )
    conditions.append(_MESSAGES.c.display_kind.is_distinct_from(HIDDEN))
    return (
        rows.newest(*conditions)
        .with_only_columns(
            _ID,
            _MESSAGES.c.timestamp,
            sa.func.substr(_MESSAGES.c.content, 1, _READ_FOR_PREVIEW),
            sa.func.length(_MESSAGES.c.content) > _READ_FOR_PREVIEW,
            _MESSAGES.c.content_parts.is_not(None),
        )
        .limit(_AT_MOST)
    )


def _at_least_zero(argument: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgumentError(argument, "it must be a whole number")
    return min(max(value, 0), _MOST_ROWS)


def _roles(keep_roles: Collection[str] | None) -> list[str] | None:
    if keep_roles is None:
        return None
    if isinstance(keep_roles, str) or not all(isinstance(role, str) for role in keep_roles):
        raise InvalidArgumentError("keep_roles", "it must be a list of roles, or None")
    return sorted(clean_text(role) for role in keep_roles)


def _preview(text: Any, is_longer: bool, has_parts: bool) -> str:
    if isinstance(text, bytes):  # another program may have stored bytes in a text column of SQLite
        text = text.decode("utf-8", "replace")
    line = " ".join((text or "").split())
    if not line and has_parts:
        return _NO_TEXT
    if is_longer or len(line) > _PREVIEW_CHARACTERS:
        return line[: _PREVIEW_CHARACTERS - 3] + "..."
    return line
