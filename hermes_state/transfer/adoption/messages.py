"""The messages of an older store: each row becomes the row that an append of the same message would have made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hermes_state.codec import (
    ASSISTANT_ONLY,
    END_OF_TIME,
    MAX_ROLE_CHARACTERS,
    MESSAGE_COLUMNS,
    PLACE,
    REFUSED_KEY,
    EncodedMessage,
    encode_message,
)
from hermes_state.errors import InvalidMessageError
from hermes_state.json_values import has_repeated_key, load_json
from hermes_state.salvage import Refusal, cut, storable, text_form
from hermes_state.text import clean_text, has_surrogate, is_usable_id
from hermes_state.transfer.adoption import values
from hermes_state.transfer.adoption.keys import SeenKeys
from hermes_state.transfer.adoption.notebook import Notebook

_TABLE = "messages"
_MARK = "\0json:"
"""How the older stores begin content that is no text (known store, section 3.1)."""
_MOST_ATTEMPTS = 4
_JSON = (
    "tool_calls",
    "reasoning_details",
    "codex_reasoning_items",
    "codex_message_items",
    "display_metadata",
)
_REPLAY = frozenset(("reasoning_details", "codex_reasoning_items", "codex_message_items"))
_TEXT = frozenset(
    ("content", "tool_call_id", "tool_name", "finish_reason", "reasoning", "reasoning_content", "effect_disposition",
     "api_content", "display_kind")
)  # fmt: skip
_IDS = ("message_uid", "platform_message_id")
_GIVEN = ("role", *_TEXT, *_JSON, *_IDS)
_NUMBERS = ("session_id", "timestamp", "token_count", "observed", "active", "compacted")
# Worked out from other columns by the triggers of the older store.
_DERIVED = ("id", "display_identity", "display_order")
_UID, _PARTS, _TIMESTAMP, _TOKENS = (
    PLACE[name] for name in ("message_uid", "content_parts", "timestamp", "token_count")
)
_OBSERVED, _ACTIVE, _COMPACTED = PLACE["observed"], PLACE["active"], PLACE["compacted"]
_ONLY_TEXT = {str}
KEPT = "left empty, its text is kept under the key _refused"


@dataclass(slots=True)
class Tally:
    """What is known of a session whose messages are being read."""

    last_time: float
    active: int = 0
    calls: int = 0
    has_messages: bool = False
    newest_carrier: tuple[int, int] | None = None
    """The older and the new id of the newest active row with a checkpoint."""


class MessageConverter:
    """Makes the rows of messages, in ``MESSAGE_COLUMNS`` order."""

    def __init__(self, columns: Sequence[str], notebook: Notebook, max_text_bytes: int) -> None:
        """``columns``: those of the older store's rows."""
        self._notebook = notebook
        self._limit = max_text_bytes
        places = {name: place for place, name in enumerate(columns)}
        self._given = [(name, places[name]) for name in _GIVEN if name in places]
        self._numbers = [places[name] for name in _NUMBERS[1:]]
        self._session = places["session_id"]
        known = {*_GIVEN, *_NUMBERS, *_DERIVED}
        self._others = [(name, place) for name, place in places.items() if name not in known]
        self._uids = SeenKeys() if "message_uid" in places else None

    def close(self) -> None:
        """Gives the memory of uids back."""
        if self._uids is not None:
            self._uids.close()

    def old_session_id(self, row: Sequence[Any]) -> Any:
        """The session that a row of the older store names."""
        return row[self._session]

    def convert(self, row: Sequence[Any], session_id: str, last_time: float) -> EncodedMessage:
        """The message of a row. ``last_time`` stands in for a time that is none."""
        row_id = row[0]
        message = {name: row[place] for name, place in self._given if row[place] is not None}
        if set(map(type, message.values())) != _ONLY_TEXT:
            self._make_text(row_id, message)
        checked = self._checked_values(row_id, message, [row[place] for place in self._numbers], last_time)
        if self._others:
            self._take_others(message, row)
        role = message.get("role")
        if not isinstance(role, str) or not 0 < len(role) <= MAX_ROLE_CHARACTERS:
            self._refuse(row_id, message, "role", "no role", "became unknown")
            message["role"] = "unknown"
        for name in _IDS:
            if name in message and not is_usable_id(message[name]):
                self._mend_id(row_id, message, name)
        uid = self._own_uid(row_id, session_id, message.pop("message_uid", None))
        if message["role"] != "assistant" and not ASSISTANT_ONLY.isdisjoint(message):
            self._gate(row_id, message)
        given = dict(message)
        content = message.get("content")
        if content is not None and content.startswith(_MARK):
            self._take_parts(message, content)
        encoded = self._encoded(row_id, session_id, message)
        self._note_changes(row_id, given, message, encoded.values)
        # What was checked here need not go through the encoder: it takes a fifth of the time.
        stored = encoded.values
        stored[_UID] = uid
        stored[_TIMESTAMP], stored[_TOKENS], stored[_OBSERVED], stored[_ACTIVE], stored[_COMPACTED] = checked
        return encoded

    def _make_text(self, row_id: int, message: dict[str, Any]) -> None:
        for name, value in message.items():
            if isinstance(value, bytes):
                message[name] = text = value.decode("utf-8", "surrogateescape")
                if clean_text(text) is text:  # else it is written down where it is cleaned
                    self._note(row_id, name, values.BYTES_AS_TEXT, value)
            elif not isinstance(value, str):
                message[name] = repr(value)
                self._note(row_id, name, values.NUMBER_AS_TEXT, value)

    def _checked_values(
        self, row_id: int, message: dict[str, Any], given: list[Any], last_time: float
    ) -> tuple[float, int | None, bool, bool, bool]:
        timestamp, tokens, observed, active, compacted = given
        if type(timestamp) is not float or not 0 <= timestamp < END_OF_TIME:
            timestamp = self._time(row_id, timestamp, last_time)
        if tokens is not None:
            tokens = self._tokens(row_id, message, tokens)
        is_observed = self._truth(row_id, "observed", observed, default=False)
        is_active = self._truth(row_id, "active", active, default=True)
        is_compacted = self._truth(row_id, "compacted", compacted, default=False)
        if is_active and is_compacted:
            # The older store's restore makes such rows; what it sends to the model is decided by ``active`` alone.
            is_compacted = False
            self._note(row_id, "compacted", "active and compacted at once: it is active", compacted)
        return timestamp + 0.0, tokens, is_observed, is_active, is_compacted

    def _time(self, row_id: int, value: Any, last_time: float) -> float:
        found, rule = values.as_time(value)
        if found is None:
            rule = f"{values.NO_TIME}: became that of the message before, or of the session"
        self._note(row_id, "timestamp", rule, value)
        return last_time if found is None else float(found)

    def _tokens(self, row_id: int, message: dict[str, Any], value: Any) -> int | None:
        found, rule = values.as_count(value)
        if rule != values.NO_NUMBER:
            self._note(row_id, "token_count", rule, value)
            return int(found)
        self._refuse(row_id, message, "token_count", rule, KEPT, value)
        return None

    def _truth(self, row_id: int, name: str, value: Any, *, default: bool) -> bool:
        if type(value) is int and value in (0, 1):
            return value == 1
        found, rule = values.as_truth(value, default)
        self._note(row_id, name, rule, value)
        return bool(found)

    def _take_others(self, message: dict[str, Any], row: Sequence[Any]) -> None:
        """Columns that this package does not have become unknown keys."""
        for name, place in self._others:
            value = row[place]
            if value not in (None, "", 0):
                message[name.lstrip("_") or name] = text_form(value) if isinstance(value, bytes) else value

    def _mend_id(self, row_id: int, message: dict[str, Any], name: str) -> None:
        found, rule = values.as_id(message[name])
        self._note(row_id, name, rule, message[name])
        message[name] = found

    def _own_uid(self, row_id: int, session_id: str, given: str | None) -> str:
        """The message's uid, unless another message of the session has it; one made of the row id for those without."""
        uid = given or f"adopted-{row_id}"
        if self._uids is None or self._uids.take(session_id, uid):
            return uid
        uid = f"adopted-{row_id}"
        while not self._uids.take(session_id, uid):
            uid = f"{uid}-2"
        self._note(row_id, "message_uid", f"another message of the session has it: now {uid!r}", given)
        return uid

    def _gate(self, row_id: int, message: dict[str, Any]) -> None:
        for name in ASSISTANT_ONLY.intersection(message):
            value = message.pop(name)
            if value not in ("", "[]", "{}", "null", '""'):
                self._refuse(row_id, message, name, "only the assistant's messages have it", KEPT, value)

    def _take_parts(self, message: dict[str, Any], content: str) -> None:
        try:
            parts = load_json(content[len(_MARK) :])
        except ValueError:
            return  # a text that begins like that; its NUL is replaced as any other
        if isinstance(parts, (list, dict)):
            message["content"] = parts

    def _encoded(self, row_id: int, session_id: str, message: dict[str, Any]) -> EncodedMessage:
        for name in _JSON:
            text = message.get(name)
            if text is not None and has_surrogate(text):
                self._note(row_id, name, values.UNREADABLE, text)
                message[name] = clean_text(text)
        attempts: dict[str | None, int] = {}
        while True:
            try:
                return encode_message(message, 0, session_id=session_id, max_text_bytes=self._limit)
            except InvalidMessageError as error:
                attempt = attempts.get(error.field, 0)
                attempts[error.field] = attempt + 1
                if attempt > _MOST_ATTEMPTS:
                    raise
                mended, refusals = storable(message, error, limit=self._limit, attempt=attempt)
                message.clear()
                message.update(mended)
                for refusal in refusals if attempt == 0 else []:
                    self._note_refusal(row_id, refusal)

    def _note_refusal(self, row_id: int, refusal: Refusal) -> None:
        rule = f"{refusal['reason'].partition(':')[0]}: kept as far as it can be, its text under the key _refused"
        self._note(row_id, refusal["key"], rule, refusal["text"])

    def _refuse(
        self, row_id: int, message: dict[str, Any], name: str, reason: str, outcome: str, value: Any = None
    ) -> None:
        value = message.get(name) if value is None else value
        self._note(row_id, name, f"{reason}: {outcome}", value)
        text = cut(text_form(value), self._limit // 16)
        message.setdefault(REFUSED_KEY, []).append({"key": name, "reason": reason, "text": text})

    def _note_changes(
        self, row_id: int, given: dict[str, Any], message: dict[str, Any], stored: list[Any]
    ) -> None:
        """Writes down what the encoder changed without a word."""
        for name, text in given.items():
            if name in _TEXT:
                if stored[PLACE[name]] != text and message.get(name) is text:
                    self._note(row_id, name, values.UNREADABLE, text)
                elif name == "content" and stored[_PARTS] is not None:
                    self._note_cleaned(row_id, name, text[len(_MARK) :], stored[_PARTS])
                    self._note_repeated(row_id, name, text[len(_MARK) :], stored[_PARTS])
            elif name in _JSON and stored[PLACE[name]] is not None:
                self._note_repeated(row_id, name, text, stored[PLACE[name]])
                if text.lstrip()[:1] == '"':
                    self._note(row_id, name, values.UNWRAPPED, text)
                if name not in _REPLAY:
                    self._note_cleaned(row_id, name, text, stored[PLACE[name]])
        if given["role"] != stored[PLACE["role"]]:
            self._note(row_id, "role", values.UNREADABLE, given["role"])

    def _note_cleaned(self, row_id: int, name: str, text: str, stored: str) -> None:
        """Writes down that an escaped NUL or surrogate was replaced."""
        if "\\u" in text and not _same(text, stored):
            self._note(row_id, name, values.UNREADABLE, text)

    def _note_repeated(self, row_id: int, name: str, text: str, stored: str) -> None:
        """Writes down that an object had a key twice."""
        # Counting is cheap, and only objects that lost a key have fewer colons behind one.
        if text.count('":') > stored.count('":') and has_repeated_key(text):
            self._note(row_id, name, values.REPEATED_KEY, text)

    def _note(self, row_id: int, column: str, rule: str | None, value: Any) -> None:
        if rule is not None:
            self._notebook.add(_TABLE, row_id, column, rule, value)


def _same(text: str, stored: str) -> bool:
    value = load_json(text)
    return bool((load_json(value) if isinstance(value, str) and value else value) == load_json(stored))


def count_into(tally: Tally, ids: tuple[int, int], encoded: EncodedMessage) -> None:
    """Counts a message into its session; ``ids`` are the older and the new one."""
    tally.has_messages = True
    tally.last_time = encoded.values[_TIMESTAMP]
    if encoded.values[_ACTIVE]:
        tally.active += 1
        tally.calls += encoded.tool_call_count
        if encoded.is_carrier:
            tally.newest_carrier = ids


def loaded(row_id: int, encoded: EncodedMessage) -> tuple[Any, ...]:
    """The values of ``LOADED_COLUMNS``."""
    return (row_id, *encoded.values)


LOADED_COLUMNS = ("id", *MESSAGE_COLUMNS)
