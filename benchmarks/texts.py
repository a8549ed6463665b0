"""Messages that read like prose, code and tool output: words by Zipf's law, so that an index meets what it meets in use."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

VOCABULARY = 50_000
CJK_SHARE = 50  # every so many-th message holds a sentence without spaces
_SYLLABLES = [
    c + v + e
    for c in "bcdfghklmnprstvw"
    for v in ("a", "e", "i", "o", "u", "ea")
    for e in ("", "n", "r", "s")
]
_HAN = [chr(0x4E00 + n) for n in range(2_000)]

Message = dict[str, Any]


def _vocabulary() -> list[str]:
    """Different words, most frequent first; frequent ones are short."""
    source, found = random.Random(0), dict[str, None]()
    while len(found) < VOCABULARY:
        found[
            "".join(source.choices(_SYLLABLES, k=1 if len(found) < 200 else 2 if len(found) < 5_000 else 3))
        ] = None
    return list(found)


_WORDS = _vocabulary()
_WEIGHTS = list(itertools.accumulate(1 / (rank + 2.7) for rank in range(VOCABULARY)))
_HAN_WEIGHTS = list(itertools.accumulate(1 / (rank + 2.7) for rank in range(len(_HAN))))


def rank_word(rank: int) -> str:
    """The word of that frequency: 0 is the most frequent one."""
    return _WORDS[rank]


def words(source: random.Random, count: int) -> list[str]:
    """So many words, frequent ones often."""
    return source.choices(_WORDS, cum_weights=_WEIGHTS, k=count)


def prose(source: random.Random, size: int) -> str:
    """Sentences of about ``size`` characters."""
    found = words(source, size // 6 + 1)
    for start in range(0, len(found), 11):
        end = min(start + 10, len(found) - 1)
        found[start], found[end] = found[start].capitalize(), found[end] + "."
    return " ".join(found)[:size]


def code(source: random.Random, size: int) -> str:
    """Lines of a program: names of two words, calls, indents, numbers."""
    lines: list[str] = []
    names = words(source, size // 8 + 8)
    for one, two, three, four in zip(*[iter(names)] * 4, strict=False):
        lines.append(f"    {one}_{two} = self.{three}({four!r}, {len(lines) * 7})")
    return "\n".join(lines)[:size]


def tool_output(source: random.Random, size: int) -> str:
    """Listings and logs: times, paths, hexadecimal ids, few words again and again."""
    lines = []
    for number, (one, two, three) in enumerate(zip(*[iter(words(source, size // 20 + 3))] * 3, strict=False)):
        ident = f"{source.getrandbits(32):08x}"
        lines.append(
            f"12:{number % 60:02d}:07 INFO src/{one}/{two}.py:{number} {three} ok id={ident} size={number * 13}"
        )
    return "\n".join(lines)[:size]


def han(source: random.Random, size: int) -> str:
    """A sentence of ``size`` Chinese characters."""
    return "".join(source.choices(_HAN, cum_weights=_HAN_WEIGHTS, k=size))


def han_term(rank: int) -> str:
    """Two characters of that frequency and the next."""
    return _HAN[rank] + _HAN[rank + 1]


def turn(number: int) -> list[Message]:
    """A question, a tool call with code, 2 KiB of its output, an answer: the sizes of ``workload.turn``."""
    source = random.Random(number)
    arguments = json.dumps({"path": f"src/{words(source, 1)[0]}.py", "text": code(source, 200)})
    call = {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": "edit_file", "arguments": arguments},
    }
    question = prose(source, 160) if number % CJK_SHARE else han(source, 60)
    return [
        {"role": "user", "content": question},
        {
            "role": "assistant",
            "content": prose(source, 80),
            "tool_calls": [call],
            "finish_reason": "tool_calls",
        },
        {
            "role": "tool",
            "content": tool_output(source, 2_048),
            "tool_call_id": f"call_{number}",
            "tool_name": "edit_file",
        },
        {"role": "assistant", "content": prose(source, 400), "finish_reason": "stop"},
    ]


def short_message(number: int) -> Message:
    """One line of prose, code, output or Chinese: for stores of very many messages."""
    source = random.Random(number)
    if number % CJK_SHARE == 0:
        return {"role": "user", "content": han(source, 40)}
    kind = (prose, code, tool_output, prose)[number % 4]
    return {"role": "user" if number % 2 else "assistant", "content": kind(source, 120)}


def transcripts(folder: Path) -> list[list[Message]]:
    """The turns of four messages in the JSON lines files of the folder."""
    found: list[Message] = []
    for path in sorted(folder.glob("*.jsonl")):
        found += [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    kept = ("role", "content", "tool_calls", "tool_call_id", "tool_name", "finish_reason")
    rows = [{"content": None} | {key: row[key] for key in kept if row.get(key) is not None} for row in found]
    return [rows[start : start + 4] for start in range(0, len(rows) - 3, 4)]


def indexed_bytes(messages: list[Message]) -> int:
    """Bytes of readable text: content (of a tool its first 8,192 characters), tool names, names and arguments of calls."""
    total = 0
    for message in messages:
        content = message.get("content") or ""
        total += len(content[:8_192].encode() if message["role"] == "tool" else content.encode())
        total += len(message.get("tool_name") or "")
        for call in message.get("tool_calls") or ():
            function = call["function"]
            total += len(function["name"]) + sum(len(text) for text in _strings(function["arguments"]))
    return total


def _strings(arguments: Any) -> list[str]:
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return [str(arguments)]
    found, left = [], [value]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            left += item.values()
        elif isinstance(item, list):
            left += item
        elif item is not None:
            found.append(str(item))
    return found
