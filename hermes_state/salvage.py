"""What can be stored of a message that cannot be stored as it is (CONTRACT.md section 5, rule 4)."""

from __future__ import annotations

from typing import Any, TypedDict

from hermes_state.codec import PLACE, REFUSED_KEY, readable_text
from hermes_state.errors import InvalidMessageError
from hermes_state.json_values import UnfitValueError, checked
from hermes_state.text import clean_text

_TEXT_KEYS = frozenset(
    ("tool_call_id", "tool_name", "finish_reason", "reasoning", "reasoning_content", "effect_disposition", "api_content",
     "display_kind")
)  # fmt: skip


_NOT_UNKNOWN = frozenset(("message_id", "id"))
_MOST_KEY_BYTES = 200


class Refusal(TypedDict):
    """A value that was not stored as it was; ``text`` is its text form, of which the row may hold less.

    ``index`` is the position of its message in the list that was flushed.
    """

    index: int
    key: str
    reason: str
    text: str


def storable(
    message: dict[Any, Any], error: InvalidMessageError, *, limit: int, attempt: int
) -> tuple[dict[str, Any], list[Refusal]]:
    """A copy of ``message`` in which the key that ``error`` names holds what can be stored, and what was refused.

    The refused values stand as text under ``_refused``, cut so that together they stay within ``limit`` bytes; with
    each further ``attempt`` at the same key less is kept. An unusable timestamp is left to the clock and is no refusal.
    """
    copy = dict(message)
    if error.field == "timestamp":
        del copy["timestamp"]
        return copy, []
    keys: list[Any] = [error.field] if error.field is not None else _unknown_keys(copy)
    refusals: list[Refusal] = []
    for key in keys:
        value = copy.pop(key, None)
        kept = _kept(key, value, limit, attempt)
        if kept is not None:
            copy[key] = kept
        refusals.append(_refusal(error, text_form(key), text_form(value)))
    copy[REFUSED_KEY] = _fitting(_noted(copy) + [_note(r) for r in refusals], limit // 16**attempt)
    return copy, refusals


def _refusal(error: InvalidMessageError, key: str, text: str) -> Refusal:
    return {"index": error.index, "key": cut(key, _MOST_KEY_BYTES), "reason": error.reason, "text": text}


def _note(refusal: Refusal) -> dict[str, str]:
    return {"key": refusal["key"], "reason": refusal["reason"], "text": refusal["text"]}


def _noted(message: dict[Any, Any]) -> list[dict[str, str]]:
    """What earlier attempts, or an earlier row, noted; anything else under that key is none of ours."""
    notes = message.get(REFUSED_KEY)
    return [n for n in notes if _is_note(n)] if isinstance(notes, (list, tuple)) else []


def _is_note(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"key", "reason", "text"}
        and all(isinstance(part, str) for part in value.values())
    )


def _fitting(notes: list[dict[str, str]], max_bytes: int) -> list[dict[str, str]]:
    """``notes`` with their texts cut to equal shares of ``max_bytes``; JSON may need six times that to escape them."""
    share = max_bytes // max(1, len(notes))
    return [{**note, "text": cut(clean_text(note["text"]), share)} for note in notes]


def text_form(value: Any) -> str:
    """``value`` as text: itself, its bytes read as UTF-8, else its Python form."""
    if isinstance(value, str):
        return clean_text(str.__str__(value))
    if isinstance(value, (bytes, bytearray)):
        return clean_text(value.decode("utf-8", "replace"))
    try:
        return clean_text(repr(value))
    except (ValueError, RecursionError):
        return f"<{type(value).__name__} without a text form>"


def cut(text: str, max_bytes: int) -> str:
    """The longest beginning of ``text`` of at most ``max_bytes`` bytes of UTF-8."""
    return text[:max_bytes].encode()[:max_bytes].decode("utf-8", "ignore")


def _kept(key: Any, value: Any, limit: int, attempt: int) -> Any:
    """What the key holds instead."""
    if key == "role":
        return "unknown"
    if attempt > 1:
        return None
    if key == "content":
        return cut(_content_text(value), limit)
    if key in _TEXT_KEYS and isinstance(value, (str, int, float)):
        return cut(text_form(value), limit)
    return None


def _content_text(value: Any) -> str:
    """The words of a content that cannot be stored, else its text form."""
    if isinstance(value, (list, tuple, dict)):
        items = [value] if isinstance(value, dict) else value
        texts = [text for item in items if (text := _readable(item))]
        if texts:
            return "\n".join(texts)
    return text_form(value)


def _readable(item: Any) -> str | None:
    try:
        return readable_text(checked(item, clean=True))
    except UnfitValueError:
        text = item.get("text") if isinstance(item, dict) else None
        return clean_text(text) if isinstance(text, str) else None


def _unknown_keys(message: dict[Any, Any]) -> list[Any]:
    """The keys that share the column of unknown keys; only those that are no text, if there are any."""
    no_text = [key for key in message if not isinstance(key, str)]
    return no_text or [
        k for k in message if k not in PLACE and k not in _NOT_UNKNOWN and not k.startswith("_")
    ]
