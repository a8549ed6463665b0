"""Messages for tests, and what must hold in the tables after every write."""

from __future__ import annotations

import json
from typing import Any

from tests.support.raw import RawSql

Message = dict[str, Any]

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
SURROGATE = "\ud83d"


def user(content: Any = "question", **keys: Any) -> Message:
    """A user's message."""
    return {"role": "user", "content": content, **keys}


def assistant(content: Any = "answer", **keys: Any) -> Message:
    """An assistant's message."""
    return {"role": "assistant", "content": content, **keys}


def checkpoint(name: str = "c") -> dict[str, Any]:
    """A checkpoint as a provider sends it, only smaller."""
    return {"type": "compaction", "id": name, "encrypted_content": f"cipher-{name}"}


def reasoning(name: str = "r") -> dict[str, Any]:
    """An item of the same list that is no checkpoint."""
    return {"type": "reasoning", "id": name, "summary": []}


def carrier(name: str, *items: Any, **keys: Any) -> Message:
    """An assistant's message with a checkpoint behind ``items``."""
    return assistant(f"answer {name}", codex_reasoning_items=[*items, checkpoint(name)], **keys)


def call(name: str = "search") -> dict[str, Any]:
    """One tool call."""
    return {"id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": "{}"}}


def caller(*names: str) -> Message:
    """An assistant's message with a tool call for each name."""
    return assistant(None, tool_calls=[call(name) for name in names])


def assert_counters_are_exact(raw: RawSql, session_id: str = "s") -> None:
    """The counters of the session equal its active rows and their tool calls, counted from the tables."""
    ((messages, calls),) = raw("SELECT message_count, tool_call_count FROM sessions WHERE id = ?", session_id)
    rows = raw("SELECT tool_calls FROM messages WHERE session_id = ? AND active", session_id)
    assert messages == len(rows)
    assert calls == sum(len(json.loads(text)) for (text,) in rows if text is not None)


def items_of(raw: RawSql, session_id: str = "s") -> list[Any]:
    """The stored reasoning items of every row of the session, decoded, in id order."""
    return raw.json("SELECT codex_reasoning_items FROM messages WHERE session_id = ? ORDER BY id", session_id)


def contents_of(raw: RawSql, session_id: str = "s") -> list[str | None]:
    """The stored text of every row of the session in id order."""
    return raw.column("SELECT content FROM messages WHERE session_id = ? ORDER BY id", session_id)


def snapshot(raw: RawSql) -> list[tuple[Any, ...]]:
    """Everything in the tables of sessions and messages, to be compared before and after."""
    return [*raw("SELECT * FROM sessions ORDER BY id"), *raw("SELECT * FROM messages ORDER BY id")]
