"""Which keys were met so far: a large store has more of them than memory should hold."""

from __future__ import annotations

import sqlite3
from contextlib import closing


class SeenKeys:
    """Keys within sessions, in a temporary file of SQLite's."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect("", isolation_level=None)
        self._connection.execute(
            "CREATE TABLE seen (session_id, key, PRIMARY KEY (session_id, key)) WITHOUT ROWID"
        )
        self._connection.execute("BEGIN")

    def take(self, session_id: str, key: str) -> bool:
        """Whether ``key`` was free; it no longer is."""
        with closing(
            self._connection.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", (session_id, key))
        ) as done:
            return done.rowcount == 1

    def close(self) -> None:
        """Deletes the file."""
        self._connection.close()
