"""Entries of an import, checked before anything is written (known store, section 2.11; field reports R1, R6)."""

from __future__ import annotations

import time
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, Protocol, TypeVar

from hermes_state.codec import PLACE, EncodedMessage, encode_batch
from hermes_state.errors import HermesStateError, InvalidArgumentError, InvalidMessageError
from hermes_state.repositories import satellites
from hermes_state.repositories.column_values import column_value
from hermes_state.repositories.exporting import RUNTIME_KEYS, SUCCESSOR_KEY
from hermes_state.repositories.reactions import checked_reactions
from hermes_state.repositories.session_placing import SESSIONS
from hermes_state.text import MAX_ID_CHARACTERS, is_usable_id

OnExisting = Literal["skip", "rename"]

# Worked out from the rows, or from the place where a session lands.
_DERIVED = (
    "message_count", "tool_call_count", "last_active_at", "system_prompt_hash", "root_session_id", "parent_session_id",
)  # fmt: skip
_TAKEN = [c for c in SESSIONS.c if c.name not in (*_DERIVED, *RUNTIME_KEYS, "id")]
_UID = PLACE["message_uid"]
_MIB = 1024 * 1024


@dataclass(frozen=True)
class ImportLimits:
    """What one call of ``import_sessions`` takes; bytes are those of the texts to be stored, in UTF-8."""

    sessions: int = 500
    messages_per_session: int = 10_000
    messages: int = 50_000
    bytes_per_session: int = 5 * _MIB
    bytes: int = 25 * _MIB


@dataclass(slots=True)
class Successor:
    """A rewound row, by session and uid, and the row that carries it on; ``None`` where that is not known."""

    session_id: str
    message_uid: str
    to_session_id: str | None
    to_message_uid: str | None


@dataclass(slots=True)
class MessagePart:
    """Checked messages of one session, or a part of them."""

    messages: list[EncodedMessage] = field(default_factory=list)
    successors: list[Successor] = field(default_factory=list)

    def text_bytes(self) -> int:
        """The bytes of all texts."""
        return sum(_text_bytes(message.values) for message in self.messages)


@dataclass(slots=True)
class ImportEntry:
    """One checked session: its columns, its parent, its messages (the first part of them)."""

    session_id: str
    columns: dict[str, Any]
    parent_id: str | None
    part: MessagePart
    reactions: list[dict[str, Any]] = field(default_factory=list)
    others: satellites.Rows = field(default_factory=dict)
    """Rows of further tables that belong to the session, by table."""

    def text_bytes(self) -> int:
        """The bytes of all texts."""
        others = (self.columns, *self.reactions, *chain.from_iterable(self.others.values()))
        return self.part.text_bytes() + sum(_text_bytes(values.values()) for values in others)


def checked_entries(
    sessions: Any, on_existing: Any, limits: ImportLimits, max_text_bytes: int
) -> tuple[list[ImportEntry], list[dict[str, Any]]]:
    """The entries of a list, and what is wrong with the bad ones of them.

    Raises ``InvalidArgumentError`` for what is no list, for a longer one than the limit, and for an unknown ``on_existing``.
    """
    if isinstance(sessions, (str, bytes, Mapping)) or not isinstance(sessions, Sequence):
        raise InvalidArgumentError("sessions", "it must be a list of session dicts")
    if on_existing not in ("skip", "rename"):
        raise InvalidArgumentError("on_existing", "it must be 'skip' or 'rename'")
    if len(sessions) > limits.sessions:
        reason = f"{len(sessions):,} sessions are more than {limits.sessions:,}; import them in several calls"
        raise InvalidArgumentError("sessions", reason)
    entries: dict[str, ImportEntry] = {}
    errors: list[dict[str, Any]] = []
    room = _Room(limits)
    for index, session in enumerate(sessions):
        try:
            entry = checked_entry(session, max_text_bytes)
            require_new(entry.session_id, entries)
            room.take(entry)
        except (InvalidArgumentError, InvalidMessageError) as error:
            errors.append(entry_error(index, session, error))
            continue
        entries[entry.session_id] = entry
    return list(entries.values()), errors


def entry_error(index: int, session: Any, error: HermesStateError) -> dict[str, Any]:
    """A bad entry, as reports list it."""
    claimed = session.get("id") if isinstance(session, Mapping) else None
    return {
        "index": index,
        "session_id": claimed if isinstance(claimed, str) else None,
        "error": str(error),
    }


def require_new(session_id: str, known: Container[str]) -> None:
    """``InvalidArgumentError`` for an id that stands twice in one import (field report R6)."""
    if session_id in known:
        raise InvalidArgumentError("id", f"session {session_id!r} stands twice in the list")


def checked_entry(session: Any, max_text_bytes: int) -> ImportEntry:
    """The entry of a session dict; ``InvalidArgumentError`` or ``InvalidMessageError`` for one that cannot be stored."""
    if not isinstance(session, Mapping):
        raise InvalidArgumentError("session", "it must be a dict")
    session_id = session.get("id")
    if not isinstance(session_id, str) or not is_usable_id(session_id):
        raise InvalidArgumentError("id", f"a session needs an id of 1 to {MAX_ID_CHARACTERS} characters")
    parent_id = session.get("parent_session_id")
    if parent_id is not None and not isinstance(parent_id, str):
        raise InvalidArgumentError("parent_session_id", "it must be text")
    columns = {
        c.name: column_value(c, session[c.name], max_text_bytes)
        for c in _TAKEN
        if session.get(c.name) not in (None, {})
    }
    part = checked_messages(session_id, session.get("messages"), max_text_bytes)
    reactions = checked_reactions(session.get("reactions"))
    others = satellites.checked_rows(session, max_text_bytes)
    return ImportEntry(str.__str__(session_id), columns, parent_id or None, part, reactions, others)


def checked_messages(session_id: str, messages: Any, max_text_bytes: int) -> MessagePart:
    """The rows of ``messages`` (``None`` counts as none), their states as given; raises as ``checked_entry``."""
    if messages is None:
        return MessagePart()
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise InvalidArgumentError("messages", "it must be a list")
    encoded = encode_batch(
        messages, session_id=session_id, max_text_bytes=max_text_bytes, clock=time.time, stored_states=True
    )
    return MessagePart(encoded, list(_successors(session_id, messages, encoded)))


def _successors(
    session_id: str, messages: Sequence[Any], encoded: Sequence[EncodedMessage]
) -> Iterator[Successor]:
    for message, row in zip(messages, encoded, strict=True):
        named = message.get(SUCCESSOR_KEY) if isinstance(message, Mapping) else None
        if named is None:
            continue
        if not isinstance(named, Mapping):
            raise InvalidArgumentError(SUCCESSOR_KEY, "it must name a session and a message_uid")
        place, uid = named.get("session_id"), named.get("message_uid")
        is_known = is_usable_id(place) and is_usable_id(uid)
        yield Successor(session_id, row.values[_UID], *((place, uid) if is_known else (None, None)))


class _Room:
    """Holds ``ImportLimits`` over the entries of one call."""

    def __init__(self, limits: ImportLimits) -> None:
        self._limits = limits
        self._messages = 0
        self._bytes = 0

    def take(self, entry: ImportEntry) -> None:
        """Counts the entry; ``InvalidArgumentError`` when it, or all up to it, are too large."""
        limits = self._limits
        count, size = len(entry.part.messages), entry.text_bytes()
        self._messages += count
        self._bytes += size
        for found, limit, words in (
            (count, limits.messages_per_session, "messages in a session"),
            (size, limits.bytes_per_session, "bytes in a session"),
            (self._messages, limits.messages, "messages in one import"),
            (self._bytes, limits.bytes, "bytes in one import"),
        ):
            if found > limit:
                reason = (
                    f"{found:,} {words} are more than {limit:,}; `hermes-state import FILE` takes any size"
                )
                raise InvalidArgumentError("messages", reason)


class Placed(Protocol):
    """A session of an import and its parent."""

    session_id: str
    parent_id: str | None


Child = TypeVar("Child", bound=Placed)


def in_order(entries: Sequence[Child]) -> list[Child]:
    """The entries, parents before children; a circle is opened by taking a parent away from its member met last.

    ``parent_id`` of that member becomes the empty text, which no session has.
    """
    by_id = {entry.session_id: entry for entry in entries}
    placed: dict[str, Child] = {}
    for entry in entries:
        line: dict[str, Child] = {}
        current: Child | None = entry
        while current is not None and current.session_id not in placed:
            line[current.session_id] = current
            if current.parent_id in line:
                current.parent_id = ""
            current = by_id.get(current.parent_id or "")
        placed.update(reversed(line.items()))
    return list(placed.values())


def _text_bytes(values: Any) -> int:
    return sum(len(value.encode()) for value in values if isinstance(value, str))
