"""Branches: a copy of what was said so far, in a session of its own (issue 3, item 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hermes_state import InvalidArgumentError, SessionDB, SessionExistsError, SessionNotFoundError, StoreError
from tests.support.builders import (
    assert_counters_are_exact,
    assistant,
    call,
    caller,
    carrier,
    checkpoint,
    contents_of,
    items_of,
    reasoning,
    snapshot,
    user,
)
from tests.support.raw import RawSql
from tests.support.statements import QueryRecorder, failing_statement

OpenDb = Callable[..., SessionDB]
COPIED = (
    "role, content, content_parts, tool_call_id, tool_calls, tool_name, timestamp, token_count, finish_reason, reasoning,"
    " reasoning_content, reasoning_details, codex_reasoning_items, codex_message_items, platform_message_id, observed,"
    " effect_disposition, api_content, display_kind, display_metadata, extra, active, compacted"
)
RICH: list[dict[str, Any]] = [
    user([{"type": "text", "text": "look"}], platform_message_id="p1", observed=True, own={"a": [1]}),
    assistant(
        None, tool_calls=[call("x"), call("y")], reasoning="r", reasoning_details=[{"n": 1.0}], token_count=5
    ),
    {
        "role": "tool",
        "content": "out",
        "tool_call_id": "call_x",
        "tool_name": "x",
        "effect_disposition": "done",
    },
    carrier("c", reasoning("r1"), api_content="sent", display_kind="k", display_metadata={"k": 1}),
]


def cells(raw: RawSql, session_id: str) -> list[tuple[Any, ...]]:
    return raw(f"SELECT {COPIED} FROM messages WHERE session_id = ? ORDER BY id", session_id)


def fill(db: SessionDB, count: int) -> list[int]:
    messages = [user(f"m{i}") for i in range(count)]
    db.append_messages_batch("s", messages)
    return [int(message["_row_id"]) for message in messages]


@pytest.mark.parametrize("chunk_rows", [1, 3, 1000])
def test_a_branch_holds_equal_rows_with_uids_of_their_own(
    db: SessionDB, raw: RawSql, session: str, chunk_rows: int
) -> None:
    db.append_messages_batch("s", RICH)
    before = snapshot(raw)
    assert db.create_branch("s", "b", chunk_rows=chunk_rows) == "b"
    assert cells(raw, "b") == cells(raw, "s")
    uids = "SELECT message_uid FROM messages WHERE session_id = ?"
    assert not set(raw.column(uids, "s")) & set(raw.column(uids, "b"))
    assert_counters_are_exact(raw, "b")
    raw("DELETE FROM sessions WHERE id = 'b'")
    assert snapshot(raw) == before


def test_a_branch_is_of_its_kind_and_hangs_on_its_parent(db: SessionDB, raw: RawSql) -> None:
    db.create_session("s", "telegram", cwd="/work", git_branch="main", user_id="u")
    db.create_branch("s", "b", model="m", model_config={"t": 1}, system_prompt="p")
    stored = (
        "SELECT source, parent_session_id, kind, root_session_id, cwd, git_branch, user_id, model, ended_at"
    )
    assert raw(f"{stored} FROM sessions WHERE id = 'b'") == [
        ("telegram", "s", "branch", None, "/work", "main", None, "m", None)
    ]
    found = db.get_session("b")
    assert found is not None
    assert (found["system_prompt"], found["model_config"]) == ("p", '{"t":1}')
    db.create_branch("s", "b2", source="cli")
    assert raw.value("SELECT source FROM sessions WHERE id = 'b2'") == "cli"


def test_only_active_rows_up_to_the_given_one_are_copied(db: SessionDB, raw: RawSql, session: str) -> None:
    rows = fill(db, 6)
    raw("UPDATE messages SET active = ? WHERE id = ?", False, rows[1])
    raw("UPDATE messages SET active = ?, compacted = ? WHERE id = ?", False, True, rows[0])
    db.create_branch("s", "b", up_to_message_id=rows[4], chunk_rows=2)
    assert contents_of(raw, "b") == ["m2", "m3", "m4"]
    assert_counters_are_exact(raw, "b")


def test_a_branch_may_end_at_a_row_that_is_not_active(db: SessionDB, raw: RawSql, session: str) -> None:
    rows = fill(db, 4)
    raw("UPDATE messages SET active = ? WHERE id = ?", False, rows[2])
    db.create_branch("s", "b", up_to_message_id=rows[2])
    assert contents_of(raw, "b") == ["m0", "m1"]


def test_a_branch_follows_a_carried_message_and_refuses_a_summarised_one(
    db: SessionDB, raw: RawSql, session: str
) -> None:
    rows = fill(db, 4)
    db.archive_and_compact("s", [user("summary"), *db.get_messages("s", after_id=rows[1])], tail_count=2)
    db.create_branch("s", "b", up_to_message_id=rows[2])
    assert contents_of(raw, "b") == ["summary", "m2"]
    before = snapshot(raw)
    with pytest.raises(InvalidArgumentError, match="summarised"):
        db.create_branch("s", "c", up_to_message_id=rows[1])
    assert snapshot(raw) == before


def test_a_branch_of_nothing_is_empty(db: SessionDB, raw: RawSql, session: str) -> None:
    db.create_branch("s", "b")
    assert contents_of(raw, "b") == []
    assert raw("SELECT message_count, last_active_at FROM sessions WHERE id = 'b'") == [(0, None)]


def test_the_order_is_that_of_the_parent_whatever_its_clock(db: SessionDB, raw: RawSql, session: str) -> None:
    times = [100.38, 100.48, 100.44, 100.50, 7.0]
    db.append_messages_batch("s", [user(f"m{i}", timestamp=time) for i, time in enumerate(times)])
    db.create_branch("s", "b", chunk_rows=2)
    assert contents_of(raw, "b") == [f"m{i}" for i in range(5)]
    assert raw.value("SELECT last_active_at FROM sessions WHERE id = 'b'") == 7.0


def test_a_branch_keeps_one_checkpoint_also_where_another_program_left_several(
    db: SessionDB, raw: RawSql, session: str
) -> None:
    rows = fill(db, 1)
    for name in ("c1", "c2"):
        raw(
            "INSERT INTO messages (session_id, role, codex_reasoning_items) VALUES ('s', 'assistant', ?)",
            f'[{{"type": "reasoning"}}, {{"type": "compaction", "id": "{name}"}}]',
        )
    db.create_branch("s", "b")
    assert items_of(raw, "b") == [
        None,
        [{"type": "reasoning"}],
        [{"type": "reasoning"}, {"type": "compaction", "id": "c2"}],
    ]
    assert len(items_of(raw, "s")[1]) == 2
    db.create_branch("s", "early", up_to_message_id=rows[0])
    assert items_of(raw, "early") == [None]


def test_a_branch_before_the_newest_carrier_has_no_checkpoint(
    db: SessionDB, raw: RawSql, session: str
) -> None:
    old, new = carrier("c1", reasoning("r")), carrier("c2")
    db.append_messages_batch("s", [old, new])
    db.create_branch("s", "b", up_to_message_id=old["_row_id"])
    assert items_of(raw, "b") == [[reasoning("r")]]
    db.append_messages_batch("b", [carrier("c3")])
    assert items_of(raw, "b") == [[reasoning("r")], [checkpoint("c3")]]
    assert items_of(raw, "s") == [[reasoning("r")], [checkpoint("c2")]]


def test_parent_and_branch_go_separate_ways(db: SessionDB, raw: RawSql, session: str) -> None:
    db.append_messages_batch("s", [user("shared", platform_message_id="1")])
    db.create_branch("s", "b")
    db.append_message("b", "user", "only here")
    db.append_message("s", "user", "only there")
    assert contents_of(raw, "b") == ["shared", "only here"]
    assert contents_of(raw, "s") == ["shared", "only there"]
    loaded = db.get_messages_as_conversation("b", include_ancestors=True)
    assert [m["content"] for m in loaded] == ["shared", "only here"]


@pytest.mark.parametrize("statement", range(8))
def test_an_interrupted_copy_leaves_nothing_and_can_be_made_anew(
    open_db: OpenDb, db: SessionDB, raw: RawSql, session: str, statement: int
) -> None:
    fill(db, 5)
    before = snapshot(raw)
    with failing_statement(db.engine, statement), pytest.raises(StoreError):
        db.create_branch("s", "b", chunk_rows=2)
    assert snapshot(raw) == before
    open_db().create_branch("s", "b", chunk_rows=2)
    assert contents_of(raw, "b") == contents_of(raw, "s")


def test_statements_grow_with_the_chunks_never_with_the_rows(
    db: SessionDB, session: str, statements: QueryRecorder
) -> None:
    fill(db, 40)
    counts = []
    for name, chunk_rows in (("b1", 40), ("b2", 20)):
        statements.clear()
        db.create_branch("s", name, chunk_rows=chunk_rows)
        counts.append(len(statements.texts))
    assert counts[1] == counts[0] + 2
    assert counts[0] < 15


def test_a_missing_parent_an_existing_branch_and_a_foreign_message_are_refused(
    db: SessionDB, raw: RawSql, session: str
) -> None:
    db.create_session("other", "cli")
    foreign = db.append_message("other", "user", "x")
    fill(db, 2)
    before = snapshot(raw)
    for parent in ("unknown", "", "\0"):
        with pytest.raises(SessionNotFoundError):
            db.create_branch(parent, "b")
    for taken in ("other", "s"):
        with pytest.raises(SessionExistsError) as exists:
            db.create_branch("s", taken)
        assert exists.value.session_id == taken
    for message in (foreign, 10**9, 0):
        with pytest.raises(InvalidArgumentError) as refused:
            db.create_branch("s", "b", up_to_message_id=message)
        assert refused.value.argument == "up_to_message_id"
    assert snapshot(raw) == before


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"branch_session_id": ""}, "branch_session_id"),
        ({"chunk_rows": 0}, "chunk_rows"),
        ({"up_to_message_id": "1"}, "up_to_message_id"),
        ({"model_config": "["}, "model_config"),
    ],
)
def test_unfit_arguments_of_a_branch_are_refused(
    db: SessionDB, session: str, arguments: dict[str, Any], name: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        db.create_branch("s", **{"branch_session_id": "b", **arguments})
    assert caught.value.argument == name
    assert db.get_session("b") is None


def test_a_branch_can_be_made_inside_a_unit_of_work(db: SessionDB, raw: RawSql, session: str) -> None:
    with db.unit_of_work() as uow:
        uow.messages.append_batch("s", [user("q"), caller("x")])
        uow.lineages.create_branch("s", "b")
        uow.messages.append("b", "user", "on")
    assert contents_of(raw, "b") == ["q", None, "on"]
    assert_counters_are_exact(raw, "b")
