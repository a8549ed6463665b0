"""What issue 3 asks of rewriting and reading: archiving, windows, tips, streaming."""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from benchmarks.workload import turn
from hermes_state import SessionDB

ROWS = 16_000
SUMMARY = {"role": "user", "content": "summary"}


def fill(db: SessionDB, session_id: str, rows: int) -> None:
    """A session of ``rows`` messages."""
    db.create_session(session_id, "bench")
    for start in range(0, rows // 4, 1_000):
        numbers = range(start, min(start + 1_000, rows // 4))
        db.append_messages_batch(session_id, [m for i in numbers for m in turn(i)])


def archive_ratio(db: SessionDB) -> dict[str, float]:
    """Milliseconds to archive 16,000 rows, those of a bare UPDATE of as many rows, and their ratio."""
    ours, bare = [], []
    for round_ in range(3):
        fill(db, f"archived-{round_}", ROWS)
        fill(db, f"updated-{round_}", ROWS)
        ours.append(_seconds(lambda r=round_: db.archive_and_compact(f"archived-{r}", [SUMMARY])))  # type: ignore[misc]
        bare.append(_seconds(lambda r=round_: _bare_update(db, f"updated-{r}")))  # type: ignore[misc]
    return {"ours_ms": min(ours) * 1e3, "bare_ms": min(bare) * 1e3, "ratio": min(ours) / min(bare)}


def window_growth(db: SessionDB) -> dict[str, float]:
    """Milliseconds for the view around a message in the middle of 400 and of 16,000 rows, and their ratio."""
    took = {}
    for session_id, rows in (("short", 400), ("long", ROWS)):
        fill(db, session_id, rows)
        ids = [row["id"] for row in db.get_messages(session_id, limit=rows)]
        anchor = ids[rows // 2]
        took[session_id] = _median(lambda s=session_id, a=anchor: db.get_anchored_view(s, a))  # type: ignore[misc]
    return {"short_ms": took["short"], "long_ms": took["long"], "ratio": took["long"] / took["short"]}


def crowded_growth(db: SessionDB) -> dict[str, float]:
    """Milliseconds for the views at the end of a session of 4,000 rows, alone and beside newer and bigger ones."""
    fill(db, "m-crowded", 4_000)
    anchor = db.get_messages("m-crowded", limit=2_000)[-1]["id"]

    def views() -> None:
        db.get_messages("m-crowded", latest=True, limit=20)
        db.get_anchored_view("m-crowded", anchor)
        db.list_recent_user_messages("m-crowded")
        db.has_archived_messages("m-crowded")

    took = []
    for neighbours in ((), ("a-newer", "z-newer")):
        for session_id in neighbours:
            fill(db, session_id, 2 * ROWS)
        with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
            conn.execute(sa.text("ANALYZE"))
        took.append(_median(views))
    return {"alone_ms": took[0], "crowded_ms": took[1], "ratio": took[1] / took[0]}


def rewind_milliseconds(db: SessionDB) -> float:
    """Milliseconds to take the last turn of 16,000 rows back, whose rows are then counted anew."""
    fill(db, "rewound", ROWS)
    took = []
    for row in db.list_recent_user_messages("rewound", limit=9):
        started = time.perf_counter()
        db.rewind_to_message("rewound", row["id"])
        took.append(time.perf_counter() - started)
    return statistics.median(took) * 1e3


def tip_milliseconds(db: SessionDB, links: int = 1_000) -> float:
    """Milliseconds to find the live end of a chain of ``links`` continuations."""
    with db.unit_of_work() as uow:
        for number in range(links):
            parent = f"chain-{number - 1}" if number else None
            uow.sessions.create(f"chain-{number}", "bench", parent_session_id=parent)
            if number < links - 1:
                uow.sessions.end(f"chain-{number}", "compression")
    return _median(lambda: db.get_compression_tip("chain-0"))


def streaming_peaks(db: SessionDB) -> tuple[float, float]:
    """Peak MB of Python memory while 10,000 and 100,000 messages are streamed."""
    peaks = []
    for session_id, rows in (("ten", 10_000), ("hundred", 100_000)):
        fill(db, session_id, rows)
        tracemalloc.start()
        assert sum(1 for _ in db.iter_messages(session_id)) == rows
        peaks.append(tracemalloc.get_traced_memory()[1] / 1e6)
        tracemalloc.stop()
    return peaks[0], peaks[1]


def _bare_update(db: SessionDB, session_id: str) -> None:
    stmt = sa.text("UPDATE messages SET active = false, compacted = true WHERE session_id = :s AND active")
    with db.engine.begin() as conn:
        conn.execute(stmt, {"s": session_id})


def _median(work: Callable[[], Any]) -> float:
    return statistics.median(_seconds(work) for _ in range(21)) * 1e3


def _seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
