"""The same work by the bare drivers: the bound that the append is measured against (issue 2).

One transaction a turn into our migrated tables: begin, ``UPDATE sessions ... RETURNING``, insert with uid, ids back,
commit. No validation, no cleaning, no duplicates, no strip.
"""

from __future__ import annotations

import sqlite3
import time
from typing import Any, Protocol

import psycopg

from benchmarks.workload import RAW_COLUMNS, Message, raw_rows

_COUNT = len(RAW_COLUMNS.split(","))


class RawStore(Protocol):
    """A bare connection that appends and loads."""

    def append(self, session_id: str, messages: list[Message]) -> None:
        """One turn in one transaction."""

    def load(self, session_id: str) -> list[Any]:
        """The session's rows, all columns, oldest first."""

    def close(self) -> None:
        """Closes the connection."""


class RawSqlite:
    """sqlite3 with the same pragmas as the store."""

    def __init__(self, path: str, synchronous: str) -> None:
        self._conn = sqlite3.connect(path, isolation_level=None)
        self._conn.execute("PRAGMA foreign_keys = ON")
        self._conn.execute(f"PRAGMA synchronous = {synchronous}")

    def append(self, session_id: str, messages: list[Message]) -> None:
        """One turn in one transaction."""
        conn = self._conn
        rows = raw_rows(session_id, messages, time.time())
        calls = sum(len(m.get("tool_calls", ())) for m in messages)
        conn.execute("BEGIN IMMEDIATE")
        update = "UPDATE sessions SET message_count = message_count + ?, tool_call_count = tool_call_count + ? WHERE id = ?"
        conn.execute(update + " RETURNING ended_at, end_reason", (len(rows), calls, session_id)).fetchall()
        places = ", ".join(["(" + ", ".join("?" * _COUNT) + ")"] * len(rows))
        insert = f"INSERT INTO messages ({RAW_COLUMNS}) VALUES {places} RETURNING id, message_uid"
        conn.execute(insert, [value for row in rows for value in row]).fetchall()
        conn.execute("COMMIT")

    def load(self, session_id: str) -> list[Any]:
        """The session's rows, all columns, oldest first."""
        stmt = "SELECT * FROM messages WHERE session_id = ? AND active ORDER BY id"
        return self._conn.execute(stmt, (session_id,)).fetchall()

    def close(self) -> None:
        """Closes the connection."""
        self._conn.close()


class RawPostgresql:
    """psycopg with its defaults."""

    def __init__(self, url: str) -> None:
        self._conn = psycopg.connect(url)

    def append(self, session_id: str, messages: list[Message]) -> None:
        """One turn in one transaction."""
        rows = raw_rows(session_id, messages, time.time())
        calls = sum(len(m.get("tool_calls", ())) for m in messages)
        with self._conn.cursor() as cursor:
            update = "UPDATE sessions SET message_count = message_count + %s, tool_call_count = tool_call_count + %s"
            cursor.execute(
                update + " WHERE id = %s RETURNING ended_at, end_reason", (len(rows), calls, session_id)
            ).fetchall()
            places = ", ".join(["(" + ", ".join(["%s"] * _COUNT) + ")"] * len(rows))
            insert = f"INSERT INTO messages ({RAW_COLUMNS}) VALUES {places} RETURNING id, message_uid"
            cursor.execute(insert.encode(), [value for row in rows for value in row]).fetchall()
        self._conn.commit()

    def load(self, session_id: str) -> list[Any]:
        """The session's rows, all columns, oldest first."""
        with self._conn.cursor() as cursor:
            stmt = "SELECT * FROM messages WHERE session_id = %s AND active ORDER BY id"
            rows = cursor.execute(stmt, (session_id,)).fetchall()
        self._conn.commit()
        return rows

    def close(self) -> None:
        """Closes the connection."""
        self._conn.close()
