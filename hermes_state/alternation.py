"""Making a loaded conversation one that providers accept: pure functions on its dicts (known store, section 2.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from hermes_state.codec import readable_text
from hermes_state.records import ConversationMessage

_OF_ONE_ROW = ("_row_id", "_message_uid")


def repaired(messages: Sequence[ConversationMessage]) -> list[ConversationMessage]:
    """``messages`` without tool results whose call is missing, and with user messages in a row merged into one.

    A tool result belongs to the calls of the last assistant message, as long as no user has spoken since; any other is
    left out. Merged texts are joined by an empty line, parts are put one after the other, so no text of a user or an
    assistant is lost. A merged message keeps the first one's other keys, takes those it lacks from the later ones, and is
    ``observed`` only if all were; it stands for several rows, hence it has no ``_row_id``. The given dicts stay as they
    are.
    """
    kept: list[ConversationMessage] = []
    for message in _with_known_calls(messages):
        if kept and message["role"] == kept[-1]["role"] == "user":
            kept[-1] = _merged(kept[-1], message)
        else:
            kept.append(message)
    return kept


def _with_known_calls(messages: Sequence[ConversationMessage]) -> list[ConversationMessage]:
    kept: list[ConversationMessage] = []
    open_calls: set[Any] = set()
    for message in messages:
        if message["role"] == "assistant":
            open_calls = _call_ids(message)
        elif message["role"] == "user":
            open_calls = set()
        elif message["role"] == "tool" and message.get("tool_call_id") not in open_calls:
            continue
        kept.append(message)
    return kept


def _call_ids(message: ConversationMessage) -> set[Any]:
    calls = message.get("tool_calls")
    calls = calls if isinstance(calls, list) else [calls]
    names = ("id", "call_id")
    found = {call.get(name) for call in calls if isinstance(call, dict) for name in names}
    return {call_id for call_id in found if isinstance(call_id, str)}


def _merged(first: ConversationMessage, second: ConversationMessage) -> ConversationMessage:
    merged: dict[str, Any] = {**second, **first, "content": _joined(first["content"], second["content"])}
    if merged.pop("api_content", None) is not None:
        # Sent instead of the content, so it must hold both; beside parts there is no such text.
        sent = [m.get("api_content", m["content"]) for m in (first, second)]
        if all(isinstance(text, str) for text in sent):
            merged["api_content"] = "\n\n".join(text for text in sent if text)
    if not (first.get("observed") and second.get("observed")):
        merged.pop("observed", None)
    for key in _OF_ONE_ROW:
        merged.pop(key, None)
    return cast("ConversationMessage", merged)


def _joined(first: Any, second: Any) -> Any:
    contents = [content for content in (first, second) if content not in (None, "")]
    if len(contents) < 2:
        return contents[0] if contents else first
    if any(isinstance(content, (list, dict)) for content in contents):
        return [part for content in contents for part in _parts_of(content)]
    return "\n\n".join(str(readable_text(content)) for content in contents)


def _parts_of(content: Any) -> list[Any]:
    if isinstance(content, list):
        return content
    if isinstance(content, dict):
        return [content]
    return [{"type": "text", "text": str(readable_text(content))}]
