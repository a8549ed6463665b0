"""Which messages of a compacted transcript are live rows carried on verbatim (issue 3, item 1; field reports F1, F4)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hermes_state.codec import MESSAGE_COLUMNS, PLACE, EncodedMessage
from hermes_state.decoding import READ_COLUMNS
from hermes_state.payloads import decoded
from hermes_state.records import NewMessage
from hermes_state.repositories import rows
from hermes_state.repositories.base import Transaction
from hermes_state.text import is_usable_id

_UID, _TIMESTAMP = READ_COLUMNS.index("message_uid"), READ_COLUMNS.index("timestamp")
_KEY_PLACES = tuple(PLACE[name] for name in ("role", "content", "tool_call_id"))
_KEY_JSON_PLACES = tuple(PLACE[name] for name in ("content_parts", "tool_calls"))
KEY_COLUMNS = ("id", *MESSAGE_COLUMNS[: PLACE["timestamp"] + 1])
"""The columns that ``message_key`` and an ``Original`` need, in the order of whole rows."""

Key = tuple[Any, ...]


@dataclass(slots=True)
class Candidate:
    """A message that may be a live row carried on, and what it says about that row."""

    place: int
    is_declared: bool
    row_ids: list[int] = field(default_factory=list)
    uids: list[str] = field(default_factory=list)


@dataclass(slots=True, frozen=True)
class Original:
    """The live row that a message carries on."""

    row_id: int
    uid: str
    timestamp: float


def message_key(values: Sequence[Any]) -> Key:
    """Role, content as loaded, and tool ids of a row that starts in ``MESSAGE_COLUMNS`` order; JSON strictly typed."""
    texts = [values[place] for place in _KEY_JSON_PLACES]
    parts = [None if text is None else json.dumps(decoded(text), sort_keys=True) for text in texts]
    return (*(values[place] for place in _KEY_PLACES), *parts)


def own_uid(message: Any) -> str | None:
    """The uid that a message brings along; ``None`` for one that gets its uid from the store."""
    if isinstance(message, NewMessage):
        return message.message_uid
    if not isinstance(message, Mapping):
        return None
    uid = message.get("message_uid") or message.get("_message_uid")
    return uid if is_usable_id(uid) else None


def own_row_ids(message: Any) -> list[int]:
    """The row ids that a message names: an agent's ``_row_id``, the ``id`` of a row that was read."""
    if not isinstance(message, Mapping):
        return []
    found = [message.get("_row_id"), message.get("id")]
    return [row_id for row_id in found if type(row_id) is int and 0 < row_id < 2**63]


def candidates(
    compacted: Sequence[Any],
    encoded: Sequence[EncodedMessage],
    tail_count: int,
    carried: Sequence[tuple[Any, EncodedMessage]],
) -> list[Candidate]:
    """One for each message; declared are the last ``tail_count`` and those that equal one of ``carried``."""
    first = len(compacted) - tail_count
    found = [
        Candidate(place, place >= first, own_row_ids(message), [uid] if (uid := own_uid(message)) else [])
        for place, message in enumerate(compacted)
    ]
    by_identity = {id(message): place for place, message in enumerate(compacted)}
    by_name = {name: c.place for c in reversed(found) for name in (*c.row_ids, *c.uids)}
    by_key: dict[Key, list[int]] = {}
    for place, message in enumerate(encoded):
        by_key.setdefault(message_key(message.values), []).append(place)
    for message, row in carried:
        names: list[Any] = [*own_row_ids(message), own_uid(message)]
        equal = by_key.get(message_key(row.values), [])
        same = [by_identity.get(id(message)), *(by_name.get(name) for name in names), *equal]
        free = [place for place in same if place is not None and not found[place].is_declared]
        if free:
            found[free[0]].is_declared = True
            found[free[0]].row_ids += own_row_ids(message)
            found[free[0]].uids += [uid for uid in names[-1:] if uid]
    return found


class Originals:
    """Looks the live rows up: by row id, else by uid, else the newest of the same role, content and tool ids."""

    def __init__(self, transaction: Transaction, session_id: str) -> None:
        self._transaction = transaction
        self._session_id = session_id
        self._used: set[int] = set()
        self.found: dict[int, Original] = {}

    def find(
        self, wanted: Sequence[Candidate], encoded: Sequence[EncodedMessage], watermark: int | None
    ) -> dict[int, Original]:
        """The originals by place. What nobody declared counts only as a row above the watermark, which it names."""
        by_name = self._by_name(wanted)
        unnamed = []
        for candidate in reversed(wanted):
            row = next(
                (by_name[n] for n in (*candidate.row_ids, *candidate.uids) if self._is_free(by_name.get(n))),
                None,
            )
            if row is None:
                unnamed.append(candidate)
            elif candidate.is_declared or (watermark is not None and row[0] > watermark):
                self._take(candidate.place, row)
        self._find_by_key([c for c in unnamed if c.is_declared], encoded)
        return self.found

    def taken_back(self, wanted: Sequence[Candidate]) -> set[int]:
        """The places of what was to be carried on, but was rewound while the summary was made."""
        lost = {
            row_id: c.place
            for c in wanted
            if c.is_declared and c.place not in self.found
            for row_id in c.row_ids
        }
        if not lost:
            return set()
        return {lost[row_id] for row_id in rows.rewound_ids(self._transaction, self._session_id, lost)}

    def _by_name(self, wanted: Sequence[Candidate]) -> dict[Any, rows.Row]:
        row_ids = {row_id for c in wanted for row_id in c.row_ids}
        uids = {uid for c in wanted for uid in c.uids}
        found: dict[Any, rows.Row] = {}
        if uids:
            by_uid = rows.by_uid(self._transaction, self._session_id, sorted(uids))
            found |= {uid: row for uid, row in by_uid.items() if row[READ_COLUMNS.index("active")]}
        if row_ids:
            found |= rows.active_by_id(self._transaction, self._session_id, sorted(row_ids))
        return found

    def _find_by_key(self, wanted: Iterable[Candidate], encoded: Sequence[EncodedMessage]) -> None:
        wanted = list(wanted)
        if not wanted:
            return
        by_key: dict[Key, list[rows.Row]] = {}
        for row in active_keys(self._transaction, self._session_id):
            if self._is_free(row):
                by_key.setdefault(message_key(row[1:]), []).append(row)
        for candidate in wanted:
            same = by_key.get(message_key(encoded[candidate.place].values))
            if same:
                self._take(candidate.place, same.pop())

    def _is_free(self, row: rows.Row | None) -> bool:
        return row is not None and row[0] not in self._used

    def _take(self, place: int, row: rows.Row) -> None:
        self._used.add(row[0])
        self.found[place] = Original(row[0], row[_UID], row[_TIMESTAMP])


def active_keys(transaction: Transaction, session_id: str) -> list[rows.Row]:
    """The active rows of the session in insertion order, in ``KEY_COLUMNS``."""
    stmt = transaction.operations.compiled(
        "carrying.keys", lambda: rows.select(rows.ACTIVE, columns=KEY_COLUMNS)
    )
    return list(stmt.execute(transaction.conn, session_id=session_id))
