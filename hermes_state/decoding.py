"""From rows to message dicts. Nothing that stands in a row makes a read fail (CONTRACT.md section 6)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, cast

from hermes_state.codec import MESSAGE_COLUMNS, decoded
from hermes_state.records import ConversationMessage, MessageRecord

logger = logging.getLogger(__name__)

READ_COLUMNS = ("id", *MESSAGE_COLUMNS)
_EXTRA = READ_COLUMNS.index("extra")


def decode_row(values: Sequence[Any]) -> MessageRecord:
    """The whole row: every key of CONTRACT.md section 2, absent values ``None``, unknown keys spread back."""
    if bytes in map(type, values):
        values = [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in values]
    (
        row_id, session_id, uid, role, content, parts, call_id, calls, tool_name, timestamp, tokens, finish, reasoning,
        reasoning_content, details, items, message_items, platform_id, observed, effect, api_content, kind, metadata,
        extra, active, compacted,
    ) = values  # fmt: skip
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


_OPTIONAL = (
    "tool_call_id", "tool_name", "tool_calls", "platform_message_id", "observed", "token_count", "effect_disposition",
    "api_content", "display_kind", "display_metadata",
)  # fmt: skip
_OF_ASSISTANTS = (
    "finish_reason", "reasoning", "reasoning_content", "reasoning_details", "codex_reasoning_items",
    "codex_message_items",
)  # fmt: skip
_NOT_UNKNOWN = frozenset((*READ_COLUMNS, "message_id")) - {"content_parts", "extra"}


def decode_conversation(values: Sequence[Any]) -> ConversationMessage:
    """The message as it is sent to a model: what is absent is left out (CONTRACT.md section 2)."""
    record = cast("dict[str, Any]", decode_row(values))
    message: dict[str, Any] = {
        "role": record["role"],
        "content": record["content"],
        "timestamp": record["timestamp"],
    }
    names = (*_OPTIONAL, *_OF_ASSISTANTS) if record["role"] == "assistant" else _OPTIONAL
    for name in names:
        value = record[name]
        if value is None or (name == "observed" and not value) or (name == "reasoning" and value == ""):
            continue
        message["message_id" if name == "platform_message_id" else name] = value
    if values[_EXTRA] is not None:
        message.update((k, v) for k, v in record.items() if k not in _NOT_UNKNOWN)
    return cast("ConversationMessage", message)


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
