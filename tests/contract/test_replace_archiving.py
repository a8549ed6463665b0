"""Replacing a transcript without losing what was dropped (issue 3, item 1; known-store.md 2.3)."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_state import SessionDB
from hermes_state.errors import CompressionSessionClosedError, SessionNotFoundError, StoreError
from tests.support.builders import (
    Message,
    assert_counters_are_exact,
    assistant,
    call,
    carrier,
    checkpoint,
    items_of,
    reasoning,
    snapshot,
    user,
)
from tests.support.raw import RawSql
from tests.support.statements import QueryRecorder, failing_commit, failing_statement


@pytest.fixture
def ids(db: SessionDB) -> list[int]:
    """Four messages; the second holds a call, the third its result, the fourth content in parts."""
    db.create_session("s", "cli")
    turns = [
        user("q0"),
        assistant("a0", tool_calls=[call()], reasoning="because"),
        {"role": "tool", "content": "found", "tool_call_id": "call_search"},
        user([{"type": "text", "text": "q1", "n": 1}]),
    ]
    db.append_messages_batch("s", turns)
    return [turn["_row_id"] for turn in turns]


def shown(db: SessionDB) -> list[Any]:
    return list(db.get_messages_as_conversation("s"))


def replace(db: SessionDB, messages: list[Any]) -> int:
    return db.replace_messages("s", messages, archive_dropped=True)


def live_ids(db: SessionDB) -> list[int]:
    return [m["id"] for m in db.get_messages("s")]


def test_the_same_transcript_changes_nothing(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    before = snapshot(raw)
    for same in (
        shown(db),
        db.get_messages("s"),
        [{**m, "reasoning": None, "timestamp": 5} for m in shown(db)],
    ):
        assert replace(db, same) == 4
        assert snapshot(raw) == before


def test_what_follows_the_common_prefix_is_rewound_and_replaced(
    db: SessionDB, raw: RawSql, ids: list[int]
) -> None:
    prefix = raw("SELECT * FROM messages WHERE id <= ? ORDER BY id", ids[1])
    changed = shown(db)
    changed[2] = {**changed[2], "content": "nothing found"}
    assert replace(db, [*changed, assistant("a1")]) == 5
    assert raw("SELECT * FROM messages WHERE id <= ? ORDER BY id", ids[1]) == prefix
    assert live_ids(db)[:2] == ids[:2]
    assert min(live_ids(db)[2:]) > ids[3]
    states = raw("SELECT active, compacted FROM messages WHERE id IN (?, ?)", *ids[2:])
    assert [(bool(a), bool(c)) for a, c in states] == [(False, False)] * 2
    assert [m["content"] for m in shown(db)][2:] == ["nothing found", changed[3]["content"], "a1"]
    assert_counters_are_exact(raw)


def test_more_messages_are_appended_and_fewer_rewind_the_rest(
    db: SessionDB, raw: RawSql, ids: list[int]
) -> None:
    assert replace(db, [*shown(db), assistant("a1")]) == 5
    assert live_ids(db)[:4] == ids
    assert replace(db, shown(db)[:2]) == 2
    assert live_ids(db) == ids[:2]
    assert_counters_are_exact(raw)
    assert replace(db, []) == 0
    assert_counters_are_exact(raw)
    assert raw.value("SELECT count(*) FROM messages") == 5


@pytest.mark.parametrize(
    ("place", "change"),
    [
        (0, {"role": "system"}),
        (0, {"content": None}),
        (0, {"content": ["q0"]}),
        (1, {"tool_calls": None}),
        (1, {"tool_calls": [call(), call("other")]}),
        (2, {"tool_call_id": "call_other"}),
        (3, {"content": [{"type": "text", "text": "q1", "n": 1.0}]}),
        (3, {"content": [{"type": "text", "text": "q1", "n": True}]}),
        (3, {"content": "q1"}),
    ],
)
def test_role_content_and_tool_ids_make_a_difference(
    db: SessionDB, raw: RawSql, ids: list[int], place: int, change: Message
) -> None:
    changed = shown(db)
    changed[place] = {**changed[place], **change}
    assert replace(db, changed) == 4
    assert live_ids(db)[:place] == ids[:place]
    assert set(live_ids(db)[place:]).isdisjoint(ids)
    assert_counters_are_exact(raw)


def test_the_order_of_keys_makes_none(db: SessionDB, ids: list[int]) -> None:
    same = shown(db)
    same[3] = {**same[3], "content": [{"n": 1, "text": "q1", "type": "text"}]}
    replace(db, same)
    assert live_ids(db) == ids


def test_archived_rows_stay_as_they_are(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    db.archive_and_compact("s", [user("summary")])
    before = raw("SELECT * FROM messages WHERE id <= ? ORDER BY id", ids[3])
    replace(db, [user("another summary")])
    assert raw("SELECT * FROM messages WHERE id <= ? ORDER BY id", ids[3]) == before
    assert [m["content"] for m in shown(db)] == ["another summary"]


def test_a_carrier_in_the_new_tail_strips_the_kept_ones(db: SessionDB, raw: RawSql) -> None:
    db.create_session("s", "cli")
    db.append_messages_batch("s", [user("q"), carrier("a", reasoning("r")), user("q1"), assistant("a1")])
    kept = shown(db)[:3]
    replace(db, [*kept, carrier("b")])
    assert items_of(raw) == [None, [reasoning("r")], None, None, [checkpoint("b")]]


def test_uids_of_dropped_rows_and_dicts_of_known_rows(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    stamped: list[Any] = [{**m, "_row_id": m["id"]} for m in db.get_messages("s")]
    stamped[2] = {**stamped[2], "content": "other"}
    replace(db, stamped)
    assert [m["_row_id"] for m in stamped] == live_ids(db)
    assert live_ids(db)[:2] == ids[:2]
    uids = raw.column("SELECT message_uid FROM messages")
    assert len(set(uids)) == 6


def test_repeating_a_replacement_whose_commit_was_lost_changes_nothing(
    db: SessionDB, raw: RawSql, ids: list[int]
) -> None:
    wanted = [*shown(db)[:2], user("new")]
    with failing_commit(db.engine, after_it_took_place=True), pytest.raises(StoreError):
        replace(db, wanted)
    before = snapshot(raw)
    assert replace(db, wanted) == 3
    assert snapshot(raw) == before


def test_unknown_and_closed_sessions_are_refused(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    with pytest.raises(SessionNotFoundError):
        db.replace_messages("nobody", [], archive_dropped=True)
    db.end_session("s", "compression")
    before = snapshot(raw)
    with pytest.raises(CompressionSessionClosedError):
        replace(db, [user("other")])
    assert snapshot(raw) == before


def test_a_failure_at_any_statement_changes_nothing(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    before = snapshot(raw)
    wanted = [*shown(db)[:2], carrier("new")]
    for number in range(20):
        try:
            with failing_statement(db.engine, number):
                replace(db, wanted)
        except StoreError:
            assert snapshot(raw) == before
        else:
            break
    assert 6 <= number < 20
    assert_counters_are_exact(raw)


def test_the_statements_do_not_depend_on_the_number_of_rows(
    db: SessionDB, ids: list[int], statements: QueryRecorder
) -> None:
    counts = set()
    for rounds in (3, 300):
        db.append_messages_batch("s", [user(f"m{n}") for n in range(rounds)])
        wanted = [*shown(db)[: rounds // 2], *(user(f"n{n}") for n in range(rounds))]
        statements.clear()
        replace(db, wanted)
        counts.add(len(statements.texts))
    assert len(counts) == 1
    assert all("session_id" in text or "sessions.id" in text for text in statements.texts)


def test_replacing_in_a_unit_of_work(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    with db.unit_of_work() as uow:
        assert uow.messages.replace("s", [user("q0")], archive_dropped=True) == 1
    assert live_ids(db) == ids[:1]
    assert_counters_are_exact(raw)
