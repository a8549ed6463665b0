"""How a session relates to its parent: pure functions (DESIGN.md, decision 4)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
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


AUTOMATIC_END_REASONS = frozenset(
    (
        "agent_close", "cli_close", "disconnect", "gateway_restart", "idle_timeout", "process_exit", "shutdown",
        "tui_close", "tui_shutdown", "ui_close", "web_close", "ws_disconnect", "ws_orphan_reap",
    )
)  # fmt: skip
"""Stamps that a program leaves when it goes away; nobody decided that the conversation is over (field report M4)."""

LINEAGE_MARKERS = ("_delegate_from", "_branched_from", "_reset_from")


def has_marker(model_config: str | None) -> bool:
    """Whether the text names a lineage marker, so that ``classify`` needs no parent."""
    config = parsed_config(model_config)
    return any(config.get(marker) for marker in LINEAGE_MARKERS)


def may_be_continued(end_reason: str | None) -> bool:
    """Whether compaction may go on from a session that was ended for this reason: a stamp, not a decision."""
    return end_reason is None or end_reason in AUTOMATIC_END_REASONS


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


def tip_of(start: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The live end of the compression chain, walked from ``start`` over the session ``rows`` reached from there.

    Among several continuations of one parent, one that was itself compressed wins, then an open one, then the most
    recently active. Cycles end.
    """
    return _path_down(start, rows, _compression_edges(rows), _preference)[-1]


def lineage_of(session_id: str, rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The compression chain through ``session_id``, from its first session to its live end. Cycles end.

    ``rows`` holds the sessions connected with it over compression edges.
    """
    edges = _compression_edges(rows)
    above = _path_up(session_id, edges)
    below = _path_down(session_id, rows, edges, _preference, taken=above)
    return above + below[1:]


def compressed_above(session_id: str, rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The sessions that ``session_id`` goes on from over compression edges, itself left out. Cycles end."""
    return _path_up(session_id, _compression_edges(rows))[:-1]


def resume_path(tip: str, rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Where a resume may end: the ``tip``, then the newest-started continuation of each. Cycles end.

    ``rows`` holds the tip and what continues it. Branches, delegates, tool runs and the conversations that follow a
    reset are no continuations.
    """
    return _path_down(tip, rows, _continuation_edges(rows), lambda row: (row["started_at"], row["id"]))


def continued_from(session_id: str, rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The chain of continuations that ends with ``session_id``, first session first. Cycles end."""
    return _path_up(session_id, _continuation_edges(rows))


def _continuation_edges(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, str | None]:
    return {row["id"]: row["parent_session_id"] for row in rows.values() if read_kind(row) == "continuation"}


def _compression_edges(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The parent of each row that continues a parent which was ended by compression."""
    return {
        row["id"]: row["parent_session_id"]
        for row in rows.values()
        if read_kind(row) == "continuation"
        and rows.get(row["parent_session_id"], {}).get("end_reason") == "compression"
    }


def _path_up(session_id: str, edges: Mapping[str, str | None]) -> list[str]:
    path, seen = [session_id], {session_id}
    while (parent := edges.get(path[-1])) is not None and parent not in seen:
        path.append(parent)
        seen.add(parent)
    return path[::-1]


def _path_down(
    start: str,
    rows: Mapping[str, Mapping[str, Any]],
    edges: Mapping[str, str | None],
    preference: Callable[[Mapping[str, Any]], tuple[Any, ...]],
    *,
    taken: Sequence[str] = (),
) -> list[str]:
    children: dict[str | None, list[Mapping[str, Any]]] = {}
    for child, parent in edges.items():
        children.setdefault(parent, []).append(rows[child])
    path, seen = [start], {start, *taken}
    while following := [row for row in children.get(path[-1], []) if row["id"] not in seen]:
        path.append(max(following, key=preference)["id"])
        seen.add(path[-1])
    return path


def _preference(row: Mapping[str, Any]) -> tuple[bool, bool, float, float, str]:
    started_at = row["started_at"]
    return (
        row["end_reason"] == "compression",
        row["ended_at"] is None,
        row["last_active_at"] if row["last_active_at"] is not None else started_at,
        started_at,
        row["id"],
    )
