"""CONTRACT.md section 3, rules 1 to 7 and 9, one by one."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hermes_state import (
    CompressionSessionClosedError,
    InvalidArgumentError,
    InvalidMessageError,
    SessionDB,
    SessionNotFoundError,
    SessionTurnLeaseLostError,
    StoreError,
)
from tests.support.builders import (
    Message,
    assert_counters_are_exact,
    assistant,
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


def turn() -> list[Message]:
    return [user("q", platform_message_id="p9"), caller("a", "b"), carrier("new", reasoning("r"))]


def fill(db: SessionDB, session: str) -> None:
    db.append_messages_batch(session, [user("first"), carrier("old", reasoning("kept"))])


def count_of_statements(db: SessionDB, session: str) -> int:
    recorder = QueryRecorder(db.engine)
    db.append_messages_batch(session, turn())
    recorder.close()
    return len(recorder.texts)


def test_a_batch_returns_its_rows_and_counts_them(db: SessionDB, session: str, raw: RawSql) -> None:
    assert db.append_messages_batch(session, turn()) == 3
    assert raw("SELECT message_count, tool_call_count FROM sessions") == [(3, 2)]
    assert_counters_are_exact(raw)


def test_an_empty_batch_returns_0_and_sends_nothing(db: SessionDB, session: str, raw: RawSql) -> None:
    before = snapshot(raw)
    recorder = QueryRecorder(db.engine)
    assert db.append_messages_batch(session, []) == 0
    assert db.append_messages_batch("unknown", ()) == 0
    recorder.close()
    assert recorder.texts == []
    assert snapshot(raw) == before


@pytest.mark.parametrize("rows", [1, 500])
def test_a_batch_of_any_size_is_two_statements(
    db: SessionDB, session: str, statements: QueryRecorder, rows: int
) -> None:
    statements.clear()
    assert db.append_messages_batch(session, [user(str(i)) for i in range(rows)]) == rows
    assert len(statements.texts) == 2


def test_large_batches_land_whole_and_in_order(db: SessionDB, session: str, raw: RawSql) -> None:
    texts = [str(number) for number in range(2_700)]
    assert db.append_messages_batch(session, [user(text) for text in texts]) == 2_700
    assert contents_of(raw) == texts
    assert_counters_are_exact(raw)


def test_a_fault_at_any_statement_leaves_nothing_and_the_retry_lands_once(
    db: SessionDB, session: str, raw: RawSql
) -> None:
    fill(db, session)
    db.create_session("other", "cli")
    before = snapshot(raw)
    for number in range(count_of_statements(db, "other")):
        messages = turn()
        with failing_statement(db.engine, number), pytest.raises(StoreError):
            db.append_messages_batch(session, messages)
        assert messages == turn(), "a dict was stamped although nothing was committed"
        remaining = [row for row in snapshot(raw) if "other" not in row]
        assert remaining == [row for row in before if "other" not in row]
    assert db.append_messages_batch(session, turn()) == 3
    assert items_of(raw, session)[1] == [reasoning("kept")]
    assert_counters_are_exact(raw, session)


def test_a_failed_commit_leaves_nothing_and_the_retry_lands_once(
    db: SessionDB, session: str, raw: RawSql
) -> None:
    fill(db, session)
    before = snapshot(raw)
    messages = turn()
    with failing_commit(db.engine), pytest.raises(StoreError):
        db.append_messages_batch(session, messages)
    assert snapshot(raw) == before
    assert not any("_row_id" in message or "timestamp" in message for message in messages)
    assert db.append_messages_batch(session, messages) == 3
    assert_counters_are_exact(raw)


def test_a_commit_whose_answer_is_lost_is_found_by_the_retry(
    db: SessionDB, session: str, raw: RawSql
) -> None:
    messages = turn()
    with failing_commit(db.engine, after_it_took_place=True), pytest.raises(StoreError):
        db.append_messages_batch(session, messages)
    assert db.append_messages_batch(session, messages) == 0
    assert len(contents_of(raw)) == 3
    assert [message["_row_id"] for message in messages] == raw.column("SELECT id FROM messages ORDER BY id")
    assert_counters_are_exact(raw)


def test_dicts_learn_their_row_and_time_after_the_commit_only(
    db: SessionDB, session: str, raw: RawSql
) -> None:
    messages = turn()
    with db.unit_of_work() as uow:
        uow.messages.append_batch(session, messages)
        assert not any("_row_id" in message for message in messages)
    stored = raw("SELECT id, timestamp FROM messages ORDER BY id")
    assert [(message["_row_id"], message["timestamp"]) for message in messages] == stored


def test_defaults_of_one_batch_rise_by_a_microsecond_at_least(
    db: SessionDB, session: str, raw: RawSql
) -> None:
    db.append_messages_batch(session, [user(str(i)) for i in range(50)])
    times = raw.column("SELECT timestamp FROM messages ORDER BY id")
    assert all(later - earlier >= 1e-6 for earlier, later in pairwise(times))


def test_one_refused_message_refuses_the_batch_before_any_sql(
    db: SessionDB, session: str, statements: QueryRecorder
) -> None:
    statements.clear()
    with pytest.raises(InvalidMessageError) as refusal:
        db.append_messages_batch(session, [user("good"), {"role": "user", "token_count": "abc"}])
    assert (refusal.value.index, refusal.value.field) == (1, "token_count")
    assert statements.texts == []


def test_an_unknown_session_is_refused_and_not_invented(db: SessionDB, raw: RawSql) -> None:
    with pytest.raises(SessionNotFoundError):
        db.append_messages_batch("unknown", [user()])
    assert snapshot(raw) == []


@pytest.mark.parametrize("bad", ["", "a\0b", "\ud800", "x" * 513, None, 7])
def test_what_cannot_be_an_id_is_an_unknown_session(db: SessionDB, bad: str) -> None:
    with pytest.raises(SessionNotFoundError):
        db.append_messages_batch(bad, [user()])


def test_a_session_closed_by_compression_is_refused(db: SessionDB, session: str, raw: RawSql) -> None:
    db.end_session(session, "compression")
    before = snapshot(raw)
    with pytest.raises(CompressionSessionClosedError) as refusal:
        db.append_messages_batch(session, [user()])
    assert refusal.value.session_id == session
    assert snapshot(raw) == before


def test_a_session_closed_for_another_reason_takes_messages(db: SessionDB, session: str) -> None:
    db.end_session(session, "user_exit")
    assert db.append_messages_batch(session, [user()]) == 1


def test_a_turn_lease_that_is_not_held_is_refused(db: SessionDB, session: str, raw: RawSql) -> None:
    before = snapshot(raw)
    with pytest.raises(SessionTurnLeaseLostError):
        db.append_messages_batch(session, [user()], turn_lease_holder="nobody")
    assert snapshot(raw) == before


def test_a_compression_lock_does_not_hold_up_appends(db: SessionDB, session: str) -> None:
    assert db.append_messages_batch(session, [user()], compression_lock_holder="somebody") == 1


def test_chunks_are_atomic_each_on_its_own(db: SessionDB, session: str, raw: RawSql) -> None:
    messages = [user(str(number)) for number in range(7)]
    with failing_statement(db.engine, 2), pytest.raises(StoreError):
        db.append_messages_batch(session, messages, chunk_rows=3)
    assert contents_of(raw) == ["0", "1", "2"]
    assert db.append_messages_batch(session, messages, chunk_rows=3) == 4
    assert contents_of(raw) == [str(number) for number in range(7)]


@pytest.mark.parametrize("bad", [0, -1, True, 2.5, "3"])
def test_chunk_rows_must_be_a_whole_number_from_1(db: SessionDB, session: str, bad: int) -> None:
    with pytest.raises(InvalidArgumentError):
        db.append_messages_batch(session, [user()], chunk_rows=bad)


def test_a_batch_and_single_appends_store_the_same(db: SessionDB, raw: RawSql) -> None:
    messages = [*turn(), assistant("x", reasoning="r", token_count=3), user([{"type": "text", "text": "t"}])]
    for session in ("batch", "singles"):
        db.create_session(session, "cli")
    db.append_messages_batch("batch", messages)
    for message in [*turn(), messages[3], messages[4]]:
        keys = {k: v for k, v in message.items() if k not in ("role", "content", "_row_id", "timestamp")}
        db.append_message("singles", message["role"], message["content"], **keys)
    columns = "role, content, tool_calls, token_count, reasoning, platform_message_id"
    rows = [
        raw(f"SELECT {columns} FROM messages WHERE session_id = ? ORDER BY id", session)
        for session in ("batch", "singles")
    ]
    assert rows[0] == rows[1]
    assert (
        items_of(raw, "batch")
        == items_of(raw, "singles")
        == [
            None,
            None,
            [reasoning("r"), checkpoint("new")],
            None,
            None,
        ]
    )
