"""Stored values as text for people: contents, tool calls, reasoning, sizes. Nothing in it steers a terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from hermes_state.checkpoints import is_checkpoint

# Stored text is not ours: escape sequences would steer the terminal, direction marks would turn the text around.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_LONGEST_BAR = 1e15


def printable(text: Any) -> str:
    """``text`` without control and direction characters; line feeds and tabs stay. Another program's numbers and bytes too."""
    whole = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", whole.replace("\r\n", "\n"))


def drawable(value: Any) -> float:
    """``value`` as the length of a bar: what no plot can show, which only another program stores, is cut."""
    # NaN is not greater than 0.
    return min(max(0.0, float(value)), _LONGEST_BAR) if isinstance(value, (int, float)) else 0.0


def size(count: int) -> str:
    """A number of bytes for people: ``17 B``, ``117 KiB``, ``3.4 MiB``."""
    if count < 1024:
        return f"{count} B"
    value, units = count / 1024, iter(("KiB", "MiB", "GiB"))
    unit = next(units)
    while value >= 1024 and unit != "GiB":
        value, unit = value / 1024, next(units)
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}"


def json_bytes(value: Any) -> int:
    """The size of ``value`` as JSON text in UTF-8 bytes."""
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def readable(content: Any) -> str:
    """The content of a message for people: its text, and the kind of each part that is none."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    return "\n".join(part_text(part) for part in parts)


def part_text(part: Any) -> str:
    """The text of one part of a content, or its kind and size."""
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type", "part") if isinstance(part, dict) else type(part).__name__
    return f"({kind}, {size(json_bytes(part))})"


def call_texts(message: Any) -> list[str]:
    """The tool calls of a message, one text each: ``name(arguments)``."""
    calls = message["tool_calls"]
    return [_call_text(call) for call in calls] if isinstance(calls, list) else []


def _call_text(call: Any) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return json.dumps(call, ensure_ascii=False)
    arguments = function.get("arguments")
    words = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f"{function.get('name')}({words})"


def checkpoint_note(message: Any) -> str | None:
    """How many checkpoints the message holds, and how large they are; ``None`` without any."""
    items = message["codex_reasoning_items"]
    found = [item for item in items if is_checkpoint(item)] if isinstance(items, list) else []
    if not found:
        return None
    return f"{len(found)} checkpoint, {size(sum(json_bytes(item) for item in found))}"


def pictures(content: Any) -> Iterator[str]:
    """The ``data:`` URLs of pictures among the parts of a content."""
    for part in content if isinstance(content, list) else []:
        found = part.get("image_url") if isinstance(part, dict) else None
        url = found.get("url") if isinstance(found, dict) else found
        if isinstance(url, str) and _PICTURE.fullmatch(url):
            yield url


_PICTURE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+")
