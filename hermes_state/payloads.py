"""What stored rows hold, decoded far enough to count calls and to compare two of them (CONTRACT.md 3.8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hermes_state.checkpoints import strip_items
from hermes_state.codec import PLACE
from hermes_state.json_values import load_json

_ITEMS = PLACE["codex_reasoning_items"]


def tool_call_count(tool_calls: str | None) -> int:
    """The number of calls in a stored ``tool_calls`` text, as the counters count them."""
    if tool_calls is None:
        return 0
    value = decoded(tool_calls)
    if value is None:
        return 0
    return len(value) if isinstance(value, list) else 1


def decoded(text: Any) -> Any:
    """The value of a stored JSON text; ``None`` for malformed text. Text encoded twice is decoded twice (J1)."""
    try:
        value = load_json(text if isinstance(text, str) else bytes(text).decode())
        return load_json(value) if isinstance(value, str) else value
    except (ValueError, TypeError):
        return None


def same_payload(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Whether two rows in ``MESSAGE_COLUMNS`` order hold the same message.

    Session, uid, timestamp and state are not compared, nor checkpoints, which the strip may have taken from one of them.
    JSON is compared as Python values, strictly typed: 1, 1.0 and true differ.
    """
    return all(
        first[place] == second[place]
        or (place in _JSON_PLACES and _same_json(place, first[place], second[place]))
        for place in _COMPARED
    )


_COMPARED = tuple(
    place
    for name, place in PLACE.items()
    if name not in ("session_id", "message_uid", "timestamp", "active", "compacted")
)
_JSON_PLACES = frozenset(
    PLACE[name]
    for name in (
        "content_parts", "tool_calls", "reasoning_details", "codex_reasoning_items", "codex_message_items",
        "display_metadata", "extra",
    )
)  # fmt: skip


def _same_json(place: int, first: Any, second: Any) -> bool:
    values = [None if text is None else decoded(text) for text in (first, second)]
    if place == _ITEMS:
        values = [strip_items(value) if isinstance(value, list) else value for value in values]
    return bool(_canonical(values[0]) == _canonical(values[1]))


def _canonical(value: Any) -> Any:
    """A form in which only values of the same type are equal; the order of keys does not count."""
    if isinstance(value, dict):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    return (type(value), repr(value))
