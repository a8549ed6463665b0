"""Taking back the end of a transcript (issue 3, item 1; known-store.md 2.3 and 8; field reports D11, H1, I4)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from hermes_state import SessionDB
from hermes_state.errors import (
    CompressionSessionClosedError,
    InvalidArgumentError,
    RewindConflictError,
    SessionNotFoundError,
    StoreError,
)
from tests.support.builders import (
    assert_counters_are_exact,
    assistant,
    caller,
    carrier,
    checkpoint,
    contents_of,
    items_of,
    snapshot,
    user,
)
from tests.support.raw import RawSql
from tests.support.statements import QueryRecorder, failing_statement

STATES = "SELECT active, compacted FROM messages WHERE session_id = ? ORDER BY id"


@pytest.fixture
def ids(db: SessionDB) -> list[int]:
    """Three turns: the ids of their six rows. The second and third answer hold calls."""
    db.create_session("s", "cli")
    turns = [
        user("q0"), assistant("a0"), user("q1"), caller("x", "y"), user([{"type": "text", "text": "q2"}]), caller("z"),
    ]  # fmt: skip
    db.append_messages_batch("s", turns)
    return [turn["_row_id"] for turn in turns]


def states(raw: RawSql, session_id: str = "s") -> list[tuple[bool, bool]]:
    return [(bool(active), bool(compacted)) for active, compacted in raw(STATES, session_id)]


def test_the_target_and_what_follows_become_rewound(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    before = db.get_messages("s")[2]
    result = db.rewind_to_message("s", ids[2])
    assert result == {"rewound_count": 4, "target_message": before, "new_head_id": ids[1]}
    assert states(raw) == [(True, False)] * 2 + [(False, False)] * 4
    assert_counters_are_exact(raw)
    assert raw("SELECT message_count, tool_call_count, rewind_count FROM sessions") == [(2, 0, 1)]


def test_the_target_comes_back_decoded(db: SessionDB, ids: list[int]) -> None:
    target = db.rewind_to_message("s", ids[4])["target_message"]
    assert target["content"] == [{"type": "text", "text": "q2"}]
    assert target["active"] is True


def test_a_rewind_to_the_first_message_leaves_no_head(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    assert db.rewind_to_message("s", ids[0])["new_head_id"] is None
    assert db.get_messages("s") == []
    assert_counters_are_exact(raw)


def test_a_second_rewind_to_the_same_target_counts_but_takes_nothing(
    db: SessionDB, raw: RawSql, ids: list[int]
) -> None:
    db.rewind_to_message("s", ids[2])
    again = db.rewind_to_message("s", ids[2])
    assert (again["rewound_count"], again["new_head_id"]) == (0, ids[1])
    assert again["target_message"]["active"] is False
    assert raw.value("SELECT rewind_count FROM sessions") == 2
    assert_counters_are_exact(raw)


def test_compacted_rows_stay_compacted(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    raw("UPDATE messages SET active = (1 = 0), compacted = (1 = 1) WHERE id = ?", ids[3])
    assert db.rewind_to_message("s", ids[2])["rewound_count"] == 3
    assert states(raw)[3] == (False, True)


def test_only_the_state_changes_and_only_in_this_session(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    db.create_session("other", "cli")
    db.append_messages_batch("other", [user("o0"), carrier("o1")])
    columns = "id, message_uid, role, content, content_parts, tool_calls, timestamp, compacted"
    before = raw(f"SELECT {columns} FROM messages ORDER BY id")
    db.rewind_to_message("s", ids[0])
    assert raw(f"SELECT {columns} FROM messages ORDER BY id") == before
    assert states(raw, "other") == [(True, False)] * 2
    assert raw("SELECT message_count, rewind_count FROM sessions WHERE id = 'other'") == [(2, 0)]


def test_undo_and_go_on_keeps_the_counters_exact(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    db.rewind_to_message("s", ids[4])
    db.append_message("s", "user", "q2 again")
    assert raw("SELECT message_count, tool_call_count FROM sessions") == [(5, 2)]


def test_counts_of_rows_that_another_program_did_not_count_are_put_right(
    db: SessionDB, raw: RawSql, ids: list[int]
) -> None:
    raw("UPDATE sessions SET message_count = 99, tool_call_count = 0")
    db.rewind_to_message("s", ids[4])
    assert_counters_are_exact(raw)


def test_a_rewind_past_the_newest_carrier_leaves_no_checkpoint_and_the_next_one_works(
    db: SessionDB, raw: RawSql
) -> None:
    db.create_session("s", "cli")
    first, second, third = user("q1"), user("q2"), user("q3")
    db.append_messages_batch("s", [first, carrier("a"), second, assistant(), third, carrier("b")])
    db.rewind_to_message("s", third["_row_id"])
    assert items_of(raw) == [None, None, None, None, None, [checkpoint("b")]]
    assert all("codex_reasoning_items" not in m for m in db.get_messages_as_conversation("s"))
    db.append_messages_batch("s", [user("q3 again"), carrier("c")])
    assert items_of(raw)[-1] == [checkpoint("c")]
    assert items_of(raw)[5] == [checkpoint("b")], "a rewound row was rewritten"


@pytest.mark.parametrize("number", [0, -1, True, 2**63, 1.0, "1", None])
def test_what_is_no_row_id_is_refused(db: SessionDB, raw: RawSql, ids: list[int], number: Any) -> None:
    before = snapshot(raw)
    with pytest.raises(InvalidArgumentError) as caught:
        db.rewind_to_message("s", number)
    assert caught.value.argument == "target_message_id"
    assert snapshot(raw) == before


def test_a_target_that_is_no_message_of_a_user_in_this_session_is_refused(
    db: SessionDB, raw: RawSql, ids: list[int]
) -> None:
    db.create_session("other", "cli")
    foreign = db.append_message("other", "user", "not yours")
    before = snapshot(raw)
    for target in (ids[1], foreign, foreign + 1):
        with pytest.raises(InvalidArgumentError, match="target_message_id"):
            db.rewind_to_message("s", target)
        with pytest.raises(ValueError, match=str(target)):
            db.rewind_to_message("s", target)
    assert snapshot(raw) == before


@pytest.mark.parametrize("session_id", ["nobody", "", "x" * 513])
def test_an_unknown_session_is_refused(db: SessionDB, ids: list[int], session_id: str) -> None:
    with pytest.raises(SessionNotFoundError):
        db.rewind_to_message(session_id, ids[0])


def test_a_session_closed_by_compression_is_refused(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    db.end_session("s", "compression")
    before = snapshot(raw)
    with pytest.raises(CompressionSessionClosedError):
        db.rewind_to_message("s", ids[0])
    assert snapshot(raw) == before


def test_expected_ids_in_any_order_let_the_rewind_pass(db: SessionDB, ids: list[int]) -> None:
    assert db.rewind_to_message("s", ids[2], expected_active_ids=reversed(ids))["rewound_count"] == 4


@pytest.mark.parametrize("change", [lambda ids: ids[:-1], lambda ids: [*ids, ids[-1] + 1], lambda _: []])
def test_other_active_rows_than_expected_are_a_conflict(
    db: SessionDB, raw: RawSql, ids: list[int], change: Callable[[list[int]], list[int]]
) -> None:
    before = snapshot(raw)
    with pytest.raises(RewindConflictError) as caught:
        db.rewind_to_message("s", ids[2], expected_active_ids=change(ids))
    assert caught.value.session_id == "s"
    assert snapshot(raw) == before


def test_two_rewinds_at_once_hand_out_each_row_once(
    db: SessionDB, open_db: Callable[..., SessionDB], raw: RawSql, ids: list[int]
) -> None:
    counts: list[int] = []
    barrier = threading.Barrier(2)

    def rewind(store: SessionDB) -> None:
        barrier.wait(timeout=30)
        counts.append(store.rewind_to_message("s", ids[2])["rewound_count"])

    threads = [threading.Thread(target=rewind, args=(store,)) for store in (db, open_db())]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sorted(counts) == [0, 4]
    assert raw.value("SELECT rewind_count FROM sessions") == 2
    assert_counters_are_exact(raw)


def test_a_failure_at_any_statement_changes_nothing(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    before = snapshot(raw)
    for number in range(20):
        try:
            with failing_statement(db.engine, number):
                db.rewind_to_message("s", ids[2], expected_active_ids=ids)
        except StoreError:
            assert snapshot(raw) == before
        else:
            break
    assert 4 <= number < 20
    assert db.message_count("s") == 2


def test_the_number_of_statements_does_not_depend_on_the_number_of_rows(
    db: SessionDB, ids: list[int], statements: QueryRecorder
) -> None:
    counts = set()
    for rounds in (0, 300):
        target = db.append_message("s", "user", "here")
        db.append_messages_batch("s", [caller("x") for _ in range(rounds)])
        statements.clear()
        db.rewind_to_message("s", target)
        counts.add(len(statements.texts))
    assert len(counts) == 1
    assert all("session_id" in text or "sessions.id" in text for text in statements.texts)
    assert [text for text in statements.matching("update messages") if "content" in text] == []


def test_rewinding_in_a_unit_of_work_ends_with_it(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    before = snapshot(raw)

    def rewind_and_fail() -> None:
        with db.unit_of_work() as uow:
            assert uow.messages.rewind("s", ids[2])["rewound_count"] == 4
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        rewind_and_fail()
    assert snapshot(raw) == before
    with db.unit_of_work() as uow:
        with pytest.raises(InvalidArgumentError):
            uow.messages.rewind("s", ids[1])
        uow.messages.rewind("s", ids[2])
        uow.messages.append("s", "user", "again")
    assert contents_of(raw)[-1] == "again"
    assert db.message_count("s") == 3


def test_a_target_that_was_carried_on_stands_for_the_row_that_carries_it(db: SessionDB, raw: RawSql) -> None:
    db.create_session("carried", "cli")
    old = [db.append_message("carried", "user", f"m{n}") for n in range(6)]
    for _ in range(2):
        tail = db.get_messages("carried", latest=True, limit=2)
        db.archive_and_compact("carried", [user("summary"), *tail], tail_count=2)
    result = db.rewind_to_message("carried", old[4])
    assert result["rewound_count"] == 2
    assert [m["content"] for m in db.get_messages("carried")] == ["summary"]


def test_a_target_that_was_summarised_away_is_a_conflict(db: SessionDB, raw: RawSql) -> None:
    db.create_session("carried", "cli")
    old = [db.append_message("carried", "user", f"m{n}") for n in range(3)]
    db.archive_and_compact("carried", [user("summary")])
    before = snapshot(raw)
    with pytest.raises(RewindConflictError, match="summarised"):
        db.rewind_to_message("carried", old[1])
    assert snapshot(raw) == before
