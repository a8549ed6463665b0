"""The turns that every benchmark writes: four messages, as an agent with one tool call makes them."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

CHECKPOINT_BYTES = 120_000
_WORDS = ["".join(random.Random(n).choices("abcdefghijklmnopqrstuvwxyz", k=3 + n % 7)) for n in range(3_000)]

Message = dict[str, Any]


def text(source: random.Random, size: int) -> str:
    """Words up to ``size`` characters."""
    return " ".join(source.choices(_WORDS, k=size // 4 + 1))[:size]


def turn(number: int, *, checkpoint: bool = False) -> list[Message]:
    """Turn ``number``: a question, a tool call, a 2 KiB tool result, an answer; with a 120 KB checkpoint if asked."""
    source = random.Random(number)
    call = {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": "terminal", "arguments": '{"command": "ls"}'},
    }
    answer: Message = {"role": "assistant", "content": text(source, 400), "finish_reason": "stop"}
    if checkpoint:
        answer["codex_reasoning_items"] = [
            {"type": "reasoning", "summary": text(source, 80)},
            {
                "type": "compaction",
                "encrypted_content": base64.b64encode(source.randbytes(CHECKPOINT_BYTES * 3 // 4)).decode(),
            },
        ]
    return [
        {"role": "user", "content": text(source, 160)},
        {
            "role": "assistant",
            "content": text(source, 80),
            "tool_calls": [call],
            "finish_reason": "tool_calls",
        },
        {
            "role": "tool",
            "content": text(source, 2_048),
            "tool_call_id": f"call_{number}",
            "tool_name": "terminal",
        },
        answer,
    ]


def raw_rows(session_id: str, messages: list[Message], timestamp: float) -> list[tuple[Any, ...]]:
    """What the bare driver writes for ``messages``: the columns of ``RAW_COLUMNS``."""
    return [
        (
            session_id,
            f"{random.getrandbits(128):032x}",
            m["role"],
            m["content"],
            m.get("tool_call_id"),
            json.dumps(m["tool_calls"]) if "tool_calls" in m else None,
            m.get("tool_name"),
            timestamp,
            m.get("finish_reason"),
            json.dumps(m["codex_reasoning_items"]) if "codex_reasoning_items" in m else None,
        )
        for m in messages
    ]


RAW_COLUMNS = (
    "session_id, message_uid, role, content, tool_call_id, tool_calls, tool_name, timestamp, finish_reason, "
    "codex_reasoning_items"
)
