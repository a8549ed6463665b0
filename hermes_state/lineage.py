"""How a session relates to its parent: pure functions (DESIGN.md, decision 4)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def parsed_config(model_config: str | None) -> dict[str, Any]:
    """The object in a session's ``model_config`` text; ``{}`` for anything that is no JSON object."""
    if not model_config:
        return {}
    try:
        value = json.loads(model_config)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def classify(
    *, source: str, model_config: str | None, has_parent: bool, parent_end_reason: str | None
) -> str:
    """The ``kind`` of a session, by the first rule that fits: markers of older stores first, then its parent."""
    config = parsed_config(model_config)
    if config.get("_delegate_from"):
        return "delegate"
    if config.get("_branched_from"):
        return "branch"
    if config.get("_reset_from") or not has_parent:
        return "root"
    if source == "tool":
        return "tool"
    return "branch" if parent_end_reason == "branched" else "continuation"


def read_kind(session: Mapping[Any, Any]) -> str:
    """The kind of a session row; rows of other programs have none and are classified by source and parent."""
    kind = session["kind"]
    if isinstance(kind, str):
        return kind
    if session["parent_session_id"] is None:
        return "root"
    return "tool" if session["source"] == "tool" else "continuation"


def tip_of(start: str, chain: list[Mapping[str, Any]]) -> str:
    """The live end of a compression chain, walked from ``start``.

    ``chain`` holds session rows reached from ``start`` over compression edges. Among several continuations of one
    parent, one that was itself compressed wins, then an open one, then the most recently active. Cycles end.
    """
    children: dict[str, list[Mapping[str, Any]]] = {}
    for row in chain:
        children.setdefault(row["parent_session_id"], []).append(row)
    tip, seen = start, {start}
    while following := [row for row in children.get(tip, []) if row["id"] not in seen]:
        tip = max(following, key=_preference)["id"]
        seen.add(tip)
    return tip


def continued_from(session_id: str, rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The chain of continuations that ends with ``session_id``, first session first. Cycles end."""
    chain = [session_id]
    while chain[-1] in rows and read_kind(rows[chain[-1]]) == "continuation":
        parent = rows[chain[-1]]["parent_session_id"]
        if parent is None or parent in chain:
            break
        chain.append(parent)
    return chain[::-1]


def _preference(row: Mapping[str, Any]) -> tuple[bool, bool, float, float, str]:
    started_at = row["started_at"]
    return (
        row["end_reason"] == "compression",
        row["ended_at"] is None,
        row["last_active_at"] if row["last_active_at"] is not None else started_at,
        started_at,
        row["id"],
    )
