"""Rows of other programs on their way into another database (field reports A1, C1 to C6; issue 4, bad input)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state import SessionDB, StoreIncompleteError
from hermes_state.transfer import conversions
from hermes_state.transfer.copying import CopyReport, UnfitRowError, copy_store
from tests.contract.test_copying import rows_of
from tests.support.builders import user
from tests.support.pairs import store_urls
from tests.support.raw import RawSql


@pytest.fixture(
    params=["sqlite-sqlite", pytest.param("sqlite-postgresql", marks=pytest.mark.postgres)],
)
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[str]]:
    """The URLs of a SQLite store with session ``s`` and three messages, and of an empty store."""
    with store_urls(request.param, request, tmp_path) as found:
        with SessionDB(url=found[0]) as db:
            db.create_session("s", "cli")
            db.append_messages_batch("s", [user(f"q{n}", message_uid=f"u{n}") for n in range(3)])
        yield found


def spoil(urls: list[str], *statements: str) -> None:
    """Statements of a program that asks for no checks."""
    raw = RawSql(urls[0])
    raw("PRAGMA foreign_keys = OFF")
    raw("PRAGMA ignore_check_constraints = ON")
    for statement in statements:
        raw(statement)
    raw.close()


def copied(urls: list[str], statement: str) -> tuple[CopyReport, list[tuple[Any, ...]]]:
    """The report of a copy, and what a statement finds in the target."""
    report = copy_store(urls[0], urls[1])
    raw = RawSql(urls[1])
    found = raw(statement)
    raw.close()
    return report, found


@pytest.mark.parametrize(
    ("column", "value", "stored", "rule"),
    [
        ("content", "'a' || char(0) || 'b'", "a\ufffdb", "NUL became U+FFFD"),
        ("content", "CAST(x'6162ff63' AS TEXT)", "ab\ufffdc", "what is not UTF-8 became U+FFFD"),
        ("content", "CAST(x'eda080' AS TEXT)", "\ufffd\ufffd\ufffd", "what is not UTF-8 became U+FFFD"),
        ("content", "x'616200ff'", "ab\ufffd\ufffd", "bytes were read as text"),
        ("role", "x'75736572'", "user", "bytes were read as text"),
        ("token_count", "'many'", None, "what is no whole number was taken out"),
        ("token_count", "3.75", 3, "a fraction was cut off"),
        ("token_count", "9e999", None, "what is no whole number was taken out"),
        ("token_count", "1e300", None, "what is no whole number was taken out"),
        ("token_count", "x'01'", None, "what is no whole number was taken out"),
        ("timestamp", "'yesterday'", 0.0, "what is no finite number was taken out"),
        ("timestamp", "9e999", 0.0, "what is no finite number was taken out"),
        ("timestamp", "-9e999", 0.0, "what is no finite number was taken out"),
        ("observed", "2", True, "a number became true"),
        ("observed", "0.5", True, "a number became true"),
        ("observed", "'yes'", False, "what is no number became false"),
        ("content", "12", "12", None),
        ("token_count", "'7'", 7, None),
        ("timestamp", "5", 5.0, None),
        ("timestamp", "-0.0", 0.0, None),
        ("observed", "1.0", True, None),
    ],
)
def test_a_value_that_not_every_database_takes_is_changed_and_noted(
    urls: list[str], column: str, value: str, stored: Any, rule: str | None
) -> None:
    spoil(urls, f"UPDATE messages SET {column} = {value} WHERE message_uid = 'u1'")
    report, found = copied(urls, f"SELECT {column} FROM messages WHERE message_uid = 'u1'")
    assert found == [(stored,)]
    notes = [(note.table, note.key, note.column, note.done) for note in report.notes]
    assert notes == ([] if rule is None else [("messages", (2,), column, rule)])
    assert [each.changed for each in report.tables if each.table == "messages"] == [len(notes)]
    assert [row[0] for row in rows_of(urls[1], "messages")] == [1, 2, 3]


@pytest.mark.parametrize(
    "text",
    [
        "[oops",
        "",
        "{'a': 1}",
        "[NaN]",
        '["\x01"]',
        '{"a": 1}x',
        "\ufeff[]",
        "[" * 9000,
        "[1" + "0" * 5000 + "]",
    ],
)
def test_text_that_is_no_json_is_kept_as_a_string_and_reads_as_absent(urls: list[str], text: str) -> None:
    raw = RawSql(urls[0])
    raw("UPDATE messages SET tool_calls = ? WHERE message_uid = 'u1'", text)
    raw.close()
    report, found = copied(urls, "SELECT tool_calls FROM messages WHERE message_uid = 'u1'")
    if urls[1].startswith("sqlite"):
        assert (found, report.notes) == ([(text,)], [])
    else:
        assert json.loads(found[0][0]) == text
        assert [note.done for note in report.notes] == ["text that is no JSON is kept as a JSON string"]
    for url in urls:
        with SessionDB(url=url) as db:
            assert [row["tool_calls"] for row in db.get_messages("s")] == [None] * 3


@pytest.mark.parametrize(
    "text",
    [
        '{"b": 1.50, "a": [1e400, -0.0, 123456789012345678901234567890]}',
        '"\\u0000 \\ud800"',
        " [ ] ",
        '{"a":1,"a":2}',
        "null",
        "7",
    ],
)
def test_json_is_kept_to_the_letter(urls: list[str], text: str) -> None:
    raw = RawSql(urls[0])
    raw("UPDATE messages SET reasoning_details = ?, display_metadata = ?", text, text)
    raw.close()
    report, found = copied(urls, "SELECT reasoning_details, display_metadata FROM messages")
    assert found == [(text, text)] * 3
    assert report.notes == []


def test_counters_settings_and_states_of_sessions_follow_the_same_rules(urls: list[str]) -> None:
    spoil(
        urls,
        "UPDATE sessions SET input_tokens = 'x', ended_at = 'soon', archived = 'y', model_config = '{broken', "
        "title = CAST(x'ff' AS TEXT), estimated_cost_usd = 9e999, started_at = x'00'",
    )
    report, found = copied(
        urls,
        "SELECT input_tokens, ended_at, archived, model_config, title, estimated_cost_usd, started_at FROM sessions",
    )
    assert found == [(0, None, False, "{broken", "\ufffd", None, 0.0)]
    assert {note.column for note in report.notes} == {
        "input_tokens", "ended_at", "archived", "title", "estimated_cost_usd", "started_at",
    }  # fmt: skip


def test_a_parent_that_does_not_exist_becomes_null_and_is_noted(urls: list[str]) -> None:
    spoil(urls, "UPDATE sessions SET parent_session_id = 'deleted'")
    report, found = copied(urls, "SELECT id, parent_session_id FROM sessions")
    assert found == [("s", None)]
    assert [(n.key, n.column, n.value) for n in report.notes] == [(("s",), "parent_session_id", "'deleted'")]


def test_messages_of_a_session_that_was_deleted_past_the_store_are_left_out_and_noted(
    urls: list[str],
) -> None:
    spoil(
        urls,
        "INSERT INTO sessions (id) VALUES ('kept')",
        "INSERT INTO messages (session_id, content) VALUES ('kept', 'here')",
        "DELETE FROM sessions WHERE id = 's'",
    )
    report, found = copied(urls, "SELECT session_id, content FROM messages")
    assert found == [("kept", "here")]
    assert [(each.rows, each.left_out) for each in report.tables if each.table == "messages"] == [(1, 3)]
    assert [(n.key, n.column) for n in report.notes] == [((n,), "session_id") for n in (1, 2, 3)]


def test_ids_that_are_not_utf_8_keep_their_messages(urls: list[str]) -> None:
    spoil(
        urls,
        "UPDATE messages SET session_id = CAST(x'73ff' AS TEXT)",
        "UPDATE sessions SET id = CAST(x'73ff' AS TEXT)",
        "INSERT INTO sessions (id, parent_session_id) VALUES ('t' || char(0) || 't', CAST(x'73ff' AS TEXT))",
    )
    _, found = copied(urls, "SELECT id, parent_session_id FROM sessions ORDER BY id")
    assert found == [("s\ufffd", None), ("t\ufffdt", "s\ufffd")]
    with SessionDB(url=urls[1]) as db:
        assert [row["content"] for row in db.get_messages("s\ufffd")] == ["q0", "q1", "q2"]


@pytest.mark.parametrize(
    ("statement", "key"),
    [
        ("INSERT INTO sessions (id) VALUES ('a' || char(0)), ('a' || char(65533))", ("a\ufffd",)),
        ("INSERT INTO sessions (id) VALUES ('')", ("",)),
        ("UPDATE sessions SET input_tokens = -1", ("s",)),
    ],
)
def test_a_row_that_no_rule_makes_fit_is_named_and_the_target_stays_incomplete(
    urls: list[str], statement: str, key: tuple[str, ...]
) -> None:
    spoil(urls, statement)
    with pytest.raises(UnfitRowError) as caught:
        copy_store(urls[0], urls[1])
    assert (caught.value.table, caught.value.key) == ("sessions", key)
    with pytest.raises(StoreIncompleteError):
        SessionDB(url=urls[1])
    spoil(urls, "DELETE FROM sessions WHERE id <> 's'", "UPDATE sessions SET input_tokens = 1")
    copy_store(urls[0], urls[1])
    assert rows_of(urls[1], "sessions") == rows_of(urls[0], "sessions")


def test_every_change_is_counted_and_the_first_ones_are_listed(
    urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversions, "MAX_NOTES", 2)
    spoil(urls, "UPDATE messages SET content = 'x' || char(0)")
    report, _ = copied(urls, "SELECT 1")
    assert [each.changed for each in report.tables if each.table == "messages"] == [3]
    assert len(report.notes) == 2


@pytest.mark.postgres
def test_numbers_that_only_postgresql_stores_fit_sqlite(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with store_urls("postgresql-sqlite", request, tmp_path) as urls:
        with SessionDB(url=urls[0]) as db:
            db.create_session("s", "cli")
            db.append_message("s", "user", "q")
        raw = RawSql(urls[0])
        raw("UPDATE messages SET timestamp = 'NaN'")
        raw("UPDATE sessions SET ended_at = 'NaN', estimated_cost_usd = '-0', actual_cost_usd = 'Infinity'")
        raw.close()
        report = copy_store(urls[0], urls[1])
        raw = RawSql(urls[1])
        assert raw("SELECT timestamp FROM messages") == [(0.0,)]
        assert raw("SELECT ended_at, estimated_cost_usd, actual_cost_usd FROM sessions") == [
            (None, 0.0, None)
        ]
        raw.close()
        assert len(report.notes) == 3
