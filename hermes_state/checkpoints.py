"""Compaction checkpoints in plain lists and dicts: the Python twin of the strip (CONTRACT.md sections 1, 4 and 5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hermes_state.json_values import UnfitValueError, parsed

_ITEMS = "codex_reasoning_items"


def is_checkpoint(item: Any) -> bool:
    """Whether ``item`` is a dict whose own ``"type"`` is the text ``"compaction"``."""
    return isinstance(item, dict) and item.get("type") == "compaction"


def has_checkpoint(items: Any) -> bool:
    """Whether ``items`` is a list that holds at least one checkpoint."""
    return isinstance(items, (list, tuple)) and any(is_checkpoint(item) for item in items)


def strip_items(items: Sequence[Any]) -> list[Any] | None:
    """``items`` without its checkpoints, the others in order; ``None`` when nothing is left."""
    return [item for item in items if not is_checkpoint(item)] or None


def newest_carrier(messages: Sequence[Any]) -> int | None:
    """The index of the last carrier among the message dicts, or ``None``."""
    for index in range(len(messages) - 1, -1, -1):
        if carried_items(messages[index]) is not None:
            return index
    return None


def drop_shadowed_checkpoints(messages: Sequence[Any], *, before: int | None = None) -> list[int]:
    """Takes the checkpoints out of every carrier older than the newest, in place; returns the indices it rewrote.

    ``before``: the index of the message whose checkpoint shadows the others; default the newest carrier. A list that
    becomes empty leaves the dict. Dicts whose ``active`` is false, other roles and other values stay as they are.
    """
    end = newest_carrier(messages) if before is None else before
    rewritten = []
    for index, message in enumerate(messages[: max(end or 0, 0)]):
        items = carried_items(message)
        if items is None:
            continue
        kept = strip_items(items)
        if kept is None:
            del message[_ITEMS]
        else:
            message[_ITEMS] = kept
        rewritten.append(index)
    return rewritten


def carried_items(message: Any) -> list[Any] | None:
    """The items of a carrier, given in any form that is stored as a list; ``None`` for any other message."""
    if (
        not isinstance(message, dict)
        or message.get("role") != "assistant"
        or message.get("active", True) in (False, 0)
    ):
        return None
    items: Any = message.get(_ITEMS)
    if isinstance(items, str):
        try:
            items = parsed(items)
        except UnfitValueError:
            return None
    return items if has_checkpoint(items) else None
