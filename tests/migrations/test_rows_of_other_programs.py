"""Raw SQL with few columns works, and the constraints hold whoever writes (CONTRACT.md sections 1, 2 and 6)."""

from __future__ import annotations

import sqlite3
import time
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from tests.support.raw import RawSql

pytestmark = pytest.mark.usefixtures("migrated")

REFUSED = (sqlite3.IntegrityError, psycopg.errors.IntegrityError, psycopg.errors.DataError)
COUNTERS = (
    "message_count",
    "tool_call_count",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "api_call_count",
    "compression_fallback_streak",
    "compression_ineffective_count",
    "compression_overload_streak",
    "rewind_count",
)
FLAGS = (
    ("sessions", "archived"),
    ("sessions", "pinned"),
    ("sessions", "hidden"),
    ("sessions", "auto_archived"),
    ("messages", "observed"),
    ("messages", "active"),
    ("messages", "compacted"),
)


@pytest.fixture
def filled(migrated: sa.Engine, sql: RawSql) -> RawSql:
    """A session with one message, written as another program would."""
    sql("INSERT INTO sessions (id) VALUES ('s')")
    sql("INSERT INTO messages (session_id) VALUES ('s')")
    return sql


def test_a_session_needs_only_its_id(filled: RawSql) -> None:
    row = filled(
        "SELECT source, kind, root_session_id, message_count, archived, pinned, last_active_at FROM sessions"
    )
    assert row == [("unknown", None, None, 0, 0, 0, None)]
    assert abs(filled.value("SELECT started_at FROM sessions") - time.time()) < 60


def test_a_message_needs_only_its_session(filled: RawSql) -> None:
    assert filled("SELECT role, content, observed, active, compacted FROM messages") == [
        ("unknown", None, 0, 1, 0)
    ]
    assert abs(filled.value("SELECT timestamp FROM messages") - time.time()) < 60


def test_message_uids_made_by_the_database_are_32_digits_and_differ(filled: RawSql) -> None:
    filled("INSERT INTO messages (session_id) VALUES ('s'), ('s'), ('s')")
    uids = filled.column("SELECT message_uid FROM messages")
    assert len(set(uids)) == 4
    assert all(len(uid) == 32 and set(uid) <= set("0123456789abcdef") for uid in uids)


def test_the_clock_of_the_database_has_fractions_of_a_second(filled: RawSql) -> None:
    for _ in range(5):
        filled("INSERT INTO messages (session_id) VALUES ('s')")
    assert any(stamp != int(stamp) for stamp in filled.column("SELECT timestamp FROM messages"))


@pytest.mark.parametrize("columns", ["end_reason", "ended_at", "kind", "parent_session_id", "started_at"])
def test_lineage_columns_are_written_in_any_order(filled: RawSql, columns: str) -> None:
    values = {"end_reason": "compression", "kind": "continuation", "parent_session_id": "s"}
    filled(f"INSERT INTO sessions (id, {columns}) VALUES ('other', ?)", values.get(columns, 1.0))
    assert filled.value(f"SELECT {columns} FROM sessions WHERE id = 'other'") == values.get(columns, 1.0)


def test_a_parent_may_have_several_continuations_and_carriers(filled: RawSql) -> None:
    for number in range(2):
        filled(
            "INSERT INTO sessions (id, parent_session_id, kind) VALUES (?, 's', 'continuation')", f"c{number}"
        )
        filled(
            "INSERT INTO messages (session_id, role, codex_reasoning_items) VALUES ('s', 'assistant', ?)",
            '[{"type": "compaction"}]',
        )
    assert filled.value("SELECT count(*) FROM sessions") == 3


@pytest.mark.parametrize("backend", ["sqlite"])
def test_malformed_json_is_stored_on_sqlite(filled: RawSql) -> None:
    filled("UPDATE messages SET codex_reasoning_items = '[{', tool_calls = 'no', extra = '{'")
    filled("UPDATE sessions SET model_config = '{'")
    assert filled("SELECT codex_reasoning_items, tool_calls, extra FROM messages") == [("[{", "no", "{")]


@pytest.mark.parametrize(
    "text", ['{"b": 1.10, "a": 1180591620717411303424}', "1180591620717411303424", "1e100", " [1,  2] "]
)
def test_json_is_kept_to_the_letter(filled: RawSql, text: str) -> None:
    filled("UPDATE messages SET extra = ?", text)
    assert filled.value("SELECT extra FROM messages") == text


def test_epochs_keep_their_microseconds(filled: RawSql) -> None:
    filled("UPDATE messages SET timestamp = ?", 1780000000.123456)
    assert filled.value("SELECT timestamp FROM messages") == 1780000000.123456


def test_counters_go_past_32_bits(filled: RawSql) -> None:
    for _ in range(2):
        filled("UPDATE sessions SET input_tokens = input_tokens + 2147483648")
    assert filled.value("SELECT input_tokens FROM sessions") == 4294967296


def test_a_row_is_never_both_active_and_compacted(filled: RawSql, backend: str) -> None:
    true = "1" if backend == "sqlite" else "true"
    for statement in (
        f"UPDATE messages SET compacted = {true}",
        f"INSERT INTO messages (session_id, active, compacted) VALUES ('s', {true}, {true})",
        f"INSERT INTO messages (session_id, compacted) VALUES ('s', {true})",
    ):
        with pytest.raises(REFUSED):
            filled(statement)
    assert filled("SELECT active, compacted FROM messages") == [(1, 0)]


@pytest.mark.parametrize("value", ["2", "-1", "'maybe'", "NULL"])
@pytest.mark.parametrize(("table", "column"), FLAGS)
def test_a_flag_is_a_boolean(filled: RawSql, table: str, column: str, value: str) -> None:
    with pytest.raises((*REFUSED, psycopg.errors.DatatypeMismatch)):
        filled(f"UPDATE {table} SET {column} = {value}")


@pytest.mark.parametrize("column", COUNTERS)
def test_a_counter_is_never_negative_or_missing(filled: RawSql, column: str) -> None:
    for value in ("-1", "NULL"):
        with pytest.raises(REFUSED):
            filled(f"UPDATE sessions SET {column} = {value}")
    filled(f"UPDATE sessions SET {column} = 7")
    assert filled.value(f"SELECT {column} FROM sessions") == 7


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO sessions (id) VALUES (?)",
        "INSERT INTO messages (session_id, message_uid) VALUES ('s', ?)",
        "INSERT INTO messages (session_id, platform_message_id) VALUES ('s', ?)",
        "INSERT INTO state_meta (key) VALUES (?)",
    ],
)
def test_ids_have_1_to_512_characters(filled: RawSql, statement: str) -> None:
    for value in ("", "x" * 513, "\N{GRINNING FACE}" * 513):
        with pytest.raises(REFUSED):
            filled(statement, value)
    for value in ("x", "y" * 512, "\N{GRINNING FACE}" * 512):
        filled(statement, value)


def test_an_id_is_never_null(filled: RawSql) -> None:
    for statement in (
        "INSERT INTO sessions (id) VALUES (NULL)",
        "INSERT INTO state_meta (key) VALUES (NULL)",
    ):
        with pytest.raises(REFUSED):
            filled(statement)


@pytest.mark.parametrize("kind", ["root", "continuation", "branch", "delegate", "tool", None])
def test_known_kinds_are_stored(filled: RawSql, kind: str | None) -> None:
    filled("UPDATE sessions SET kind = ?", kind)
    assert filled.value("SELECT kind FROM sessions") == kind


def test_an_unknown_kind_is_refused(filled: RawSql) -> None:
    with pytest.raises(REFUSED):
        filled("UPDATE sessions SET kind = 'twin'")


def test_a_uid_is_unique_within_its_session_only(filled: RawSql) -> None:
    filled("INSERT INTO sessions (id) VALUES ('t')")
    filled("INSERT INTO messages (session_id, message_uid) VALUES ('s', 'u'), ('t', 'u')")
    with pytest.raises(REFUSED):
        filled("INSERT INTO messages (session_id, message_uid) VALUES ('s', 'u')")


def test_a_title_is_unique_where_there_is_one(filled: RawSql) -> None:
    filled("INSERT INTO sessions (id) VALUES ('t')")
    filled("UPDATE sessions SET title = 'same' WHERE id = 's'")
    with pytest.raises(REFUSED):
        filled("UPDATE sessions SET title = 'same' WHERE id = 't'")


def test_a_message_needs_an_existing_session(filled: RawSql) -> None:
    for session_id in ("absent", None):
        with pytest.raises(REFUSED):
            filled("INSERT INTO messages (session_id) VALUES (?)", session_id)


def test_deleting_a_session_removes_its_messages_and_frees_its_children(filled: RawSql) -> None:
    filled("INSERT INTO sessions (id, parent_session_id, root_session_id) VALUES ('child', 's', 's')")
    filled("INSERT INTO messages (session_id) VALUES ('child')")
    filled("DELETE FROM sessions WHERE id = 's'")
    assert filled("SELECT id, parent_session_id, root_session_id FROM sessions") == [("child", None, "s")]
    assert filled.column("SELECT session_id FROM messages") == ["child"]


def test_ids_are_not_used_again_after_a_delete(filled: RawSql) -> None:
    newest = filled.value("SELECT max(id) FROM messages")
    filled("DELETE FROM messages WHERE id = ?", newest)
    filled("INSERT INTO messages (session_id) VALUES ('s')")
    assert filled.value("SELECT max(id) FROM messages") > newest


def test_an_id_may_be_given(filled: RawSql) -> None:
    filled("INSERT INTO messages (id, session_id) VALUES (?, 's')", 5_000_000_000)
    assert filled.value("SELECT max(id) FROM messages") == 5_000_000_000


def test_any_text_is_taken_at_any_length(filled: RawSql) -> None:
    long: dict[str, Any] = {
        "end_reason": "e" * 5_000,
        "model_config": "{" * 5_000,
        "cost_status": "c" * 5_000,
    }
    for column, value in long.items():
        filled(f"UPDATE sessions SET {column} = ?", value)
        assert filled.value(f"SELECT {column} FROM sessions") == value
