"""What is told about a whole store: sizes, statistics, what was reclaimed, what contradicts its rows."""

from __future__ import annotations

from typing import Any, NamedTuple, TypedDict

from hermes_state.records import UsageRecord


class Size(NamedTuple):
    """The bytes that a table or an index of a table takes in the database."""

    name: str
    table: str
    size_bytes: int


class ReclaimReport(TypedDict):
    """What ``SessionDB.reclaim`` did. ``vacuum``: ``None`` when it was not asked for.

    ``rewritten``: the SQLite file was rewritten; ``incremental``: its free pages were given back while others had it open;
    ``kept``: others had it open, so the pages stay in the file for new rows; ``vacuumed``: PostgreSQL's VACUUM ran.
    """

    sessions: int
    """How many sessions held shadowed checkpoints."""
    rows: int
    checkpoint_bytes: int
    """UTF-8 bytes of JSON text that went."""
    sizes_before: list[Size]
    sizes_after: list[Size]
    vacuum: str | None


class StateCounts(TypedDict):
    """Messages by their state."""

    active: int
    compacted: int
    rewound: int


class DayStatistics(TypedDict):
    """What was said on one day of UTC, ``YYYY-MM-DD``; empty for a time that no calendar reaches."""

    day: str
    messages: int
    text_bytes: int


class SessionStatistics(TypedDict):
    """How much one session holds, messages of every state. ``text_bytes``: UTF-8 bytes of the stored texts."""

    session_id: str
    title: str | None
    source: str | None
    messages: int
    text_bytes: int


class CheckpointStatistics(TypedDict):
    """UTF-8 bytes of replay items in live rows: those that stay, and the checkpoints that ``reclaim`` would take out."""

    live_bytes: int
    shadowed_bytes: int
    shadowed_rows: int


class RetentionStatistics(TypedDict):
    """What ``prune_sessions(days)`` would delete now; messages of every state."""

    days: float
    sessions: int
    messages: int


class StoreStatistics(TypedDict):
    """A whole store at a glance; see ``SessionDB.statistics``."""

    sizes: list[Size]
    sessions_by_source: dict[str, int]
    messages: StateCounts
    days: list[DayStatistics]
    biggest_sessions: list[SessionStatistics]
    checkpoints: CheckpointStatistics
    usage_by_model: list[UsageRecord]
    usage_by_day: list[UsageRecord]
    retention: RetentionStatistics


class Difference(TypedDict):
    """What a stored value contradicts; see ``SessionDB.verify``."""

    table: str
    id: Any
    """The row's id, a session's for shadowed checkpoints; ``None`` for the database as a whole."""
    column: str | None
    found: Any
    """What is stored; the number of rows for shadowed checkpoints; a sentence for damage."""
    expected: Any
    repairable: bool
    repaired: bool


def difference(
    table: str, row_id: Any, column: str | None, found: Any, expected: Any, *, can_be_mended: bool = True
) -> Difference:
    """One difference, not mended yet."""
    return {
        "table": table,
        "id": row_id,
        "column": column,
        "found": found,
        "expected": expected,
        "repairable": can_be_mended,
        "repaired": False,
    }
