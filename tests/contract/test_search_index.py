"""The index: what writes to it, what breaks it, what mends it (issue 5, items 3 and 5; D7, K10, O11)."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_state import InvalidArgumentError, SessionDB
from tests.conftest import OpenDb
from tests.support.builders import assert_counters_are_exact, assistant, carrier, user
from tests.support.raw import RawSql
from tests.support.search_index import DAMAGES, assert_in_step, damage, index_rows
from tests.support.searching import found, marked, say, snippet

TEXT = "a zebra \u8bb0\u5fc6\u65ad\u88c2 youer"
QUERIES = ["zebra", '"a zebra"', "zeb*", "\u8bb0", "\u8bb0\u5fc6", "\u8bb0\u5fc6\u65ad\u88c2", "you* zebra"]


def state(db: SessionDB) -> str:
    return str(db.search_index_state()["state"])


def assert_finds(db: SessionDB, rows: list[int]) -> None:
    for query in QUERIES:
        assert found(db, query) == rows, query


def test_a_new_store_has_its_index(db: SessionDB) -> None:
    assert state(db) == "on"
    assert isinstance(db.search_index_state()["trigram"], bool)
    db.rebuild_search_index()
    assert state(db) == "on"


def test_the_trigram_index_is_switched_at_any_time(db: SessionDB, raw: RawSql) -> None:
    rows = say(db, TEXT)
    for on in (True, False, False, True, True):
        db.set_trigram_index(on)
        assert db.search_index_state()["trigram"] is on
        assert_finds(db, rows)
        rows += say(db, TEXT)
        assert_finds(db, rows)
        (taken_back,) = say(db, TEXT)
        db.delete_messages("s", [taken_back])
        assert_finds(db, rows)
        assert_in_step(raw)
        db.rebuild_search_index()
        assert db.search_index_state()["trigram"] is on


@pytest.mark.parametrize("on", [None, 1, "on"])
def test_the_trigram_switch_is_true_or_false(db: SessionDB, on: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        db.set_trigram_index(on)


def fill(db: SessionDB, number: int = 300) -> None:
    """A session of turns with a checkpoint each; the next carrier strips them."""
    db.create_session("s", "cli")
    batch = []
    for turn in range(number // 3):
        batch += [user(f"question {turn} {TEXT}"), assistant(f"reply {turn}"), carrier(f"c{turn}")]
    db.append_messages_batch("s", batch)


@pytest.mark.parametrize(
    "update",
    [
        "active = false", "active = false, compacted = true", "codex_reasoning_items = NULL", "token_count = 7",
        "timestamp = 5", "display_kind = 'hidden'", "observed = true", "api_content = 'zebra'", "reasoning = 'zebra'",
        "finish_reason = 'zebra'", "content = content", "tool_name = tool_name, tool_calls = tool_calls, role = role",
    ],
)  # fmt: skip
def test_an_update_of_the_state_writes_nothing_to_the_index(
    search_db: SessionDB, raw: RawSql, update: str
) -> None:
    fill(search_db)
    before = index_rows(raw)
    assert before
    raw(f"UPDATE messages SET {update}")
    assert index_rows(raw) == before


def test_verbs_that_change_the_state_only_write_nothing_to_the_index(
    search_db: SessionDB, raw: RawSql
) -> None:
    fill(search_db)
    ids = [row["id"] for row in search_db.get_messages("s", limit=1000)]
    before = index_rows(raw)
    search_db.rewind_to_message("s", ids[30])
    search_db.restore_rewound("s", ids[30])
    search_db.archive_and_compact("s", [])
    search_db.set_session_archived("s", True)
    search_db.end_session("s", "user_exit")
    assert index_rows(raw) == before


def test_the_strip_of_checkpoints_rewrites_no_indexed_text(search_db: SessionDB, raw: RawSql) -> None:
    fill(search_db)
    size = len(index_rows(raw))
    search_db.append_messages_batch("s", [carrier("last")])
    assert len(index_rows(raw)) <= size + 4
    assert_in_step(raw)


@pytest.mark.parametrize("how", DAMAGES)
def test_a_broken_index_blocks_no_append_and_is_mended(
    search_db: SessionDB, open_db: OpenDb, raw: RawSql, backend: str, how: str
) -> None:
    """Appends commit, searches answer and say that they are degraded, a rebuild mends; in stores opened before and after."""
    rows = say(search_db, *(TEXT for _ in range(3)))
    search_db.search_messages("zebra")
    damage(raw, backend, how)
    late = open_db()
    for db in (search_db, late):
        rows += say(db, TEXT)
        assert db.append_messages_batch("s", [user(TEXT), assistant("reply")]) == 2
        rows = [*rows, *(row["id"] for row in db.get_messages("s")[-2:-1])]
    assert_counters_are_exact(raw)
    for db in (search_db, late):
        assert_finds(db, rows)
        assert state(db) == "degraded"
        assert marked(snippet(db, "zebra", limit=1)) == ["zebra"]
        assert found(db, "zebra", role_filter=["assistant"]) == []
    search_db.rebuild_search_index()
    for db in (search_db, late, open_db()):
        assert_finds(db, rows)
        assert state(db) == "on"
    rows += say(late, TEXT)
    assert_finds(search_db, rows)
    assert_in_step(raw)


@pytest.mark.parametrize("how", DAMAGES)
def test_with_a_broken_index_every_verb_works(
    search_db: SessionDB, raw: RawSql, backend: str, how: str
) -> None:
    rows = say(search_db, TEXT, "question", TEXT, TEXT)
    damage(raw, backend, how)
    search_db.set_user_message_content("s", rows[1], TEXT)
    search_db.delete_messages("s", [rows[0]])
    search_db.rewind_to_message("s", rows[3])
    search_db.archive_and_compact("s", [user("summary")])
    search_db.replace_messages("s", [user(TEXT)], active_only=True)
    say(search_db, TEXT, session_id="gone")
    search_db.delete_session("gone")
    search_db.import_sessions([{"id": "new", "source": "cli", "messages": [user(TEXT)]}])
    wanted = raw.column(
        "SELECT id FROM messages WHERE content = ? AND (active OR compacted) ORDER BY id", TEXT
    )
    assert len(wanted) == 4
    assert_finds(search_db, wanted)
    search_db.rebuild_search_index()
    assert_finds(search_db, wanted)
    assert_in_step(raw)


def test_a_store_without_an_index_is_searched_by_its_rows(open_db: OpenDb, raw: RawSql) -> None:
    db = open_db(search_index="off")
    rows = say(db, TEXT, TEXT)
    assert state(db) == "off"
    assert_finds(db, rows)
    assert marked(snippet(db, "zebra", limit=1)) == ["zebra"]
    db.delete_messages("s", rows[:1])
    assert_finds(db, rows[1:])


def test_without_an_index_an_append_writes_to_none(open_db: OpenDb, raw: RawSql) -> None:
    say(open_db(), TEXT)
    before = index_rows(raw)
    db = open_db(search_index="off")
    before_off = index_rows(raw)
    say(db, TEXT, TEXT, TEXT)
    assert index_rows(raw) == before_off
    assert len(before_off) <= len(before)


def test_rows_written_without_an_index_are_found_with_it(open_db: OpenDb, raw: RawSql) -> None:
    rows = say(open_db(), TEXT)
    without = open_db(search_index="off")
    rows += say(without, TEXT, TEXT)
    without.set_user_message_content("s", rows[0], "changed")
    with_it = open_db(search_index="on")
    assert_finds(with_it, rows[1:])
    rows += say(with_it, TEXT)
    assert_finds(with_it, rows[1:])
    with_it.rebuild_search_index()
    assert state(with_it) == "on"
    assert_finds(with_it, rows[1:])
    assert_in_step(raw)


def test_rows_of_other_programs_are_indexed(search_db: SessionDB, raw: RawSql) -> None:
    """The database keeps the index: raw INSERT, UPDATE and DELETE are followed."""
    search_db.create_session("s", "cli")
    raw("INSERT INTO messages (session_id, role, content) VALUES ('s', 'user', ?)", TEXT)
    raw(
        "INSERT INTO messages (session_id, role, content, tool_calls) VALUES ('s', 'user', 'x', '[1, {\"a\": 2}]')"
    )
    (row,) = found(search_db, "zebra")
    assert_finds(search_db, [row])
    raw("UPDATE messages SET content = 'an okapi' WHERE id = ?", row)
    assert found(search_db, "zebra") == []
    assert found(search_db, "okapi") == [row]
    raw("UPDATE messages SET tool_name = 'giraffe', content = NULL WHERE id = ?", row)
    assert found(search_db, "okapi") == []
    assert found(search_db, "giraffe") == [row]
    raw("UPDATE messages SET id = id + 1000 WHERE id = ?", row)
    assert found(search_db, "giraffe") == [row + 1000]
    raw("DELETE FROM messages WHERE id = ?", row + 1000)
    assert found(search_db, "giraffe") == []
    assert_in_step(raw)


def test_rows_with_odd_values_of_other_programs_break_neither_index_nor_search(
    search_db: SessionDB, raw: RawSql, backend: str
) -> None:
    search_db.create_session("s", "cli")
    if backend == "sqlite":
        for value in (
            "'{'",
            '\'[{"function": 5}, "x", null]\'',
            "x'ff00'",
            "7",
            "''",
            "'[[[[]]]]'",
            "'{\"function\": []}'",
        ):
            raw(
                f"INSERT INTO messages (session_id, role, content, tool_calls) VALUES ('s', 'assistant', 'zebra', {value})"
            )
        for value in ("x'7a65627261'", "7", "'zebra' || char(0) || 'okapi'"):
            raw(f"INSERT INTO messages (session_id, role, content) VALUES ('s', 'user', {value})")
    else:
        for text in (
            '[{"function": 5}, "x", null]',
            "7",
            '""',
            "[[[[]]]]",
            '{"function": []}',
            '"\\u0000"',
            '[{"function": {"name": "\\u0000", "arguments": "\\ud800"}}]',
        ):
            raw(
                f"INSERT INTO messages (session_id, role, content, tool_calls) VALUES ('s', 'assistant', 'zebra', '{text}')"
            )
    raw("INSERT INTO messages (session_id, role) VALUES ('s', 'user')")
    assert len(found(search_db, "zebra")) >= 7
    assert len(found(search_db, "zebra", include_reasoning=True)) >= 7
    search_db.rebuild_search_index()
    assert len(found(search_db, "zebra")) >= 7
    raw("UPDATE messages SET content = 'okapi', tool_calls = NULL")
    assert found(search_db, "zebra") == []
    assert_in_step(raw)
    raw("DELETE FROM messages")
    assert_in_step(raw)
