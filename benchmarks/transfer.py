"""``python -m benchmarks.transfer [--postgresql URL] [--rows N] [--megabytes N] [--folder DIR]``: moving whole stores.

A SQLite store of ordinary rows and of archived checkpoints is generated, then copied, exported and imported, and the same in
the form of version 17 of an older store, which is adopted; each step runs in a process of its own, whose peak memory counts.
The PostgreSQL URL must name an empty database, which is filled and emptied. Exits with 1 when a bound is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from hermes_state import SessionDB, upgrades
from hermes_state.engine import build_engine, resolve_url
from hermes_state.settings import Settings
from hermes_state.transfer.adoption import adopt_store
from hermes_state.transfer.copying import copy_store
from hermes_state.transfer.exports import write_json_lines
from hermes_state.transfer.files import written
from hermes_state.transfer.imports import import_file
from tests.support.older_stores import OldStore

ROWS_OF_A_SESSION = 200
CHECKPOINT_BYTES = 120_000
MOST_MEGABYTES = 200
LEAST_ROWS = {"sqlite": 20_000, "postgresql": 10_000}

_COUNTED = "WITH RECURSIVE n(i) AS (VALUES (0) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :count) "
_SESSIONS = f"""
{_COUNTED} INSERT INTO sessions (id, source, started_at, message_count)
SELECT 'session-' || i, 'cli', 1.7e9 + i, {ROWS_OF_A_SESSION} FROM n
"""
_MESSAGES = f"""
{_COUNTED} INSERT INTO messages (session_id, role, content, tool_calls, tool_call_id, timestamp)
SELECT 'session-' || (i / {ROWS_OF_A_SESSION}),
    CASE i % 4 WHEN 0 THEN 'user' WHEN 2 THEN 'tool' ELSE 'assistant' END,
    CASE i % 4 WHEN 1 THEN NULL ELSE replace(hex(zeroblob(20 + 60 * (i % 4))), '00', ' word' || (i % 97)) END,
    CASE i % 4 WHEN 1 THEN '[{{"id": "call_' || i || '", "function": {{"name": "f", "arguments": "{{}}"}}}}]' END,
    CASE i % 4 WHEN 2 THEN 'call_' || (i - 1) END, 1.7e9 + i
FROM n
"""
_CHECKPOINTS = f"""
{_COUNTED} INSERT INTO messages (session_id, role, content, codex_reasoning_items, timestamp, active, compacted)
SELECT 'session-0', 'assistant', 'answer ' || i,
    '[{{"type": "compaction", "encrypted_content": "' || hex(randomblob({CHECKPOINT_BYTES // 2})) || '"}}]', 1.7e9, 0, 1
FROM n
"""


def generate(path: Path, rows: int, megabytes: int) -> None:
    """A store of ordinary rows, 200 a session, and of archived checkpoints in the first session."""
    SessionDB(path).close()
    _fill(path, rows, megabytes)


def generate_older(path: Path, rows: int, megabytes: int) -> None:
    """The same as an older store keeps it."""
    OldStore(path).close()
    _fill(path, rows, megabytes)


def _fill(path: Path, rows: int, megabytes: int) -> None:
    conn = sqlite3.connect(path)
    conn.execute("PRAGMA synchronous = OFF")
    with conn:
        conn.execute(_SESSIONS, {"count": max(1, rows // ROWS_OF_A_SESSION)})
        conn.execute(_MESSAGES, {"count": rows})
        if megabytes:
            conn.execute(_CHECKPOINTS, {"count": megabytes * 1_000_000 // CHECKPOINT_BYTES})
    conn.close()


def copied(source: str, target: str) -> int:
    """Copies a store; returns the number of rows."""
    return sum(table.rows for table in copy_store(source, target).tables)


def exported(source: str, target: str) -> int:
    """Exports a store into a file; returns the number of messages."""
    with SessionDB(source, read_only=True) as db, written(Path(target)) as output:
        return write_json_lines(db, output).messages


def imported(source: str, target: str) -> int:
    """Imports a file; returns the number of messages in the store."""
    with SessionDB(target) as db:
        import_file(db, Path(source))
        with db.engine.connect() as conn:
            return int(conn.exec_driver_sql("SELECT count(*) FROM messages").scalar_one())


def adopted(source: str, target: str) -> int:
    """Adopts an older store; returns the number of messages."""
    report = adopt_store(source, target)
    print(f"adopt: {report.finishing_seconds:.1f} of {report.seconds:.1f} s for the end", file=sys.stderr)
    return report.messages


def empty(target: str) -> None:
    """Takes every table out of a database that an earlier step has filled."""
    engine = build_engine(resolve_url(target, None, Settings()), Settings(), pool=False)
    upgrades.downgrade(engine, "base", force=True)
    engine.dispose()


STEPS: dict[str, Callable[[str, str], int]] = {
    "copy": copied,
    "export": exported,
    "import": imported,
    "adopt": adopted,
}


def measured(step: str, source: str, target: str) -> dict[str, Any]:
    """Rows, seconds and peak megabytes of one step in a process of its own."""
    arguments = [sys.executable, "-m", "benchmarks.transfer", "--step", step, source, target]
    done = subprocess.run(arguments, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))


def run_step(step: str, source: str, target: str) -> None:
    """What such a process does."""
    started = time.perf_counter()
    rows = STEPS[step](source, target)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"rows": rows, "seconds": seconds, "peak": peak}))


def main() -> int:
    """Runs everything that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--postgresql", metavar="URL", help="an empty database, which is filled")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--megabytes", type=int, default=0, help="of archived checkpoints")
    parser.add_argument("--folder", default="/dev/shm" if Path("/dev/shm").is_dir() else None)
    parser.add_argument("--step", nargs=3, metavar=("STEP", "SOURCE", "TARGET"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        run_step(*arguments.step)
        return 0
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        return _report(Path(folder), arguments)


def _report(folder: Path, arguments: argparse.Namespace) -> int:
    source, older, lines = folder / "source.db", folder / "older.db", folder / "all.jsonl"
    generate(source, arguments.rows, arguments.megabytes)
    generate_older(older, arguments.rows, arguments.megabytes)
    steps = [("copy", str(source), str(folder / "copy.db"), "sqlite")]
    if arguments.postgresql:
        steps += [
            ("copy", str(source), arguments.postgresql, "postgresql"),
            ("copy", arguments.postgresql, str(folder / "back.db"), "sqlite"),
        ]
    steps += [
        ("export", str(source), str(lines), ""),
        ("import", str(lines), str(folder / "imported.db"), ""),
        ("adopt", str(older), str(folder / "adopted.db"), "sqlite"),
    ]
    if arguments.postgresql:
        steps.append(("adopt", str(older), arguments.postgresql, "postgresql"))
    table = Table("step", "rows", "rows/s", "bound", "MB/s", "peak", "bound", "holds")
    size = source.stat().st_size / 1e6
    holds = True
    for step, given, target, backend in steps:
        if step == "adopt" and backend == "postgresql":
            empty(target)
        found = measured(step, given, target)
        rate, peak = found["rows"] / found["seconds"], found["peak"]
        # Checkpoints of 120 KB are no ordinary rows: there the memory is what is measured.
        least = 0 if arguments.megabytes else LEAST_ROWS.get(backend, 0)
        good = rate >= least and peak <= MOST_MEGABYTES
        holds = holds and good
        table.add_row(
            f"{step} {_kind(given)} -> {_kind(target)}", f"{found['rows']:,}", f"{rate:,.0f}", f"{least:,}",
            f"{size / found['seconds']:,.0f}", f"{peak:.0f} MB", f"{MOST_MEGABYTES} MB", "yes" if good else "NO",
        )  # fmt: skip
    table.title = f"{os.cpu_count()} cores, source {size:,.0f} MB"
    Console(width=140).print(table)
    return 0 if holds else 1


def _kind(place: str) -> str:
    return "PostgreSQL" if "://" in place else "lines" if place.endswith("jsonl") else "SQLite"


if __name__ == "__main__":
    sys.exit(main())
