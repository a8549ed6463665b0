"""``python -m benchmarks.retention [--folder DIR]``: prunes 20,000 of 50,000 sessions while another writer appends (SQLite).

Prints the seconds, the longest write of the other one, and the peak memory; exits 1 when a write waited for above one second.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import threading
import time
from pathlib import Path

from hermes_state import SessionDB

SESSIONS, OLD, MESSAGES = 50_000, 20_000, 20
_NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"


def fill(db: SessionDB) -> None:
    """Ended sessions with short messages; the old ones stand between the others."""
    with db.unit_of_work() as uow:
        uow.connection.exec_driver_sql(
            f"INSERT INTO sessions (id, source, kind, started_at, ended_at, message_count) {_NUMBERS} "
            "SELECT printf('s%06d', i), 'cli', 'root', CASE WHEN i % ? < ? THEN 1 ELSE 4e9 END, 2, ? FROM n",
            (SESSIONS - 1, SESSIONS // 10_000, OLD // 10_000, MESSAGES),
        )
        uow.connection.exec_driver_sql(
            f"INSERT INTO messages (session_id, role, content) {_NUMBERS} "
            "SELECT sessions.id, 'user', 'about as long as a line that somebody types' FROM sessions, n",
            (MESSAGES - 1,),
        )


def longest_write(path: Path, stop: threading.Event) -> float:
    """Appends one message after the other until it is told to stop."""
    longest = 0.0
    with SessionDB(path) as db:
        db.create_session("live", "cli")
        while not stop.wait(0.005):
            started = time.perf_counter()
            db.append_message("live", "user", "x")
            longest = max(longest, time.perf_counter() - started)
    return longest


def main() -> int:
    """Measures once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", default="/dev/shm" if Path("/dev/shm").is_dir() else None)
    stop, found = threading.Event(), [0.0]
    with tempfile.TemporaryDirectory(dir=parser.parse_args().folder) as folder:
        path = Path(folder) / "bench.db"
        with SessionDB(path) as db:
            fill(db)
            other = threading.Thread(target=lambda: found.append(longest_write(path, stop)))
            other.start()
            started = time.perf_counter()
            count = db.prune_sessions(1)
            seconds = time.perf_counter() - started
            stop.set()
            other.join()
    longest = max(found)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{count:,} sessions in {seconds:.1f} s; longest write beside {longest:.2f} s (bound 1 s); {peak:.0f} MB"
    )
    return 0 if count == OLD and longest <= 1 else 1


if __name__ == "__main__":
    raise SystemExit(main())
