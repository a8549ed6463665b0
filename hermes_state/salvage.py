"""What can be stored of a message that cannot be stored as it is (CONTRACT.md section 5, rule 4)."""

from __future__ import annotations

from typing import Any, TypedDict

from hermes_state.codec import ASSISTANT_ONLY, PLACE, REFUSED_KEY, encode_message, readable_text
from hermes_state.decoding import decode_row
from hermes_state.errors import InvalidMessageError
from hermes_state.json_values import UnfitValueError, checked
from hermes_state.text import clean_text

_TEXT_KEYS = frozenset(
    ("tool_call_id", "tool_name", "finish_reason", "reasoning", "reasoning_content", "effect_disposition", "api_content",
     "display_kind")
)  # fmt: skip


_NOT_MIRRORED = frozenset(("id", "session_id", "active", "compacted", "timestamp"))
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


def read_as_stored(message: dict[Any, Any], *, limit: int) -> None:
    """Gives the keys of ``message`` the values that its row reads (CONTRACT.md section 5, ``PERSISTED_MARKER``).

    Cleaned texts, parsed JSON and lists in the place of tuples, that is; what the row does not hold leaves the dict. Keys that
    role gating left out, private ones, and a message with a refused value stay as they are.
    """
    try:
        encoded = encode_message(message, 0, session_id="", max_text_bytes=limit)
    except InvalidMessageError:
        return
    row: dict[str, Any] = {**decode_row((0, *encoded.values))}
    for key in [key for key in message if _is_mirrored(key, row["role"])]:
        stored = row.get("platform_message_id" if key == "message_id" else key)
        if stored is None and message[key] is not None:
            del message[key]
        elif type(stored) is not type(message[key]) or stored != message[key]:
            message[key] = stored
    message.update({key: row[key] for key in row.keys() - PLACE.keys() - {"id"} if key not in message})


def _is_mirrored(key: Any, role: str) -> bool:
    if not isinstance(key, str) or key.startswith("_") or key in _NOT_MIRRORED:
        return False
    return role == "assistant" or key not in ASSISTANT_ONLY


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
    except Exception:  # noqa: BLE001 - what a caller's object raises must not cost the others their rows
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
