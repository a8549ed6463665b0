"""``python -m benchmarks [--postgresql URL] [--folder DIR]``: measures, prints a table, and exits 1 when a bound is missed.

SQLite files go to ``--folder`` (default: shared memory where there is some, so that the disk does not count).
The PostgreSQL URL must name a database that may be filled.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import measures, transcripts
from benchmarks.raw import RawPostgresql, RawSqlite, RawStore
from hermes_state import SessionDB
from hermes_state.settings import Settings

Rows = list[tuple[str, str, str, bool]]


def main() -> int:
    """Runs everything that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--postgresql", metavar="URL", help="a database that may be filled")
    parser.add_argument("--folder", default="/dev/shm" if Path("/dev/shm").is_dir() else None)
    arguments = parser.parse_args()
    rows: Rows = []
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        rows += _sqlite(Path(folder))
    if arguments.postgresql:
        rows += _postgresql(arguments.postgresql)
    _show(rows)
    return 0 if all(row[3] for row in rows) else 1


def _sqlite(folder: Path) -> Rows:
    path = folder / "bench.db"
    with SessionDB(path, search_index="off") as db:
        raw = RawSqlite(str(path), Settings().synchronous)
        rows = _both("SQLite", db, raw, least_ratio=0.40)
        raw.close()
        rows += _transcripts("SQLite", db)
    size = measures.file_bytes_after_checkpoints(folder / "checkpoints.db")
    rows.append(
        ("SQLite: file after 300 turns with 120 KB checkpoints", f"{size / 1e6:.2f} MB", "3 MB", size <= 3e6)
    )
    return rows


def _postgresql(url: str) -> Rows:
    with SessionDB(url=url, migrate=True, search_index="off") as db:
        raw = RawPostgresql(url.replace("postgresql+psycopg://", "postgresql://"))
        rows = _both("PostgreSQL", db, raw, least_ratio=0.60)
        raw.close()
        rows += _transcripts("PostgreSQL", db)
    return rows


def _both(name: str, db: SessionDB, raw: RawStore, *, least_ratio: float) -> Rows:
    append = measures.append_ratio(db, raw)
    load = measures.load_ratio(db, raw, "ours-0")
    growth = measures.growth(db)
    strip = measures.strip_growth(db)
    statements = measures.statements_of_a_batch(db)
    rate = f"{append['ours_per_second']:,.0f} of {append['bare_per_second']:,.0f} messages/s = {append['ratio']:.0%}"
    rows: Rows = [
        (
            f"{name}: append of 4, of the bare driver",
            rate,
            f"at least {least_ratio:.0%}",
            append["ratio"] >= least_ratio,
        ),
        (f"{name}: turns 450-500 over turns 50-100", f"{growth:.2f}", "1.2", growth <= 1.2),
        (
            f"{name}: strip at 40,000 rows over 400 rows",
            f"{strip['large_ms']:.2f} / {strip['small_ms']:.2f} ms = {strip['ratio']:.2f}",
            "1.3",
            strip["ratio"] <= 1.3,
        ),
        (
            f"{name}: load of 2,000 messages over the bare driver",
            f"{load['ours_ms']:.1f} / {load['bare_ms']:.1f} ms = {load['ratio']:.2f}",
            "2",
            load["ratio"] <= 2,
        ),
        (f"{name}: statements of a batch", str(statements), "3", statements <= 3),
    ]
    if name == "SQLite":
        cpu = append["cpu_microseconds"]
        rows.append((f"{name}: CPU a message", f"{cpu:.0f} µs", "120 µs", cpu <= 120))
    return rows


def _transcripts(name: str, db: SessionDB) -> Rows:
    archive = transcripts.archive_ratio(db)
    window = transcripts.window_growth(db)
    crowded = transcripts.crowded_growth(db)
    rewind = transcripts.rewind_milliseconds(db)
    tip = transcripts.tip_milliseconds(db)
    small, large = transcripts.streaming_peaks(db)
    return [
        (
            f"{name}: archiving 16,000 rows over a bare UPDATE",
            f"{archive['ours_ms']:.0f} / {archive['bare_ms']:.0f} ms = {archive['ratio']:.2f}",
            "3",
            archive["ratio"] <= 3,
        ),
        (
            f"{name}: view around a message, 16,000 rows over 400",
            f"{window['long_ms']:.2f} / {window['short_ms']:.2f} ms = {window['ratio']:.2f}",
            "1.5",
            window["ratio"] <= 1.5,
        ),
        (
            f"{name}: views of 4,000 rows beside 64,000 newer ones over alone",
            f"{crowded['crowded_ms']:.2f} / {crowded['alone_ms']:.2f} ms = {crowded['ratio']:.2f}",
            "2",
            crowded["ratio"] <= 2,
        ),
        (f"{name}: rewind of the last turn of 16,000 rows", f"{rewind:.1f} ms", "-", True),
        (f"{name}: tip of a chain of 1,000", f"{tip:.1f} ms", "-", True),
        (
            f"{name}: memory of streaming 100,000 messages over 10,000",
            f"{large:.1f} / {small:.1f} MB",
            "1.2",
            large <= 1.2 * small,
        ),
    ]


def _show(rows: Rows) -> None:
    table = Table(
        "measure", "found", "bound", "holds", title=f"{os.cpu_count()} cores, best of {measures.ROUNDS}"
    )
    for measure, found, bound, holds in rows:
        table.add_row(measure, found, bound, "yes" if holds else "NO")
    Console(width=140).print(table)


if __name__ == "__main__":
    sys.exit(main())
