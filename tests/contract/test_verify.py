"""The store compared with its own rows (issue 6, item 5; weak point W22; field reports H1, L3)."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from hermes_state import SessionDB, StoreReadOnlyError
from tests.conftest import OpenDb
from tests.support.builders import assert_counters_are_exact, caller, checkpoint, items_of, snapshot, user
from tests.support.raw import RawSql, sqlite_file

CARRIER = "INSERT INTO messages (session_id, role, codex_reasoning_items) VALUES ('a', 'assistant', ?)"


@pytest.fixture
def sound(db: SessionDB) -> SessionDB:
    """A store with a chain of three, a branch, calls, archived and rewound rows."""
    db.create_session("a", "cli")
    db.append_messages_batch("a", [user("q"), caller("x", "y"), user("again")])
    db.archive_and_compact("a", [user("summary"), caller("z")])
    db.rewind_to_message("a", db.append_message("a", "user", "taken back"))
    db.publish_continuation("a", "b", [user("summary")])
    db.publish_continuation("b", "c", [user("summary")])
    db.create_branch("c", "branch")
    db.create_session("empty", "cli")
    return db


def columns(found: list[Any]) -> list[tuple[str, Any, Any]]:
    return [(each["table"], each["id"], each["column"]) for each in found]


def test_a_store_that_this_package_wrote_is_sound(sound: SessionDB, raw: RawSql) -> None:
    before = snapshot(raw)
    assert sound.verify() == []
    assert sound.verify(repair=True) == []
    assert snapshot(raw) == before


def test_every_derived_value_is_compared_and_mended(sound: SessionDB, raw: RawSql) -> None:
    wanted = raw(
        "SELECT id, message_count, tool_call_count, last_active_at, root_session_id FROM sessions ORDER BY id"
    )
    raw("UPDATE sessions SET message_count = 77, tool_call_count = 5, last_active_at = 1 WHERE id = 'a'")
    raw("UPDATE sessions SET message_count = 1 WHERE id = 'empty'")
    raw("UPDATE sessions SET root_session_id = 'nonsense' WHERE id = 'b'")
    raw("UPDATE sessions SET root_session_id = 'a' WHERE id = 'branch'")
    found = sound.verify()
    assert {("sessions", "a", name) for name in ("message_count", "tool_call_count", "last_active_at")} <= {
        *columns(found)
    }
    assert {("sessions", "empty", "message_count"), ("sessions", "b", "root_session_id")} <= {*columns(found)}
    assert ("sessions", "branch", "root_session_id") in columns(found)
    assert not any(each["repaired"] for each in found)
    by_place = dict(zip(columns(found), found, strict=True))
    assert by_place["sessions", "a", "message_count"]["found"] == 77
    assert by_place["sessions", "a", "message_count"]["expected"] == 2
    mended = sound.verify(repair=True)
    assert all(each["repaired"] for each in mended)
    assert sound.verify() == []
    assert (
        raw(
            "SELECT id, message_count, tool_call_count, last_active_at, root_session_id FROM sessions ORDER BY id"
        )
        == wanted
    )
    assert_counters_are_exact(raw, "a")


def test_rows_of_other_programs_are_counted_as_an_append_counts_them(
    sound: SessionDB, raw: RawSql, backend: str
) -> None:
    raw(
        "INSERT INTO messages (session_id, role, tool_calls) VALUES ('a', 'assistant', ?)",
        json.dumps([1, 2, 3]),
    )
    if backend == "sqlite":
        raw("INSERT INTO messages (session_id, role, tool_calls) VALUES ('a', 'assistant', '[broken')")
    raw("INSERT INTO sessions (id, parent_session_id) VALUES ('foreign', 'a')")
    assert {column for _, _, column in columns(sound.verify())} >= {"message_count", "tool_call_count"}
    sound.verify(repair=True)
    assert sound.verify() == []
    assert raw("SELECT message_count, tool_call_count FROM sessions WHERE id = 'a'") == [
        (4 if backend == "sqlite" else 3, 4)
    ]


def test_shadowed_checkpoints_are_found_and_taken_out(sound: SessionDB, raw: RawSql) -> None:
    for name in ("one", "two", "three"):
        raw(CARRIER, json.dumps([checkpoint(name)]))
    (found,) = [each for each in sound.verify() if each["column"] == "codex_reasoning_items"]
    assert (found["id"], found["found"], found["expected"]) == ("a", 2, 0)
    sound.verify(repair=True)
    assert sound.verify() == []
    assert [items for items in items_of(raw, "a") if items] == [[checkpoint("three")]]


@pytest.mark.parametrize("backend", ["sqlite"])
def test_rows_behind_the_back_of_the_keys_are_reported_and_kept(
    sound: SessionDB, store_url: str, raw: RawSql
) -> None:
    other = sqlite3.connect(sqlite_file(store_url), isolation_level=None)
    other.execute("PRAGMA foreign_keys = OFF")
    other.execute("INSERT INTO messages (session_id, role, content) VALUES ('nobody', 'user', 'lost')")
    other.execute("INSERT INTO session_model_usage (session_id, model) VALUES ('nobody', 'm')")
    other.execute("INSERT INTO sessions (id, kind, parent_session_id) VALUES ('child', 'branch', 'nobody')")
    other.close()
    found = sound.verify(repair=True)
    lost = [(each["table"], each["found"], each["repairable"]) for each in found if each["expected"] is None]
    assert sorted(lost) == [
        ("messages", "nobody", False), ("session_model_usage", "nobody", False), ("sessions", "nobody", True),
    ]  # fmt: skip
    assert [(each["table"], each["repaired"]) for each in sound.verify()] == [
        ("messages", False), ("session_model_usage", False),
    ]  # fmt: skip
    assert raw("SELECT content FROM messages WHERE session_id = 'nobody'") == [("lost",)]
    assert raw("SELECT parent_session_id FROM sessions WHERE id = 'child'") == [(None,)]


def test_a_cycle_of_parents_ends(sound: SessionDB, raw: RawSql) -> None:
    raw("UPDATE sessions SET parent_session_id = 'c', kind = 'continuation' WHERE id = 'a'")
    assert sound.verify() == []
    sound.verify(repair=True)


@pytest.mark.parametrize("backend", ["sqlite"])
def test_damage_is_reported(sound: SessionDB, store_url: str) -> None:
    sound.close()
    path = Path(sqlite_file(store_url))
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA writable_schema = ON")
        other.execute("UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master WHERE name = 'state_meta') "
                      "WHERE name = 'system_prompts'")  # fmt: skip
    other.close()
    with SessionDB(path, read_only=True) as db:
        found = db.verify()
    assert [each["table"] for each in found][:1] == ["database"]
    assert not found[0]["repairable"]


def test_a_read_only_store_is_compared_but_not_mended(open_db: OpenDb) -> None:
    open_db()
    reader = open_db(read_only=True)
    assert reader.verify() == []
    with pytest.raises(StoreReadOnlyError):
        reader.verify(repair=True)
