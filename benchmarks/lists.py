"""``python -m benchmarks.lists [--postgresql URL]``: a page of sessions, and a count, at 500 and at 50,000 sessions.

A page holds 50 sessions by last activity, with previews and live ends of chains; its time at 50,000 sessions (1 M messages)
may be twice that at 500. A count with filters may take twice a bare COUNT with the same predicate. Prints the ratios; exits 1
when one is missed. PostgreSQL: the URL of a database of its own, which is emptied.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from hermes_state import SessionDB

SMALL, BIG, MESSAGES = 500, 50_000, 20
_ON_SQLITE = "(WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {last}) SELECT i FROM n) AS numbers"
_ON_POSTGRESQL = "(SELECT i FROM generate_series(0, {last}) AS i) AS numbers"
_BARE_COUNT = (
    "SELECT count(*) FROM sessions WHERE kind IN ('root', 'branch') AND NOT archived AND NOT hidden AND source = 'cli' "
    "AND message_count >= 1"
)


def fill(db: SessionDB, number: int, *, is_sqlite: bool) -> None:
    """Sessions of which every tenth was compressed into a continuation; short messages."""
    numbers = _ON_SQLITE if is_sqlite else _ON_POSTGRESQL
    name = "printf('s%06d', i)" if is_sqlite else "'s' || lpad(i::text, 6, '0')"
    with db.unit_of_work() as uow:

        def run(text: str) -> None:
            # psycopg takes % for a placeholder.
            uow.connection.exec_driver_sql(text if is_sqlite else text.replace("%", "%%"))

        run("DELETE FROM sessions")
        run(
            "INSERT INTO sessions (id, source, kind, started_at, ended_at, end_reason, last_active_at, message_count) "
            f"SELECT {name}, 'cli', 'root', 1e9 + i, CASE i % 10 WHEN 0 THEN 2e9 END, "
            f"CASE i % 10 WHEN 0 THEN 'compression' END, 1e9 + i * 7919 % {number}, {MESSAGES} "
            f"FROM {numbers.format(last=number - 1)}"
        )
        run(
            "INSERT INTO sessions (id, source, kind, parent_session_id, root_session_id, started_at, last_active_at) "
            "SELECT id || 'c', 'cli', 'continuation', id, id, started_at, last_active_at + 0.5 FROM sessions "
            "WHERE end_reason = 'compression'"
        )
        run(
            "INSERT INTO messages (session_id, role, content) SELECT sessions.id, 'user', 'a line that somebody types' "
            f"FROM sessions, {numbers.format(last=MESSAGES - 1)}"
        )
    with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        conn.exec_driver_sql("ANALYZE")


def best(step: Callable[[], object], times: int = 15) -> float:
    """The shortest of several runs, in seconds."""
    found = []
    for _ in range(times):
        started = time.perf_counter()
        step()
        found.append(time.perf_counter() - started)
    return min(found)


def measure(db: SessionDB, *, is_sqlite: bool) -> list[tuple[str, float]]:
    """The ratios, each with a bound of 2."""
    pages = []
    for number in (SMALL, BIG):
        fill(db, number, is_sqlite=is_sqlite)
        pages.append(best(lambda: db.list_sessions_rich(limit=50, order_by_last_active=True)))
    count = best(lambda: db.session_count(source="cli", min_message_count=1))

    def bare() -> None:
        with db.engine.connect() as conn:
            conn.exec_driver_sql(_BARE_COUNT).scalar()

    return [
        (f"page at {BIG:,} over {SMALL:,} sessions ({pages[1] * 1e3:.1f} ms)", pages[1] / pages[0]),
        (f"count over bare count ({count * 1e3:.1f} ms)", count / best(bare)),
    ]


def main() -> int:
    """Measures both databases, as far as they are given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--postgresql", metavar="URL")
    url = parser.parse_args().postgresql
    missed = 0
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        targets = [("sqlite", f"sqlite:///{folder}/bench.db")] + ([("postgresql", url)] if url else [])
        for name, target in targets:
            with SessionDB(url=target, migrate=True) as db:
                for what, ratio in measure(db, is_sqlite=name == "sqlite"):
                    print(f"{name}: {what}: {ratio:.2f} (bound 2)")
                    missed += ratio > 2
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
