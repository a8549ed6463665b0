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


class Refusal(TypedDict):
    """A value that was not stored as it was; ``text`` is its text form, cut at the limit."""

    index: int
    key: str
    reason: str
    text: str


def storable(
    message: dict[Any, Any], error: InvalidMessageError, *, limit: int, attempt: int
) -> tuple[dict[str, Any], list[Refusal]]:
    """A copy of ``message`` in which the key that ``error`` names holds what can be stored, and what was refused.

    The refused values stand as text under ``_refused``, cut so that the row stays within ``limit`` bytes; with each
    further ``attempt`` at the same key less is kept. An unusable timestamp is left to the clock and is no refusal.
    """
    copy = dict(message)
    if error.field == "timestamp":
        del copy["timestamp"]
        return copy, []
    keys: list[Any] = [error.field] if error.field is not None else _unknown_keys(copy)
    # JSON escapes a character with six bytes at worst, and a second column may hold the text too.
    most = limit // (16**attempt)
    refusals: list[Refusal] = []
    for key in keys:
        value = copy.pop(key, None)
        kept = _kept(key, value, limit, attempt)
        if kept is not None:
            copy[key] = kept
        text = cut(text_form(value), most)
        refusals.append({"index": error.index, "key": str(key), "reason": error.reason, "text": text})
    noted = [] if error.field is None and attempt > 1 else list(message.get(REFUSED_KEY) or ())
    noted += [{"key": clean_text(r["key"][:200]), "reason": r["reason"], "text": r["text"]} for r in refusals]
    copy[REFUSED_KEY] = noted
    return copy, refusals


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
