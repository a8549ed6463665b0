"""Export and import in their plain form (field reports R1, R6)."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_state import InvalidArgumentError, SessionDB
from tests.support.builders import (
    assert_counters_are_exact,
    assistant,
    caller,
    carrier,
    checkpoint,
    items_of,
    reasoning,
    snapshot,
    user,
)
from tests.support.raw import RawSql


def full_session(db: SessionDB, raw: RawSql) -> None:
    """Session ``s`` with rows of every state, every kind of value, and settings."""
    db.create_session("s", "cli", model="m", model_config='{"a": 1.50}', system_prompt="prompt", cwd="/w")
    db.append_messages_batch(
        "s",
        [
            user([{"type": "text", "text": "t"}]),
            caller("x"),
            assistant("y", reasoning="r", unknown_key={"k": None}),
        ],
    )
    db.archive_and_compact("s", [user("summary"), carrier("1", reasoning("r"))])
    raw("UPDATE messages SET compacted = ? WHERE id = (SELECT min(id) FROM messages)", False)
    raw("UPDATE sessions SET title = 'named', pinned = ?, input_tokens = 7", True)
    db.end_session("s", "user_exit")


def test_export_import_export_is_identical(db: SessionDB, raw: RawSql) -> None:
    full_session(db, raw)
    exported = db.export_session("s")
    assert exported is not None
    assert [(m["active"], m["compacted"]) for m in exported["messages"]] == [
        (False, False),
        (False, True),
        (False, True),
        (True, False),
        (True, False),
    ]
    raw("DELETE FROM sessions")
    report = db.import_sessions([exported])
    assert (report["ok"], report["imported_ids"], report["errors"]) == (True, ["s"], [])
    assert db.export_session("s") == exported
    assert_counters_are_exact(raw)


def test_an_existing_session_is_skipped_and_reported(db: SessionDB, raw: RawSql) -> None:
    full_session(db, raw)
    before = snapshot(raw)
    exported = db.export_session("s")
    report = db.import_sessions([exported, {"id": "new"}])
    assert (report["imported_ids"], report["skipped_ids"]) == (["new"], ["s"])
    assert [row for row in snapshot(raw) if row[0] != "new"] == before


def test_parents_may_come_in_any_order_and_missing_ones_are_left_out(db: SessionDB, raw: RawSql) -> None:
    report = db.import_sessions(
        [
            {"id": "c", "parent_session_id": "b"},
            {"id": "b", "parent_session_id": "a"},
            {"id": "a"},
            {"id": "lost", "parent_session_id": "nobody"},
        ]
    )
    assert (report["imported"], report["detached"]) == (4, 1)
    assert raw("SELECT id, parent_session_id, kind, root_session_id FROM sessions ORDER BY id") == [
        ("a", None, "root", None),
        ("b", "a", "continuation", "a"),
        ("c", "b", "continuation", "a"),
        ("lost", None, "root", None),
    ]


def test_a_circle_of_parents_is_opened(db: SessionDB, raw: RawSql) -> None:
    circle = [{"id": "a", "parent_session_id": "b"}, {"id": "b", "parent_session_id": "a"}]
    report = db.import_sessions([*circle, {"id": "self", "parent_session_id": "self"}])
    assert report["imported"] == 3
    assert report["detached"] == 2
    assert raw.value("SELECT count(*) FROM sessions WHERE parent_session_id IS NULL") == 2


@pytest.mark.parametrize(
    "bad",
    [
        7,
        {},
        {"id": ""},
        {"id": "x", "messages": "text"},
        {"id": "x", "messages": [{"content": "no role"}]},
        {"id": "x", "messages": [user(active=True, compacted=True)]},
        {"id": "x", "input_tokens": -1},
        {"id": "x", "started_at": float("nan")},
        {"id": "x", "estimated_cost_usd": float("inf")},
        {"id": "x", "pinned": 2},
        {"id": "x", "title": b"bytes"},
        {"id": "x", "kind": "nonsense"},
        {"id": "good"},
    ],
    ids=repr,
)
def test_one_bad_entry_and_nothing_is_written(db: SessionDB, raw: RawSql, bad: Any) -> None:
    report = db.import_sessions([{"id": "good"}, bad, bad])
    assert report["ok"] is False
    assert report["imported"] == 0
    assert {error["index"] for error in report["errors"]} == {1, 2}
    assert snapshot(raw) == []


@pytest.mark.parametrize("bad", ["text", {"id": "x"}, None, 7])
def test_what_is_no_list_is_refused(db: SessionDB, bad: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        db.import_sessions(bad)


def test_a_taken_title_gets_a_number(db: SessionDB, raw: RawSql) -> None:
    db.import_sessions([{"id": "a", "title": "t"}])
    db.import_sessions([{"id": "b", "title": "t"}, {"id": "c", "title": "t"}])
    assert raw.column("SELECT title FROM sessions ORDER BY id") == ["t", "t #2", "t #3"]


def test_an_import_strips_shadowed_checkpoints_of_live_rows_only(db: SessionDB, raw: RawSql) -> None:
    archived = carrier("old") | {"active": False, "compacted": True}
    db.import_sessions([{"id": "s", "messages": [archived, carrier("1", reasoning("a")), carrier("2")]}])
    assert items_of(raw) == [[checkpoint("old")], [reasoning("a")], [checkpoint("2")]]
    assert_counters_are_exact(raw)


def test_an_unknown_session_exports_as_none(db: SessionDB) -> None:
    assert db.export_session("unknown") is None
    assert db.export_session("") is None
