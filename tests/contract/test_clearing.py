"""Deleting messages (issue 3, item 1; known-store.md 2.3)."""

from __future__ import annotations

import datetime as dt
import threading
from typing import Any

import pytest

from hermes_state import SessionDB
from hermes_state.errors import InvalidArgumentError, StoreError
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


@pytest.fixture
def ids(db: SessionDB) -> list[int]:
    """Six messages at 100, 101, ...: the first two compacted, the last rewound; another session beside them."""
    db.create_session("s", "cli")
    db.create_session("other", "cli")
    db.append_messages_batch("other", [user("o0", timestamp=1.0), caller("o")])
    db.append_messages_batch("s", [user("m0", timestamp=100.0), assistant("m1", timestamp=101.0)])
    archived = [m["id"] for m in db.get_messages("s")]
    db.archive_and_compact("s", [user("m2", timestamp=102.0)])
    db.append_messages_batch("s", [caller("x", "y") | {"timestamp": 103.0}, assistant("m4", timestamp=104.0)])
    last = db.append_message("s", "user", "m5", timestamp=105.0)
    live = [m["id"] for m in db.get_messages("s")]
    db.rewind_to_message("s", last)
    return archived + live


def left(raw: RawSql, session_id: str = "s") -> list[int]:
    return raw.column("SELECT id FROM messages WHERE session_id = ? ORDER BY id", session_id)


def test_everything_goes_whatever_its_state(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    assert db.clear_messages("s") == 6
    assert left(raw) == []
    assert raw("SELECT message_count, tool_call_count, last_active_at FROM sessions WHERE id = 's'") == [
        (0, 0, None)
    ]
    assert len(left(raw, "other")) == 2
    assert_counters_are_exact(raw, "other")


@pytest.mark.parametrize(
    ("kept", "places"),
    [(0, []), (1, [4]), (2, [3, 4]), (3, [2, 3, 4]), (99, [2, 3, 4]), (2**63 - 1, [2, 3, 4])],
)
def test_the_newest_active_rows_can_be_kept(
    db: SessionDB, raw: RawSql, ids: list[int], kept: int, places: list[int]
) -> None:
    assert db.clear_messages("s", keep_last_n=kept) == 6 - len(places)
    assert left(raw) == [ids[place] for place in places]
    assert_counters_are_exact(raw)


@pytest.mark.parametrize(
    "moment",
    [103, 103.0, dt.datetime(1970, 1, 1, 0, 1, 43, tzinfo=dt.UTC)],
)
def test_rows_before_a_time_can_go(db: SessionDB, raw: RawSql, ids: list[int], moment: Any) -> None:
    assert db.clear_messages("s", before_timestamp=moment) == 3
    assert left(raw) == ids[3:]
    assert raw.value("SELECT last_active_at FROM sessions WHERE id = 's'") == 105.0
    assert_counters_are_exact(raw)


def test_both_conditions_spare_what_either_spares(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    assert db.clear_messages("s", keep_last_n=2, before_timestamp=105.0) == 3
    assert left(raw) == ids[3:]
    assert db.clear_messages("s", keep_last_n=2, before_timestamp=0) == 0


def test_newest_is_by_id_and_not_by_time(db: SessionDB, raw: RawSql) -> None:
    db.create_session("s", "cli")
    db.append_messages_batch("s", [user("a", timestamp=9.0), user("b", timestamp=1.0)])
    db.clear_messages("s", keep_last_n=1)
    assert contents_of(raw) == ["b"]


def test_the_named_rows_go(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    assert db.delete_messages("s", iter([ids[0], ids[3], ids[3], ids[5]])) == 3
    assert left(raw) == [ids[1], ids[2], ids[4]]
    assert_counters_are_exact(raw)


def test_ids_of_other_sessions_and_of_nobody_delete_nothing(
    db: SessionDB, raw: RawSql, ids: list[int]
) -> None:
    before = snapshot(raw)
    foreign = left(raw, "other")
    assert db.delete_messages("s", [*foreign, ids[-1] + 1, 0, -1, 2**63, -(2**70)]) == 0
    assert db.delete_messages("s", []) == 0
    assert snapshot(raw) == before


def test_any_number_of_ids_at_once(db: SessionDB, raw: RawSql, statements: QueryRecorder) -> None:
    db.create_session("s", "cli")
    row_id = db.append_message("s", "user", "first")
    db.append_message("s", "user", "last")
    counts = set()
    for ids in ([row_id], range(row_id + 3, row_id + 100_000)):
        db.append_message("s", "user", "more")
        statements.clear()
        assert db.delete_messages("s", ids) == 1
        counts.add(len(statements.texts))
    assert len(counts) == 1
    assert all("session_id" in text or "sessions.id" in text for text in statements.texts)
    assert_counters_are_exact(raw)


def test_deleting_the_newest_carrier_brings_no_older_checkpoint_back(db: SessionDB, raw: RawSql) -> None:
    db.create_session("s", "cli")
    turns = [user(), carrier("a"), user(), carrier("b")]
    db.append_messages_batch("s", turns)
    db.delete_messages("s", [turns[3]["_row_id"]])
    assert items_of(raw) == [None, None, None]
    db.append_messages_batch("s", [carrier("c")])
    assert items_of(raw) == [None, None, None, [checkpoint("c")]]


@pytest.mark.parametrize("session_id", ["nobody", "", "x" * 513, "\ud800"])
def test_an_unknown_session_holds_nothing(db: SessionDB, ids: list[int], session_id: str) -> None:
    assert db.clear_messages(session_id) == 0
    assert db.delete_messages(session_id, ids) == 0


def test_a_session_closed_by_compression_can_be_cleared(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    db.end_session("s", "compression")
    assert db.delete_messages("s", ids[:1]) == 1
    assert db.clear_messages("s") == 5


@pytest.mark.parametrize("value", [-1, True, 1.0, "1", 2**63])
def test_a_number_of_rows_is_a_whole_number(db: SessionDB, raw: RawSql, ids: list[int], value: Any) -> None:
    before = snapshot(raw)
    with pytest.raises(InvalidArgumentError, match="keep_last_n"):
        db.clear_messages("s", keep_last_n=value)
    assert snapshot(raw) == before


@pytest.mark.parametrize("value", [True, "1", float("nan"), -1.0, 1e300])
def test_a_time_is_a_time(db: SessionDB, raw: RawSql, ids: list[int], value: Any) -> None:
    before = snapshot(raw)
    with pytest.raises(InvalidArgumentError, match="before_timestamp"):
        db.clear_messages("s", before_timestamp=value)
    assert snapshot(raw) == before


@pytest.mark.parametrize("value", [True, "1", 1.0, None])
def test_an_id_is_a_whole_number(db: SessionDB, raw: RawSql, ids: list[int], value: Any) -> None:
    before = snapshot(raw)
    with pytest.raises(InvalidArgumentError, match="ids"):
        db.delete_messages("s", [ids[0], value])
    assert snapshot(raw) == before


def test_a_failure_at_any_statement_changes_nothing(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    before = snapshot(raw)
    for number in range(20):
        try:
            with failing_statement(db.engine, number):
                db.clear_messages("s", keep_last_n=1)
        except StoreError:
            assert snapshot(raw) == before
        else:
            break
    assert 4 <= number < 20


def test_clearing_while_another_thread_appends_leaves_exact_counters(db: SessionDB, raw: RawSql) -> None:
    db.create_session("s", "cli")

    def append() -> None:
        for _ in range(20):
            db.append_messages_batch("s", [user(), caller("x")])

    thread = threading.Thread(target=append)
    thread.start()
    while thread.is_alive():
        db.clear_messages("s", keep_last_n=3)
    thread.join()
    assert_counters_are_exact(raw)
