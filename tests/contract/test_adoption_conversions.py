"""What the schema refuses is converted by a stated rule and reported, never lost without a word (issue 4, item 1)."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state import SessionDB
from hermes_state.transfer.adoption import AdoptReport, Conversion, adopt_store
from tests.support.builders import REPLACEMENT, assert_counters_are_exact
from tests.support.older_stores import START, OldStore, parts
from tests.support.raw import RawSql

LONG = "x" * 600
SHORTENED = f"{'x' * 447}-{hashlib.sha256(LONG.encode()).hexdigest()}"


@pytest.fixture
def old(tmp_path: Path) -> Iterator[OldStore]:
    store = OldStore(tmp_path / "old.db", 31)
    yield store
    store.close()


def adopt(old: OldStore, store_url: str) -> AdoptReport:
    return adopt_store(old.path, store_url)


def rules(report: AdoptReport) -> list[tuple[str, str]]:
    return [(found.column, found.rule) for found in report.conversions]


MESSAGE_CASES = [
    ("content", "a\0b", f"a{REPLACEMENT}b", "U+FFFD"),
    ("content", b"\xff\xfe", REPLACEMENT * 2, "U+FFFD"),
    ("content", b"ok", "ok", "bytes were read as text"),
    ("tool_name", "n\0", f"n{REPLACEMENT}", "U+FFFD"),
    ("tool_call_id", b"id", "id", "bytes were read as text"),
    ("role", "", "unknown", "became unknown"),
    ("role", "r" * 65, "unknown", "became unknown"),
    ("role", "a\0", f"a{REPLACEMENT}", "U+FFFD"),
    ("timestamp", math.inf, START + 5, "1970 and 2200"),
    ("timestamp", -1.0, START + 5, "1970 and 2200"),
    ("timestamp", 1e300, START + 5, "1970 and 2200"),
    ("timestamp", "yesterday", START + 5, "1970 and 2200"),
    ("timestamp", b"1780000001.5", 1780000001.5, "text was read as the number"),
    ("timestamp", "2026-06-01 12:00:00.5", 1780315200.5, "a date was read"),
    ("timestamp", "2026-06-01T12:00:00+02:00", 1780308000.0, "a date was read"),
    ("timestamp", "1969-12-31", START + 5, "1970 and 2200"),
    ("token_count", "abc", None, "no whole number"),
    ("token_count", -3, None, "no whole number"),
    ("token_count", math.inf, None, "no whole number"),
    ("token_count", 2.5, None, "no whole number"),
    ("token_count", b"12", 12, "text was read as the number"),
    ("active", 2, True, "neither 0 nor 1"),
    ("active", "no", True, "neither 0 nor 1"),
    ("observed", 2, True, "neither 0 nor 1"),
    ("observed", "maybe", False, "neither 0 nor 1"),
    ("platform_message_id", "", None, "may not be empty"),
    ("platform_message_id", LONG, SHORTENED, "512 characters"),
    ("platform_message_id", "p\0", f"p{REPLACEMENT}", "U+FFFD"),
    ("message_uid", LONG, SHORTENED, "512 characters"),
    ("tool_calls", "not json", None, "not JSON"),
    ("tool_calls", "[1, NaN]", None, "NaN is not JSON"),
    ("tool_calls", "[" * 300 + "]" * 300, None, "nested deeper"),
    ("tool_calls", json.dumps(json.dumps([{"id": "c"}])), '[{"id":"c"}]', "encoded twice"),
    ("tool_calls", '[{"a": "\\u0000"}]', f'[{{"a":"{REPLACEMENT}"}}]', "U+FFFD"),
    ("tool_calls", '[{"a": "\\ud800"}]', f'[{{"a":"{REPLACEMENT}"}}]', "U+FFFD"),
    ("tool_calls", '[{"a": 1, "a": 2}]', '[{"a":2}]', "a key twice"),
    ("display_metadata", '{"a": {"b": 1, "b": 2}}', '{"a":{"b":2}}', "a key twice"),
    ("display_metadata", "{broken", None, "not JSON"),
    ("reasoning", "thought", None, "only the assistant's messages have it"),
    ("codex_reasoning_items", '[{"type": "compaction"}]', None, "only the assistant's messages have it"),
]


@pytest.mark.parametrize(
    ("column", "stored", "expected", "rule"),
    MESSAGE_CASES,
    ids=[f"{c}-{i}" for i, (c, *_) in enumerate(MESSAGE_CASES)],
)
def test_a_value_of_a_message_is_converted_and_reported(
    old: OldStore, store_url: str, raw: RawSql, column: str, stored: Any, expected: Any, rule: str
) -> None:
    old.session(started_at=START + 5)
    row_id = old.message(**{"content": "text", column: stored})
    old.message(content="its neighbour", timestamp=START + 6)
    report = adopt(old, store_url)
    assert raw(f"SELECT {column} FROM messages WHERE id = ?", row_id) == [(expected,)]
    assert raw.column("SELECT content FROM messages WHERE id > ?", row_id) == ["its neighbour"]
    (found,) = report.conversions
    assert (found.table, found.id, found.column) == ("messages", str(row_id), column)
    assert rule in found.rule
    assert report.conversion_counts == {("messages", column, found.rule): 1}
    assert_counters_are_exact(raw)
    if expected is None and stored != "":
        kept = raw.json("SELECT extra FROM messages WHERE id = ?", row_id)[0]["_refused"]
        text = stored if isinstance(stored, str) else repr(stored)
        assert [(note["key"], note["text"]) for note in kept] == [(column, text)]


SESSION_CASES = [
    ("source", "", "unknown", None),
    ("source", "c\0", f"c{REPLACEMENT}", "U+FFFD"),
    ("source", LONG, LONG[:512], "cut"),
    ("model", b"gpt", "gpt", "bytes were read as text"),
    ("input_tokens", -5, 0, "became 0"),
    ("input_tokens", "many", 0, "became 0"),
    ("input_tokens", math.inf, 0, "became 0"),
    ("input_tokens", b"9223372036854775807", 2**63 - 1, "text was read as the number"),
    ("input_tokens", None, 0, None),
    ("rewind_count", 1e300, 0, "became 0"),
    ("archived", 2, True, "neither 0 nor 1"),
    ("pinned", "x", False, "neither 0 nor 1"),
    ("estimated_cost_usd", math.inf, None, "no finite number"),
    ("estimated_cost_usd", "free", None, "no finite number"),
    ("started_at", math.inf, START + 40, "time of the first message"),
    ("started_at", "then", START + 40, "time of the first message"),
    ("ended_at", math.inf, START, "became started_at"),
    ("last_read_at", -1.0, None, "left empty"),
    ("session_key", LONG, SHORTENED, "512 characters"),
    ("title", LONG, LONG[:512], "cut"),
    ("title", "", None, None),
    (
        "model_config",
        json.dumps(json.dumps({"_branched_from": "x"})),
        '{"_branched_from": "x"}',
        "encoded twice",
    ),
    ("model_config", "{broken", "{broken", None),
    ("system_prompt_hash", "unknown", None, "no prompt has this hash"),
    ("system_prompt_hash", "h\0", None, "no prompt has this hash"),
    ("started_at", "2026-06-01", 1780272000.0, "a date was read"),
    ("ended_at", "2026-06-01T12:00:00Z", 1780315200.0, "a date was read"),
]


@pytest.mark.parametrize(
    ("column", "stored", "expected", "rule"),
    SESSION_CASES,
    ids=[f"{c}-{i}" for i, (c, *_) in enumerate(SESSION_CASES)],
)
def test_a_value_of_a_session_is_converted_and_reported(
    old: OldStore, store_url: str, raw: RawSql, column: str, stored: Any, expected: Any, rule: str | None
) -> None:
    old.session(**{column: stored})
    old.message(timestamp=START + 40)
    report = adopt(old, store_url)
    assert raw(f"SELECT {column} FROM sessions") == [(expected,)]
    if rule is None:
        assert report.conversions == []
        return
    (found,) = report.conversions
    assert (found.table, found.id, found.column) == ("sessions", "s", column)
    assert rule in found.rule


def test_ids_that_cannot_be_kept_get_others_and_everything_follows_them(
    old: OldStore, store_url: str, raw: RawSql
) -> None:
    old.session("", title="empty")
    old.session(LONG, parent_session_id="")
    old.session("n\0", title="nul")
    old.session(f"n{REPLACEMENT}")
    for session_id in ("", LONG, "n\0", f"n{REPLACEMENT}"):
        old.message(session_id, content=f"of {session_id[:3]!r}")
    report = adopt(old, store_url)
    assert raw("SELECT session_id, content FROM messages ORDER BY id") == [
        ("unnamed", "of ''"),
        (SHORTENED, "of 'xxx'"),
        (f"n{REPLACEMENT}", "of 'n\\x00'"),
        (f"n{REPLACEMENT}-2", f"of 'n{REPLACEMENT}'"),
    ]
    assert raw.value("SELECT parent_session_id FROM sessions WHERE id = ?", SHORTENED) == "unnamed"
    assert [found.column for found in report.conversions] == ["id"] * 4
    assert f"now 'n{REPLACEMENT}-2'" in report.conversions[3].rule


def test_numbers_in_text_columns_become_their_digits(store_url: str, raw: RawSql, tmp_path: Path) -> None:
    """A table that some tool rebuilt without types keeps numbers as they were given."""
    old = OldStore(tmp_path / "untyped.db")
    columns = ", ".join(row[1] for row in old.conn.execute("PRAGMA table_info(messages)") if row[1] != "id")
    old.conn.execute("DROP TABLE messages")
    old.conn.execute(f"CREATE TABLE messages (id INTEGER PRIMARY KEY, {columns})")
    old.session()
    old.conn.execute(
        "INSERT INTO messages (session_id, role, content, tool_calls, timestamp) VALUES ('s', 5, 1.5, 7, 8)"
    )
    report = adopt_store(old.path, store_url)
    old.close()
    assert raw("SELECT role, content, timestamp, active, compacted FROM messages") == [
        ("5", "1.5", 8.0, True, False)
    ]
    assert raw.json("SELECT tool_calls FROM messages") == [7]
    assert [found.column for found in report.conversions] == ["role", "content", "tool_calls"]


def test_titles_that_stand_twice_are_numbered(old: OldStore, store_url: str, raw: RawSql) -> None:
    for session_id, title in (("a", "T"), ("b", "T\0"), ("c", f"T{REPLACEMENT}"), ("d", None), ("e", "T #2")):
        old.session(session_id, title=title)
    report = adopt(old, store_url)
    expected = [("a", "T"), ("b", f"T{REPLACEMENT}"), ("c", f"T{REPLACEMENT} #2"), ("d", None), ("e", "T #2")]
    assert raw("SELECT id, title FROM sessions ORDER BY id") == expected
    assert ("title", f"another session has it: now 'T{REPLACEMENT} #2'") in rules(report)


def test_parents_that_are_missing_or_in_a_circle_are_left_out(
    old: OldStore, store_url: str, raw: RawSql
) -> None:
    old.session("alone", parent_session_id="gone")
    old.session("self", parent_session_id="self")
    old.session("a", parent_session_id="c")
    old.session("b", parent_session_id="a")
    old.session("c", parent_session_id="b")
    report = adopt(old, store_url)
    parents = dict(raw("SELECT id, parent_session_id FROM sessions"))
    assert (parents["alone"], parents["self"]) == (None, None)
    assert sorted(parents[name] is None for name in "abc") == [False, False, True]
    opened = [name for name in "abc" if parents[name] is None]
    assert sorted(found.id for found in report.conversions) == sorted(["alone", "self", *opened])
    assert {found.column for found in report.conversions} == {"parent_session_id"}


def test_messages_without_a_session_get_one(old: OldStore, store_url: str, raw: RawSql) -> None:
    old.conn.execute("PRAGMA foreign_keys = OFF")
    old.message("lost", content="a", timestamp=START + 3)
    old.message("lost", content="b", timestamp=START + 4)
    report = adopt(old, store_url)
    assert raw("SELECT id, source, started_at, message_count FROM sessions") == [
        ("lost", "unknown", START + 3, 2)
    ]
    assert rules(report) == [("id", "messages without a session got one")]


def test_active_and_compacted_at_once_is_active(old: OldStore, store_url: str, raw: RawSql) -> None:
    """The older store's restore makes such rows; it sends to the model what is active."""
    old.session()
    old.message(active=1, compacted=1)
    report = adopt(old, store_url)
    assert raw("SELECT active, compacted FROM messages") == [(True, False)]
    assert rules(report) == [("compacted", "active and compacted at once: it is active")]


def test_uids_that_stand_twice_in_a_session_are_made_anew(old: OldStore, store_url: str, raw: RawSql) -> None:
    for session_id in ("s", "t"):
        old.session(session_id)
        old.message(session_id, message_uid="u")
    second = old.message(message_uid="u")
    old.message()
    report = adopt(old, store_url)
    assert raw("SELECT session_id, message_uid FROM messages ORDER BY id") == [
        ("s", "u"), ("t", "u"), ("s", f"adopted-{second}"), ("s", f"adopted-{second + 1}")
    ]  # fmt: skip
    assert [(found.id, found.column) for found in report.conversions] == [(str(second), "message_uid")]


@pytest.mark.parametrize("odd_id", [-4, 0, 2**63 - 1])
def test_ids_that_leave_no_room_are_numbered_anew_in_their_order(
    old: OldStore, store_url: str, raw: RawSql, odd_id: int
) -> None:
    old.session()
    for row_id in (odd_id, 7, 9):
        old.message(
            role="assistant", content=str(row_id), id=row_id, codex_reasoning_items='[{"type": "compaction"}]'
        )
    report = adopt(old, store_url)
    assert raw("SELECT id, content FROM messages ORDER BY id") == [
        (place, str(row_id)) for place, row_id in enumerate(sorted((odd_id, 7, 9)), start=1)
    ]
    assert raw.column("SELECT codex_reasoning_items IS NULL FROM messages ORDER BY id") == [True, True, False]
    assert {found.column for found in report.conversions} == {"id"}
    with SessionDB(url=store_url) as db:
        assert db.append_message("s", "user", "next") > 3


def test_text_that_only_looks_like_structure_stays_text(old: OldStore, store_url: str, raw: RawSql) -> None:
    old.session()
    old.message(content="\0json:{broken")
    old.message(content='\0json:"text"')
    old.message(content=parts({"type": "text", "text": "a\0b \ud800"}))
    old.message(content="json:[1]")
    report = adopt(old, store_url)
    assert raw("SELECT content, content_parts IS NULL FROM messages ORDER BY id") == [
        (f"{REPLACEMENT}json:{{broken", True),
        (f'{REPLACEMENT}json:"text"', True),
        (f"a{REPLACEMENT}b {REPLACEMENT}", False),
        ("json:[1]", True),
    ]
    assert [found.id for found in report.conversions] == ["1", "2", "3"]


def test_text_above_the_limit_is_cut(
    old: OldStore, store_url: str, raw: RawSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_STATE_MAX_TEXT_BYTES", "1024")
    old.session(model="m" * 2000, system_prompt="p" * 2000)
    old.message(content="é" * 2000)
    old.message(tool_calls=json.dumps(["c" * 2000]))
    report = adopt(old, store_url)
    assert raw.column("SELECT content FROM messages ORDER BY id")[0] == "é" * 512
    assert raw("SELECT length(model) FROM sessions") == [(1024,)]
    assert raw("SELECT length(prompt) FROM system_prompts") == [(1024,)]
    found = [(found.table, found.column) for found in report.conversions]
    assert sorted(found) == [
        ("messages", "content"), ("messages", "tool_calls"), ("sessions", "model"), ("sessions", "system_prompt")
    ]  # fmt: skip


def test_notes_with_unusable_keys_are_kept(old: OldStore, store_url: str, raw: RawSql) -> None:
    old.conn.execute("INSERT INTO state_meta VALUES ('', 'a'), (?, 'b'), ('unnamed', ?)", (LONG, "n\0"))
    report = adopt(old, store_url)
    assert sorted(raw("SELECT key, value FROM state_meta")) == sorted([
        ("unnamed", "a"), (SHORTENED, "b"), ("unnamed-2", f"n{REPLACEMENT}")
    ])  # fmt: skip
    assert len(report.conversions) == 4


def test_every_conversion_is_handed_on_and_the_first_thousand_are_listed(
    old: OldStore, store_url: str
) -> None:
    old.session()
    old.messages(("s", "user", f"{number}\0", None) for number in range(1_100))
    handed: list[Conversion] = []
    report = adopt_store(old.path, store_url, on_conversion=handed.append)
    assert len(report.conversions) == 1_000
    assert list(report.conversion_counts.values()) == [1_100]
    assert [found.id for found in handed] == [str(number) for number in range(1, 1_101)]


def test_bytes_that_are_no_text_in_any_column_stop_nothing(
    old: OldStore, store_url: str, raw: RawSql
) -> None:
    """In every column of every table that holds text, by which other rows are found too."""
    spoilt = "CAST(x'61eda0803962ff' AS TEXT)"
    columns = [row[1] for row in old.conn.execute("PRAGMA table_info(sessions)")]
    for number, name in enumerate(columns):
        old.session(f"s{number}")
        old.message(f"s{number}")
        old.conn.execute(f"UPDATE sessions SET {name} = {spoilt} WHERE id = ?", (f"s{number}",))
    for row in old.conn.execute("PRAGMA table_info(messages)").fetchall()[1:]:
        old.conn.execute(f"UPDATE messages SET {row[1]} = {spoilt} WHERE id = ?", (old.message("s1"),))
    old.conn.execute(f"INSERT INTO state_meta VALUES ({spoilt}, {spoilt})")
    report = adopt(old, store_url)
    assert raw.value("SELECT count(*) FROM messages") == report.messages
    told = {found.column for found in report.conversions if found.table == "sessions"}
    # Counters are counted anew, and the parent is the session whose id was spoilt in the same way.
    assert set(columns) - told == {"message_count", "tool_call_count", "parent_session_id"}
    assert_counters_are_exact(raw, "s1")


def test_content_whose_object_has_a_key_twice_is_reported(old: OldStore, store_url: str, raw: RawSql) -> None:
    old.session()
    old.message(content='\0json:[{"type": "text", "text": "first", "text": "last"}]')
    report = adopt(old, store_url)
    assert raw("SELECT content FROM messages") == [("last",)]
    assert [found.rule for found in report.conversions] == ["an object had a key twice: the last one stays"]


def test_a_prompt_beside_the_one_that_the_hash_names_is_reported(
    old: OldStore, store_url: str, raw: RawSql
) -> None:
    old.conn.execute("INSERT INTO system_prompts VALUES ('h', 'named')")
    old.session("same", system_prompt_hash="h", system_prompt="named")
    old.session("other", system_prompt_hash="h", system_prompt="another")
    report = adopt(old, store_url)
    assert raw.column("SELECT prompt FROM system_prompts") == ["named"]
    assert [(found.id, found.column, found.value) for found in report.conversions] == [
        ("other", "system_prompt", "another")
    ]
