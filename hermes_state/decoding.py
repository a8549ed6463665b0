"""From rows to message dicts. Nothing that stands in a row makes a read fail (CONTRACT.md section 6)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, cast

from hermes_state.codec import ASSISTANT_ONLY, MESSAGE_COLUMNS
from hermes_state.payloads import decoded
from hermes_state.records import ConversationMessage, MessageRecord

logger = logging.getLogger(__name__)

PERSISTED_MARKER = "_persisted_in"
"""Private key of a message dict that is durable as it reads now; its value is the id of the session with the row."""

READ_COLUMNS = ("id", *MESSAGE_COLUMNS)
_NOT_UNKNOWN = frozenset((*READ_COLUMNS, "message_id")) - {"content_parts", "extra"}

_USUAL = (
    "id", "role", "content", "timestamp", "tool_call_id", "tool_name", "tool_calls", "observed", "finish_reason",
    "reasoning", "reasoning_content",
)  # fmt: skip
_RARE = (
    "content_parts", "platform_message_id", "token_count", "effect_disposition", "api_content", "display_kind",
    "display_metadata", "reasoning_details", "codex_reasoning_items", "codex_message_items", "extra",
)  # fmt: skip
_PLACED = ("session_id", "message_uid")
CONVERSATION_COLUMNS = (*_USUAL, *_RARE)
PLACED_CONVERSATION_COLUMNS = (*CONVERSATION_COLUMNS, *_PLACED)
_FIRST_RARE = len(_USUAL)
_NAMED = {"platform_message_id": "message_id"}
_JSON = frozenset(("display_metadata", "reasoning_details", "codex_reasoning_items", "codex_message_items"))


def decode_row(values: Sequence[Any]) -> MessageRecord:
    """The whole row: every key of CONTRACT.md section 2, absent values ``None``, unknown keys spread back."""
    (
        row_id, session_id, uid, role, content, parts, call_id, calls, tool_name, timestamp, tokens, finish, reasoning,
        reasoning_content, details, items, message_items, platform_id, observed, effect, api_content, kind, metadata,
        extra, active, compacted,
    ) = as_text(values)  # fmt: skip
    record: dict[str, Any] = {
        "id": row_id,
        "session_id": session_id,
        "message_uid": uid,
        "role": role,
        "content": content if parts is None else _parts(row_id, parts, content),
        "tool_call_id": call_id,
        "tool_calls": None if calls is None else _json(row_id, "tool_calls", calls),
        "tool_name": tool_name,
        "timestamp": timestamp,
        "token_count": tokens,
        "finish_reason": finish,
        "reasoning": reasoning,
        "reasoning_content": reasoning_content,
        "reasoning_details": None if details is None else _json(row_id, "reasoning_details", details),
        "codex_reasoning_items": None if items is None else _json(row_id, "codex_reasoning_items", items),
        "codex_message_items": None
        if message_items is None
        else _json(row_id, "codex_message_items", message_items),
        "platform_message_id": platform_id,
        "observed": bool(observed),
        "effect_disposition": effect,
        "api_content": api_content,
        "display_kind": kind,
        "display_metadata": None if metadata is None else _json(row_id, "display_metadata", metadata),
        "active": bool(active),
        "compacted": bool(compacted),
    }
    if extra is not None:
        _spread(record, row_id, extra)
    return cast("MessageRecord", record)


def decode_conversation(values: Sequence[Any]) -> ConversationMessage:
    """The message as it is sent to a model, from a row in ``CONVERSATION_COLUMNS`` order.

    What is absent is left out (CONTRACT.md section 2).
    """
    usual, rare = values[:_FIRST_RARE], values[_FIRST_RARE:]
    row_id, role, content, timestamp, call_id, name, calls, observed, finish, reasoning, reasoning_content = (
        as_text(usual)
    )
    message: dict[str, Any] = {"role": role, "content": content, "timestamp": timestamp}
    if call_id is not None:
        message["tool_call_id"] = call_id
    if name is not None:
        message["tool_name"] = name
    if calls is not None and (value := _json(row_id, "tool_calls", calls)) is not None:
        message["tool_calls"] = value
    if observed:
        message["observed"] = True
    if role == "assistant":
        if finish is not None:
            message["finish_reason"] = finish
        if reasoning:
            message["reasoning"] = reasoning
        if reasoning_content is not None:
            message["reasoning_content"] = reasoning_content
    if rare.count(None) != len(rare):
        _add_rare(message, row_id, rare)
    return cast("ConversationMessage", message)


def decode_persisted(values: Sequence[Any]) -> ConversationMessage:
    """``decode_conversation`` of a row in ``PLACED_CONVERSATION_COLUMNS`` order, stamped as the flusher stamps it.

    A flusher that is given the dict back writes nothing (CONTRACT.md section 5).
    """
    session_id, uid = as_text(values[-len(_PLACED) :])
    message = cast("dict[str, Any]", decode_conversation(values[: -len(_PLACED)]))
    message |= {"_row_id": values[0], "_message_uid": uid, PERSISTED_MARKER: session_id}
    return cast("ConversationMessage", message)


def _add_rare(message: dict[str, Any], row_id: int, rare: Sequence[Any]) -> None:
    is_assistant = message["role"] == "assistant"
    for name, value in zip(_RARE, as_text(rare), strict=True):
        if value is None or (name in ASSISTANT_ONLY and not is_assistant):
            continue
        if name == "content_parts":
            message["content"] = _parts(row_id, value, message["content"])
        elif name == "extra":
            _spread(message, row_id, value)
        elif name not in _JSON:
            message[_NAMED.get(name, name)] = value
        elif (decoded_value := _json(row_id, name, value)) is not None:
            message[name] = decoded_value


def as_text(values: Sequence[Any]) -> Sequence[Any]:
    """Another program may have stored bytes in a text column of SQLite."""
    if bytes in map(type, values):
        return [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in values]
    return values


def _json(row_id: int, name: str, text: Any) -> Any:
    value = decoded(text)
    if value is None and text != "null":
        logger.warning("message row %s: column %s holds no valid JSON and reads as absent", row_id, name)
    return value


def _parts(row_id: int, parts: Any, content: Any) -> Any:
    value = decoded(parts)
    if value is None:
        logger.warning(
            "message row %s: column content_parts holds no valid JSON; its text is read instead", row_id
        )
        return content
    return value


def _spread(record: dict[str, Any], row_id: int, extra: Any) -> None:
    unknown = _json(row_id, "extra", extra)
    if isinstance(unknown, dict):
        record.update((key, value) for key, value in unknown.items() if key not in _NOT_UNKNOWN)
