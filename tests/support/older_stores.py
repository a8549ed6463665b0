"""Files as older stores write them, versions 17 to 31, made from the schema facts of the known store; nothing of the package."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SESSIONS_17 = """
    id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, session_key TEXT, chat_id TEXT, chat_type TEXT, thread_id TEXT,
    model TEXT, model_config TEXT, system_prompt TEXT, parent_session_id TEXT, started_at REAL NOT NULL, ended_at REAL,
    end_reason TEXT, message_count INTEGER DEFAULT 0, tool_call_count INTEGER DEFAULT 0, input_tokens INTEGER DEFAULT 0,
    output_tokens INTEGER DEFAULT 0, cache_read_tokens INTEGER DEFAULT 0, cache_write_tokens INTEGER DEFAULT 0,
    reasoning_tokens INTEGER DEFAULT 0, cwd TEXT, git_branch TEXT, git_repo_root TEXT, billing_provider TEXT,
    billing_base_url TEXT, billing_mode TEXT, estimated_cost_usd REAL, actual_cost_usd REAL, cost_status TEXT,
    cost_source TEXT, pricing_version TEXT, title TEXT, api_call_count INTEGER DEFAULT 0, handoff_state TEXT,
    handoff_platform TEXT, handoff_error TEXT, compression_failure_cooldown_until REAL, compression_failure_error TEXT,
    rewind_count INTEGER NOT NULL DEFAULT 0, archived INTEGER NOT NULL DEFAULT 0
"""
MESSAGES_17 = """
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL REFERENCES sessions(id), role TEXT NOT NULL, content TEXT,
    tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL, token_count INTEGER, finish_reason TEXT,
    reasoning TEXT, reasoning_content TEXT, reasoning_details TEXT, codex_reasoning_items TEXT, codex_message_items TEXT,
    platform_message_id TEXT, observed INTEGER DEFAULT 0, active INTEGER NOT NULL DEFAULT 1,
    compacted INTEGER NOT NULL DEFAULT 0
"""
# Later releases add columns at the end, each at the version from which the generator gives it.
LATER_COLUMNS: dict[str, list[tuple[int, str]]] = {
    "sessions": [
        (18, "created_source TEXT"),
        (18, "title_source TEXT"),
        (18, "profile_name TEXT"),
        (20, "compression_fallback_streak INTEGER DEFAULT 0"),
        (20, "compression_ineffective_count INTEGER DEFAULT 0"),
        (20, "compression_overload_streak INTEGER DEFAULT 0"),
        (20, "compression_recovery_deadline REAL"),
        (22, "last_activity_at REAL"),
        (22, "last_activity_description TEXT"),
        (22, "last_activity_provenance TEXT"),
        (22, "git_metadata_generation INTEGER NOT NULL DEFAULT 0"),
        (25, "system_prompt_hash TEXT"),
        (25, "tool_names TEXT"),
        (31, "pinned INTEGER NOT NULL DEFAULT 0"),
        (31, "hidden INTEGER NOT NULL DEFAULT 0"),
        (31, "last_read_at REAL"),
        (31, "auto_archived INTEGER NOT NULL DEFAULT 0"),
    ],
    "messages": [
        (18, "effect_disposition TEXT"),
        (20, "api_content TEXT"),
        (20, "_compressed_summary INTEGER DEFAULT 0"),
        (23, "display_kind TEXT"),
        (23, "display_metadata TEXT"),
        (30, "display_identity BLOB"),
        (30, "display_order INTEGER"),
        (31, "message_uid TEXT"),
        (31, "absorbed_message_uids TEXT"),
        (31, "tool_call_uids TEXT"),
        (31, "tool_call_uid TEXT"),
    ],
}
USAGE = """
    api_call_count INTEGER DEFAULT 0, input_tokens INTEGER DEFAULT 0, output_tokens INTEGER DEFAULT 0,
    cache_read_tokens INTEGER DEFAULT 0, cache_write_tokens INTEGER DEFAULT 0, reasoning_tokens INTEGER DEFAULT 0,
    estimated_cost_usd REAL, actual_cost_usd REAL
"""
MODEL_KEYS = ("model", "billing_provider", "billing_base_url", "billing_mode", "task")
LATER_TABLES = [
    (
        20,
        f"""CREATE TABLE session_model_usage (session_id TEXT REFERENCES sessions(id) ON DELETE CASCADE, model TEXT,
        billing_provider TEXT, billing_base_url TEXT, billing_mode TEXT, task TEXT, {USAGE}, cost_status TEXT,
        cost_source TEXT, first_seen REAL, last_seen REAL,
        PRIMARY KEY (session_id, model, billing_provider, billing_base_url, billing_mode, task))""",
    ),
    (
        22,
        f"CREATE TABLE session_daily_usage (session_id TEXT, day TEXT, {USAGE}, PRIMARY KEY (session_id, day))",
    ),
    (22, "CREATE TABLE conversation_generations (source TEXT, session_key TEXT, generation INTEGER)"),
    (25, "CREATE TABLE system_prompts (hash TEXT PRIMARY KEY, prompt TEXT NOT NULL)"),
    (
        26,
        "CREATE TABLE session_turn_leases (conversation_id TEXT PRIMARY KEY, holder TEXT, acquired_at REAL, expires_at REAL)",
    ),
]
COMMON = """
    CREATE TABLE state_meta (key TEXT PRIMARY KEY, value TEXT);
    CREATE TABLE compression_locks (session_id TEXT PRIMARY KEY, holder TEXT NOT NULL, acquired_at REAL NOT NULL,
        expires_at REAL NOT NULL);
    CREATE INDEX idx_messages_session ON messages(session_id, timestamp);
    CREATE VIRTUAL TABLE messages_fts USING fts5(content);
"""
START = 1_780_000_000.0


class OldStore:
    """A file that an older store wrote; every statement is committed at once."""

    def __init__(self, path: Path, version: int = 17) -> None:
        self.path = path
        self.conn = sqlite3.connect(path, isolation_level=None)
        self.conn.execute("PRAGMA journal_mode = WAL")
        self._clock = itertools.count(1)
        for name, columns in (("sessions", SESSIONS_17), ("messages", MESSAGES_17)):
            self.conn.execute(f"CREATE TABLE {name} ({columns})")
            for since, column in LATER_COLUMNS[name]:
                if since <= version:
                    self.conn.execute(f"ALTER TABLE {name} ADD COLUMN {column}")
        for since, statement in LATER_TABLES:
            if since <= version:
                self.conn.execute(statement)
        self.conn.executescript(COMMON)
        self.conn.execute("CREATE TABLE schema_version (version INTEGER NOT NULL)")
        self.conn.execute("INSERT INTO schema_version VALUES (?)", (version,))

    def session(self, session_id: Any = "s", **columns: Any) -> None:
        """Inserts a session."""
        self._insert("sessions", {"id": session_id, "source": "cli", "started_at": START, **columns})

    def message(
        self, session_id: Any = "s", role: Any = "user", content: Any = "text", **columns: Any
    ) -> int:
        """Inserts a message; its row id."""
        timed = {"timestamp": START + next(self._clock), **columns}
        return self._insert("messages", {"session_id": session_id, "role": role, "content": content, **timed})

    def usage(self, table: str = "session_model_usage", **columns: Any) -> None:
        """Inserts a row of a ledger."""
        keys = {"day": "2026-06-01"} if table == "session_daily_usage" else dict.fromkeys(MODEL_KEYS, "")
        self._insert(table, {"session_id": "s", **keys, **columns})

    def messages(self, rows: Iterable[tuple[str, str, str, str | None]]) -> None:
        """Inserts many messages: session, role, content and reasoning items."""
        self.conn.execute("BEGIN")
        self.conn.executemany(
            "INSERT INTO messages (session_id, role, content, codex_reasoning_items, timestamp) VALUES (?, ?, ?, ?, ?)",
            ((*row, START + number) for number, row in enumerate(rows)),
        )
        self.conn.execute("COMMIT")

    def close(self) -> None:
        """Ends the writing program; its -wal is left where another connection keeps it."""
        self.conn.close()

    def _insert(self, table: str, values: dict[str, Any]) -> int:
        marks = ", ".join("?" * len(values))
        statement = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})"
        found = self.conn.execute(statement, list(values.values())).lastrowid
        assert found is not None
        return found


def parts(*items: Any) -> str:
    """Content that is no text, as the older stores keep it."""
    return "\0json:" + json.dumps(list(items))
