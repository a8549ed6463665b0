"""Publishing a continuation: one transaction, one child (issue 3, item 3; field reports I7, M4)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from hermes_state import (
    CompressionSessionClosedError,
    HermesStateError,
    InvalidArgumentError,
    InvalidMessageError,
    SessionCompressionInProgressError,
    SessionDB,
    SessionEndedError,
    SessionExistsError,
    SessionNotFoundError,
    StoreError,
    TranscriptFlusher,
)
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
from tests.support.statements import QueryRecorder, failing_commit, failing_statement

OpenDb = Callable[..., SessionDB]
ENDED = "SELECT end_reason, ended_at IS NOT NULL FROM sessions WHERE id = ?"


def children(raw: RawSql, parent: str = "s") -> list[str]:
    return raw.column("SELECT id FROM sessions WHERE parent_session_id = ? ORDER BY id", parent)


def fill(db: SessionDB, *contents: str, session_id: str = "s") -> list[int]:
    messages = [user(content) for content in contents]
    db.append_messages_batch(session_id, messages)
    return [int(message["_row_id"]) for message in messages]


def test_the_parent_ends_and_the_child_begins_with_the_hand_off(db: SessionDB, raw: RawSql) -> None:
    db.create_session("s", "telegram", cwd="/w", user_id="u", session_key="k")
    fill(db, "old")
    handoff = [user("summary"), caller("x", "y")]
    assert db.publish_continuation("s", "child", handoff, model="m", system_prompt="p") == "child"
    assert raw(ENDED, "s") == [("compression", True)]
    stored = (
        "SELECT source, parent_session_id, kind, root_session_id, cwd, user_id, session_key, model, ended_at"
    )
    assert raw(f"{stored} FROM sessions WHERE id = 'child'") == [
        ("telegram", "s", "continuation", "s", "/w", "u", "k", "m", None)
    ]
    assert contents_of(raw, "child") == ["summary", None]
    assert contents_of(raw, "s") == ["old"]
    assert_counters_are_exact(raw, "child")
    assert_counters_are_exact(raw, "s")
    assert db.get_compression_lineage("child") == ["s", "child"]


def test_the_hand_off_dicts_learn_their_rows_so_that_a_flush_writes_nothing_twice(
    db: SessionDB, raw: RawSql, session: str
) -> None:
    handoff: list[dict[str, Any]] = [user("summary"), assistant("kept")]
    db.publish_continuation("s", "child", handoff)
    ids = raw.column("SELECT id FROM messages WHERE session_id = 'child' ORDER BY id")
    assert [m["_row_id"] for m in handoff] == ids
    before = snapshot(raw)
    assert TranscriptFlusher(db, "child").flush(handoff) is True
    assert snapshot(raw) == before


def test_messages_that_the_hand_off_carries_over_keep_their_uid_in_a_row_of_their_own(
    db: SessionDB, raw: RawSql, session: str
) -> None:
    carried: dict[str, Any] = user("tail", message_uid="u1")
    db.append_messages_batch("s", [user("old"), carried])
    db.publish_continuation("s", "child", [user("summary"), *db.get_messages("s")[1:]])
    assert raw("SELECT content, message_uid FROM messages WHERE session_id = 'child' ORDER BY id")[1] == (
        "tail",
        "u1",
    )
    assert contents_of(raw, "s") == ["old", "tail"]


def test_rows_that_arrived_during_the_summary_move_to_the_end_of_the_child(
    db: SessionDB, raw: RawSql, session: str
) -> None:
    fill(db, "old", "older")
    watermark = db.get_active_message_watermark("s")
    late: list[dict[str, Any]] = [user("late", own={"a": 1}), caller("x", "y")]
    db.append_messages_batch("s", late)
    (taken_back,) = fill(db, "taken back")
    raw("UPDATE messages SET active = ? WHERE id = ?", False, taken_back)
    raw("UPDATE sessions SET message_count = message_count - 1 WHERE id = 's'")
    columns = "message_uid, role, content, tool_calls, timestamp, extra"
    originals = raw(
        f"SELECT {columns} FROM messages WHERE id >= ? AND active ORDER BY id", late[0]["_row_id"]
    )
    db.publish_continuation("s", "child", [user("summary")], watermark=watermark)
    assert contents_of(raw, "child") == ["summary", "late", None]
    assert raw(f"SELECT {columns} FROM messages WHERE session_id = 'child' ORDER BY id")[1:] == originals
    assert_counters_are_exact(raw, "child")
    assert_counters_are_exact(raw, "s")


def test_moved_rows_are_rewound_in_the_parent_and_name_their_successor(
    db: SessionDB, raw: RawSql, session: str
) -> None:
    fill(db, "old")
    watermark = db.get_active_message_watermark("s")
    (late,) = fill(db, "late")
    db.publish_continuation("s", "child", [user("summary")], watermark=watermark)
    successor = raw.value("SELECT id FROM messages WHERE session_id = 'child' AND content = 'late'")
    state = raw("SELECT active, compacted, superseded_by FROM messages WHERE id = ?", late)
    assert [tuple(map(int, row)) for row in state] == [(0, 0, successor)]
    loaded = db.get_messages_as_conversation("child", include_ancestors=True)
    assert [m["content"] for m in loaded] == ["old", "summary", "late"]


def test_without_a_watermark_nothing_is_moved_at_watermark_0_everything(
    db: SessionDB, raw: RawSql, session: str
) -> None:
    fill(db, "a", "b")
    db.create_session("s2", "cli")
    fill(db, "c", session_id="s2")
    db.publish_continuation("s", "child", [user("summary")])
    db.publish_continuation("s2", "child2", [user("summary")], watermark=0)
    assert contents_of(raw, "child") == ["summary"]
    assert contents_of(raw, "child2") == ["summary", "c"]


def test_a_late_row_that_the_hand_off_holds_already_comes_once(
    db: SessionDB, raw: RawSql, session: str
) -> None:
    fill(db, "old")
    watermark = db.get_active_message_watermark("s")
    late: list[dict[str, Any]] = [user("late", message_uid="u1"), user("other", message_uid="u2")]
    db.append_messages_batch("s", late)
    handoff = [user("summary"), user("late", message_uid="u1"), user("a summary, too", message_uid="u2")]
    db.publish_continuation("s", "child", handoff, watermark=watermark)
    assert contents_of(raw, "child") == ["summary", "late", "a summary, too", "other"]
    assert raw.value("SELECT count(*) FROM messages WHERE session_id = 's' AND active") == 1
    assert_counters_are_exact(raw, "child")
    assert_counters_are_exact(raw, "s")


def test_an_append_retried_after_the_hand_over_finds_its_row_in_the_child(
    db: SessionDB, raw: RawSql, session: str
) -> None:
    watermark = db.get_active_message_watermark("s")
    message: dict[str, Any] = user("late")
    flusher = TranscriptFlusher(db, "s")
    with failing_commit(db.engine, after_it_took_place=True):
        assert flusher.flush([message]) is False
    db.publish_continuation("s", "child", [user("summary")], watermark=watermark)
    assert flusher.flush([message]) is True
    assert flusher.session_id == "child"
    assert contents_of(raw, "child") == ["summary", "late"]


def test_the_child_has_one_checkpoint_the_newest(db: SessionDB, raw: RawSql, session: str) -> None:
    db.append_messages_batch("s", [carrier("c1", reasoning("r1"))])
    watermark = db.get_active_message_watermark("s")
    db.append_messages_batch("s", [carrier("c3", reasoning("r3"))])
    db.publish_continuation("s", "child", [carrier("c2", reasoning("r2"))], watermark=watermark)
    assert items_of(raw, "child") == [[reasoning("r2")], [reasoning("r3"), checkpoint("c3")]]


@pytest.mark.parametrize("watermark", [10**9, 2**63 - 1])
def test_a_watermark_of_the_future_is_refused(
    db: SessionDB, raw: RawSql, session: str, watermark: int
) -> None:
    db.create_session("other", "cli")
    fill(db, "x", session_id="other")
    before = snapshot(raw)
    for mark in (watermark, db.get_active_message_watermark("other")):
        with pytest.raises(InvalidArgumentError) as caught:
            db.publish_continuation("s", "child", [user("summary")], watermark=mark)
        assert caught.value.argument == "watermark"
    assert snapshot(raw) == before


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"handoff_messages": []}, "handoff_messages"),
        ({"child_session_id": ""}, "child_session_id"),
        ({"end_reason": ""}, "end_reason"),
        ({"end_reason": 1}, "end_reason"),
        ({"watermark": -1}, "watermark"),
        ({"watermark": True}, "watermark"),
        ({"model_config": "x"}, "model_config"),
    ],
)
def test_unfit_arguments_change_nothing(
    db: SessionDB, raw: RawSql, session: str, arguments: dict[str, Any], name: str
) -> None:
    before = snapshot(raw)
    given = {"child_session_id": "child", "handoff_messages": [user("summary")], **arguments}
    with pytest.raises(InvalidArgumentError) as caught:
        db.publish_continuation("s", **given)
    assert caught.value.argument == name
    assert snapshot(raw) == before


def test_a_message_that_cannot_be_stored_changes_nothing(db: SessionDB, raw: RawSql, session: str) -> None:
    before = snapshot(raw)
    with pytest.raises(InvalidMessageError):
        db.publish_continuation("s", "child", [user("summary"), user(float("nan"))])
    assert snapshot(raw) == before


def test_a_missing_parent_and_an_existing_child_are_refused(db: SessionDB, raw: RawSql, session: str) -> None:
    db.create_session("other", "cli")
    before = snapshot(raw)
    for parent in ("unknown", "", "\0"):
        with pytest.raises(SessionNotFoundError):
            db.publish_continuation(parent, "child", [user("summary")])
    for taken in ("other", "s"):
        with pytest.raises(SessionExistsError):
            db.publish_continuation("s", taken, [user("summary")])
    assert snapshot(raw) == before


def test_a_second_child_of_a_continued_parent_is_refused(db: SessionDB, raw: RawSql, session: str) -> None:
    db.publish_continuation("s", "child", [user("summary")])
    db.end_session("child", "cli_close")
    before = snapshot(raw)
    with pytest.raises(CompressionSessionClosedError) as caught:
        db.publish_continuation("s", "child2", [user("summary")])
    assert caught.value.session_id == "s"
    with pytest.raises(SessionExistsError):
        db.publish_continuation("s", "child", [user("summary")])
    assert snapshot(raw) == before


def test_a_publication_whose_answer_was_lost_may_be_called_again(
    db: SessionDB, raw: RawSql, session: str
) -> None:
    fill(db, "late")
    handoff: list[dict[str, Any]] = [user("summary"), assistant("kept")]
    with failing_commit(db.engine, after_it_took_place=True), pytest.raises(StoreError):
        db.publish_continuation("s", "child", handoff, watermark=0)
    before = snapshot(raw)
    assert db.publish_continuation("s", "child", handoff, watermark=0) == "child"
    assert snapshot(raw) == before
    assert [m["_row_id"] for m in handoff] == raw.column(
        "SELECT id FROM messages WHERE session_id = 'child' AND content <> 'late' ORDER BY id"
    )
    handoff[1]["content"] = "another hand-off"
    with pytest.raises(SessionExistsError):
        db.publish_continuation("s", "child", handoff, watermark=0)
    assert snapshot(raw) == before


def test_a_closed_parent_that_nothing_continues_is_repaired(db: SessionDB, raw: RawSql, session: str) -> None:
    db.end_session("s", "compression")
    db.create_branch("s", "b")
    ended_at = raw.value("SELECT ended_at FROM sessions WHERE id = 's'")
    db.publish_continuation("s", "child", [user("summary")])
    assert raw("SELECT ended_at, end_reason FROM sessions WHERE id = 's'") == [(ended_at, "compression")]
    assert db.get_compression_tip("s") == "child"


@pytest.mark.parametrize("reason", ["session_reset", "branched", "user_exit", "a reason of its own"])
def test_a_parent_that_somebody_ended_on_purpose_is_not_carried_on(
    db: SessionDB, raw: RawSql, session: str, reason: str
) -> None:
    db.end_session("s", reason)
    before = snapshot(raw)
    with pytest.raises(SessionEndedError) as caught:
        db.publish_continuation("s", "child", [user("summary")])
    assert (caught.value.session_id, caught.value.end_reason) == ("s", reason)
    assert snapshot(raw) == before
    db.reopen_session("s")
    db.publish_continuation("s", "child", [user("summary")])
    assert db.get_compression_tip("s") == "child"


@pytest.mark.parametrize("reason", ["cli_close", "ws_orphan_reap", "tui_shutdown"])
def test_the_stamp_of_a_program_that_went_away_does_not_stop_compaction(
    db: SessionDB, raw: RawSql, session: str, reason: str
) -> None:
    db.end_session("s", reason)
    db.publish_continuation("s", "child", [user("summary")])
    assert raw(ENDED, "s") == [("compression", True)]
    assert db.get_compression_tip("s") == "child"


def test_another_end_reason_is_kept_and_ends_the_chain(db: SessionDB, raw: RawSql, session: str) -> None:
    db.publish_continuation("s", "child", [user("summary")], end_reason="rotated")
    assert raw(ENDED, "s") == [("rotated", True)]
    assert db.get_compression_tip("s") == "s"
    assert db.get_conversation_root("child") == "s"


def test_the_compaction_lock_that_is_presented_must_be_held(db: SessionDB, raw: RawSql, session: str) -> None:
    before = snapshot(raw)
    for other in (None, "another"):
        if other is not None:
            db.try_acquire_compression_lock("s", other)
        with pytest.raises(SessionCompressionInProgressError) as caught:
            db.publish_continuation("s", "child", [user("summary")], lock_holder="me")
        assert caught.value.holder == other
    assert snapshot(raw) == before
    db.release_compression_lock("s", "another")
    assert db.try_acquire_compression_lock("s", "me") is True
    db.publish_continuation("s", "child", [user("summary")], lock_holder="me")
    assert children(raw) == ["child"]


def test_a_marker_in_the_config_makes_no_branch_of_a_continuation(
    db: SessionDB, raw: RawSql, session: str
) -> None:
    db.create_branch("s", "b", model_config={"_branched_from": "s"})
    db.publish_continuation("b", "b2", [user("summary")], model_config={"_branched_from": "s"})
    assert raw("SELECT kind, root_session_id FROM sessions WHERE id = 'b2'") == [("continuation", "b")]
    assert db.get_compression_tip("b") == "b2"


@pytest.mark.parametrize("statement", range(13))
def test_a_failure_at_any_statement_leaves_an_open_parent_without_a_child(
    db: SessionDB, raw: RawSql, session: str, statement: int
) -> None:
    fill(db, "old")
    watermark = db.get_active_message_watermark("s")
    fill(db, "late")
    before = snapshot(raw)
    handoff: list[dict[str, Any]] = [user("summary")]
    with failing_statement(db.engine, statement), pytest.raises(StoreError):
        db.publish_continuation("s", "child", handoff, watermark=watermark, system_prompt="p")
    assert snapshot(raw) == before
    assert handoff == [user("summary")]


def test_the_number_of_statements_does_not_depend_on_the_rows(
    db: SessionDB, session: str, statements: QueryRecorder
) -> None:
    counts = []
    db.create_session("s2", "cli")
    for parent, size in (("s", 1), ("s2", 60)):
        watermark = db.get_active_message_watermark(parent)
        fill(db, *[f"late {i}" for i in range(size)], session_id=parent)
        statements.clear()
        handoff = [user(f"h{i}") for i in range(size)]
        db.publish_continuation(parent, f"{parent}-child", handoff, watermark=watermark)
        counts.append(len(statements.texts))
    assert counts[0] == counts[1] <= 15


def test_of_two_at_once_exactly_one_publishes(
    open_db: OpenDb, raw: RawSql, session: str, db: SessionDB
) -> None:
    fill(db, "old")
    stores = [open_db() for _ in range(4)]
    barrier = threading.Barrier(len(stores))
    outcomes: list[str | HermesStateError] = []

    def publish(number: int) -> None:
        barrier.wait()
        try:
            outcomes.append(
                stores[number].publish_continuation("s", f"child{number}", [user(f"summary {number}")])
            )
        except HermesStateError as error:
            outcomes.append(error)

    run_together([partial(publish, number) for number in range(len(stores))])
    winners = [outcome for outcome in outcomes if isinstance(outcome, str)]
    assert children(raw) == winners
    assert len(winners) == 1
    losers = [outcome for outcome in outcomes if not isinstance(outcome, str)]
    assert [type(error) for error in losers] == [CompressionSessionClosedError] * 3
    assert contents_of(raw, winners[0]) == [f"summary {winners[0][-1]}"]


def test_appends_beside_a_publication_are_neither_lost_nor_doubled(
    open_db: OpenDb, raw: RawSql, session: str, db: SessionDB
) -> None:
    watermark = db.get_active_message_watermark("s")
    flusher = TranscriptFlusher(open_db(), "s")
    live: list[dict[str, Any]] = []
    done = threading.Event()

    def write() -> None:
        for i in range(30):
            live.append(user(f"m{i}"))
            assert flusher.flush(live) is True
            if i == 10:
                done.set()

    def publish() -> None:
        done.wait(10)
        db.publish_continuation("s", "child", [user("summary")], watermark=watermark)

    run_together([write, publish])
    # The publication may have come after the last of them.
    live.append(user("m30"))
    assert flusher.flush(live) is True
    assert flusher.session_id == "child"
    assert contents_of(raw, "child") == ["summary", *[f"m{i}" for i in range(31)]]
    assert raw.value("SELECT count(*) FROM messages WHERE session_id = 's' AND active") == 0
    for session_id in ("s", "child"):
        assert_counters_are_exact(raw, session_id)


def test_an_ended_parent_is_never_seen_without_its_child(
    open_db: OpenDb, session: str, db: SessionDB
) -> None:
    reader = open_db()
    seen: list[bool] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            parent = reader.get_session("s")
            assert parent is not None
            if parent["ended_at"] is not None:
                seen.append(reader.get_session("child") is not None)

    def publish() -> None:
        try:
            db.publish_continuation("s", "child", [user(f"summary {i}") for i in range(200)])
        finally:
            stop.set()

    run_together([watch, publish])
    assert all(seen)
    assert reader.get_compression_tip("s") == "child"


def test_calls_of_moved_rows_are_counted_once(db: SessionDB, raw: RawSql, session: str) -> None:
    watermark = db.get_active_message_watermark("s")
    db.append_messages_batch("s", [assistant(None, tool_calls=[call("a"), call("b")])])
    db.publish_continuation("s", "child", [caller("c")], watermark=watermark)
    counts = "SELECT message_count, tool_call_count FROM sessions WHERE id = ?"
    assert raw(counts, "s") == [(0, 0)]
    assert raw(counts, "child") == [(2, 3)]


def run_together(steps: list[Callable[[], None]]) -> None:
    """Runs the steps in threads of their own and raises what one of them raised."""
    with ThreadPoolExecutor(len(steps)) as pool:
        for running in [pool.submit(step) for step in steps]:
            running.result(60)
