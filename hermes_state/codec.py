"""Between message dicts and rows: the one validator and the one decoder (CONTRACT.md section 2).

Writing: everything that cannot be stored on both databases is refused here, before any SQL. Reading: nothing
that stands in a row makes a read fail.
"""

from __future__ import annotations

import datetime as dt
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Any

from hermes_state.checkpoints import has_checkpoint, strip_items
from hermes_state.errors import InvalidMessageError
from hermes_state.json_values import UnfitValueError, checked, dump_json, free_key, parsed
from hermes_state.records import NewMessage
from hermes_state.text import MAX_ID_CHARACTERS, REPLACEMENT, clean_text, exceeds, is_usable_id

MESSAGE_COLUMNS: tuple[str, ...] = (
    "session_id", "message_uid", "role", "content", "content_parts", "tool_call_id", "tool_calls", "tool_name",
    "timestamp", "token_count", "finish_reason", "reasoning", "reasoning_content", "reasoning_details",
    "codex_reasoning_items", "codex_message_items", "platform_message_id", "observed", "effect_disposition",
    "api_content", "display_kind", "display_metadata", "extra", "active", "compacted",
)  # fmt: skip
USUAL_COLUMNS: tuple[str, ...] = (
    "session_id", "message_uid", "role", "content", "tool_call_id", "tool_calls", "tool_name", "timestamp",
    "finish_reason", "observed", "active", "compacted",
)  # fmt: skip
"""The columns that most messages of an agent fill; the others are NULL in them."""
PLACE = {name: place for place, name in enumerate(MESSAGE_COLUMNS)}

REFUSED_KEY = "_refused"
"""The one key with a leading underscore that is stored: what the flusher could not store as it was."""

ASSISTANT_ONLY = frozenset(
    ("reasoning", "reasoning_content", "reasoning_details", "codex_reasoning_items", "codex_message_items")
)
READ_ONLY = frozenset(("id", "session_id", "active", "compacted"))
MAX_ROLE_CHARACTERS = 64
_MOST_ID_BITS = 1_698  # of 10**511: what has fewer bits has at most 512 characters, its sign included
END_OF_TIME = 7_258_118_400.0  # 2200-01-01

_UID, _ROLE, _CONTENT, _PARTS = PLACE["message_uid"], PLACE["role"], PLACE["content"], PLACE["content_parts"]
_TOOL_CALLS, _TIMESTAMP, _ITEMS = PLACE["tool_calls"], PLACE["timestamp"], PLACE["codex_reasoning_items"]
_EXTRA, _ACTIVE, _COMPACTED = PLACE["extra"], PLACE["active"], PLACE["compacted"]

_EMPTY_ROW: list[Any] = [None] * len(MESSAGE_COLUMNS)
_EMPTY_ROW[PLACE["observed"]] = False
_EMPTY_ROW[_ACTIVE] = True
_EMPTY_ROW[_COMPACTED] = False


@dataclass(slots=True)
class EncodedMessage:
    """A checked row in ``MESSAGE_COLUMNS`` order, JSON as text, and what the write needs to know about it."""

    values: list[Any]
    row_id: int | None
    tool_call_count: int = 0
    items: list[Any] | None = None
    """The reasoning items of a carrier; ``None`` for every other message."""
    has_own_timestamp: bool = False
    uid_is_the_stores: bool = False
    """Whether the uid was given by the store, not by the caller."""

    @property
    def is_carrier(self) -> bool:
        """Whether the row holds a checkpoint."""
        return self.items is not None

    def without_checkpoints(self) -> EncodedMessage:
        """The message with its checkpoints taken out; itself when it has none."""
        if self.items is None:
            return self
        kept = strip_items(self.items)
        values = list(self.values)
        values[_ITEMS] = None if kept is None else dump_json(kept)
        return replace(self, values=values, items=None)


def encode_batch(
    messages: Sequence[Any],
    *,
    session_id: str,
    max_text_bytes: int,
    clock: Callable[[], float],
    stored_states: bool = False,
) -> list[EncodedMessage]:
    """The rows of ``messages``, with times and uids for those that bring none.

    A missing time is ``clock()``, but at least 1 µs after the message before it. Raises ``InvalidMessageError``.
    ``stored_states`` takes ``active`` and ``compacted`` from the messages (import).
    """
    require_list(messages)
    encoded = [
        encode_message(
            m, i, session_id=session_id, max_text_bytes=max_text_bytes, stored_states=stored_states
        )
        for i, m in enumerate(messages)
    ]
    now = clock() if encoded else 0.0
    previous = -1.0
    for message in encoded:
        values = message.values
        if values[_TIMESTAMP] is None:
            values[_TIMESTAMP] = max(now, _next_time(previous))
        previous = values[_TIMESTAMP]
        if values[_UID] is None:
            values[_UID] = token_hex(16)
    return encoded


def require_list(messages: Any) -> None:
    """Raises ``TypeError`` for what is no list of messages; an iterator could be stored but not stamped."""
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes, bytearray)):
        raise TypeError(f"messages must be a list of message dicts, not {type(messages).__name__}")


def encode_message(
    message: Any, index: int, *, session_id: str, max_text_bytes: int, stored_states: bool = False
) -> EncodedMessage:
    """The row of one message; ``index`` is its position for ``InvalidMessageError``."""
    if isinstance(message, NewMessage):
        message = message.to_message()
    if not isinstance(message, Mapping):
        raise InvalidMessageError(index, None, f"it is {type(message).__name__}, not a dict")
    return _Encoder(message, index, session_id, max_text_bytes).run(stored_states)


class _Encoder:
    """Fills one row, key by key."""

    __slots__ = ("_index", "_limit", "_message", "_row", "_short", "_unknown", "_values")

    def __init__(self, message: Mapping[Any, Any], index: int, session_id: str, limit: int) -> None:
        self._message = message
        self._index = index
        self._limit = limit
        self._short = limit // 3  # a NUL becomes three bytes
        self._values = values = _EMPTY_ROW.copy()
        values[0] = session_id
        self._row = EncodedMessage(values, None)
        self._unknown: dict[str, Any] = {}

    def run(self, stored_states: bool) -> EncodedMessage:
        message = self._message
        key: Any = "role"
        try:
            self._encode_role(message.get("role"))
            is_assistant = self._values[_ROLE] == "assistant"
            for key, value in message.items():
                if (
                    type(value) is str
                    and key in _SHARED_TEXT
                    and value.isascii()
                    and len(value) <= self._short
                ):
                    # Most values of most messages: nothing to clean, nothing to measure.
                    self._values[PLACE[key]] = value.replace("\0", REPLACEMENT)
                    continue
                handler = _HANDLERS.get(key)
                if handler is None:
                    self._take_other(key, value)
                elif value is not None and (is_assistant or key not in ASSISTANT_ONLY):
                    handler(self, key, value)
            key = None
            if self._unknown:
                self._values[_EXTRA] = self._limited(dump_json(self._unknown))
            if stored_states:
                self._take_states()
        except UnfitValueError as error:
            raise InvalidMessageError(
                self._index, key if isinstance(key, str) else None, str(error)
            ) from error
        self._take_private(message)
        return self._row

    def _encode_role(self, role: Any) -> None:
        if not isinstance(role, str) or not 0 < len(role) <= MAX_ROLE_CHARACTERS:
            raise UnfitValueError(f"a message needs a role, text of 1 to {MAX_ROLE_CHARACTERS} characters")
        self._values[_ROLE] = clean_text(str.__str__(role))

    def _take_other(self, key: Any, value: Any) -> None:
        if not isinstance(key, str):
            raise UnfitValueError(f"a key is {type(key).__name__}, not text")
        if key in _IGNORED or (key.startswith("_") and key != REFUSED_KEY):
            return
        self._unknown[free_key(key, self._unknown)] = checked(value, clean=True)

    def take_text(self, key: str, value: Any) -> None:
        """A column of plain text."""
        if not isinstance(value, str):
            raise UnfitValueError(f"it is {type(value).__name__}, not text")
        self._values[PLACE[key]] = self._limited(clean_text(str.__str__(value)))

    def take_id(self, key: str, value: Any) -> None:
        """An id; chat platforms number their messages, so a whole number counts as its digits."""
        column = "message_uid" if key == "message_uid" else "platform_message_id"
        if column == "platform_message_id" and isinstance(value, int) and not isinstance(value, bool):
            # Longer numbers have more digits than an id, and Python may refuse to write them out.
            value = str(int(value)) if value.bit_length() < _MOST_ID_BITS else None
        if not is_usable_id(value):
            raise UnfitValueError(
                f"an id is text of 1 to {MAX_ID_CHARACTERS} characters without NUL and surrogates"
            )
        if self._values[PLACE[column]] not in (None, value):
            raise UnfitValueError("message_id and platform_message_id differ")
        self._values[PLACE[column]] = str.__str__(value)

    def take_content(self, _key: str, value: Any) -> None:
        """Text as it is; everything else exactly as JSON, with its readable text beside it."""
        if isinstance(value, str):
            self.take_text("content", value)
            return
        plain = checked(value, clean=True)
        self._values[_PARTS] = self._limited(dump_json(plain))
        text = readable_text(plain)
        self._values[_CONTENT] = None if text is None else self._limited(text)

    def take_json(self, key: str, value: Any) -> None:
        """JSON whose texts are cleaned."""
        self._take_json(key, value, clean=True)

    def take_replay(self, key: str, value: Any) -> None:
        """A provider's replay payload: opaque, nothing in it is cleaned."""
        items = self._take_json(key, value, clean=False)
        if key == "codex_reasoning_items" and has_checkpoint(items):
            self._row.items = items

    def take_tool_calls(self, key: str, value: Any) -> None:
        """The calls and their number."""
        calls = self._take_json(key, value, clean=True)
        if calls is not None:
            self._row.tool_call_count = len(calls) if isinstance(calls, list) else 1

    def take_timestamp(self, _key: str, value: Any) -> None:
        """Epoch seconds."""
        self._values[_TIMESTAMP] = epoch_seconds(value)
        self._row.has_own_timestamp = True

    def take_token_count(self, _key: str, value: Any) -> None:
        """A whole number that fits 64 bits."""
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
            raise UnfitValueError("it must be a whole number from 0 to 2**63 - 1")
        self._values[PLACE["token_count"]] = int(value)

    def take_observed(self, _key: str, value: Any) -> None:
        """True or false."""
        self._values[PLACE["observed"]] = _boolean(value)

    def _take_json(self, key: str, value: Any, *, clean: bool) -> Any:
        value = parsed(value)
        if value is None or (isinstance(value, (str, list, tuple, dict)) and not value):
            return None
        plain = checked(value, clean=clean)
        self._values[PLACE[key]] = self._limited(dump_json(plain))
        return plain

    def _take_states(self) -> None:
        active = self._message.get("active")
        self._values[_ACTIVE] = True if active is None else _boolean(active)
        self._values[_COMPACTED] = _boolean(self._message.get("compacted") or False)
        if self._values[_ACTIVE] and self._values[_COMPACTED]:
            raise UnfitValueError("a message cannot be both active and compacted")

    def _take_private(self, message: Mapping[Any, Any]) -> None:
        row_id = message.get("_row_id")
        if isinstance(row_id, int) and not isinstance(row_id, bool) and 0 < row_id < 2**63:
            self._row.row_id = row_id
        uid = message.get("_message_uid")
        if self._values[_UID] is None and is_usable_id(uid):
            self._values[_UID] = uid
            self._row.uid_is_the_stores = True

    def _limited(self, text: str) -> str:
        if exceeds(text, self._limit):
            raise UnfitValueError(f"it is longer than {self._limit} bytes")
        return text


_HANDLERS: dict[Any, Callable[[_Encoder, str, Any], None]] = {
    **dict.fromkeys(
        (
            "tool_call_id", "tool_name", "finish_reason", "reasoning", "reasoning_content", "effect_disposition",
            "api_content", "display_kind",
        ),
        _Encoder.take_text,
    ),
    **dict.fromkeys(("message_uid", "platform_message_id", "message_id"), _Encoder.take_id),
    **dict.fromkeys(("reasoning_details", "codex_reasoning_items", "codex_message_items"), _Encoder.take_replay),
    "content": _Encoder.take_content,
    "tool_calls": _Encoder.take_tool_calls,
    "display_metadata": _Encoder.take_json,
    "timestamp": _Encoder.take_timestamp,
    "token_count": _Encoder.take_token_count,
    "observed": _Encoder.take_observed,
}  # fmt: skip
_SHARED_TEXT = frozenset(
    k for k, take in _HANDLERS.items() if take is _Encoder.take_text
) - ASSISTANT_ONLY | {"content"}
_IGNORED = READ_ONLY | {"role"}


def readable_text(value: Any) -> str | None:
    """What a reader sees of content parts: their texts joined by newlines, never base64; ``None`` if there are none.

    The readable text of a number is the number.
    """
    if isinstance(value, (int, float)):
        return dump_json(value)
    texts = list(_texts_of(value))
    return "\n".join(texts) if texts else None


def _texts_of(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for item in value for text in _texts_of(item)]
    if isinstance(value, dict):
        if isinstance(value.get("text"), str):
            return [value["text"]]
        return _texts_of(value["content"]) if isinstance(value.get("content"), (str, list)) else []
    return []


def epoch_seconds(value: Any) -> float:
    """Epoch seconds of a number or a datetime (a naive one means UTC), from 1970 up to 2200.

    Raises ``UnfitValueError``.
    """
    if isinstance(value, dt.datetime):
        aware = value if value.utcoffset() is not None else value.replace(tzinfo=dt.UTC)
        seconds = aware.timestamp()
    elif not isinstance(value, bool) and isinstance(value, numbers.Real):
        try:
            seconds = float(value)
        except OverflowError as error:
            raise UnfitValueError("it is not a time between 1970 and 2200") from error
    else:
        raise UnfitValueError(f"it is {type(value).__name__}, not epoch seconds or a datetime")
    if not 0 <= seconds < END_OF_TIME:
        raise UnfitValueError("it is not a time between 1970 and 2200")
    return seconds + 0.0  # -0.0 becomes 0.0


def _next_time(previous: float) -> float:
    """The first representable time at least 1 µs after ``previous``."""
    following = previous + 1e-6
    return following if following - previous >= 1e-6 else math.nextafter(following, math.inf)


def _boolean(value: Any) -> bool:
    if value is True or value is False or (type(value) is int and value in (0, 1)):
        return bool(value)
    raise UnfitValueError("it must be true or false")
