"""The result of a delegate arrives once, whoever delivers it again (issue 3; known store, section 2.3)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from hermes_state import (
    CompressionSessionClosedError,
    InvalidArgumentError,
    InvalidMessageError,
    SessionDB,
    SessionNotFoundError,
    StoreError,
)
from tests.support.builders import assert_counters_are_exact, assistant, contents_of, snapshot, user
from tests.support.raw import RawSql
from tests.support.statements import failing_commit


def test_a_delivery_is_a_message_that_names_its_delegation(db: SessionDB, raw: RawSql, session: str) -> None:
    db.append_message("s", "user", "go")
    delivery = db.append_delegation_delivery("s", "d1", "the result", display_metadata={"x": 1})
    (_, row) = db.get_messages("s")
    assert delivery == ("s", row["id"], True)
    assert (row["role"], row["content"], row["display_kind"]) == ("user", "the result", "delegation")
    assert row["display_metadata"] == {"x": 1, "delegation_id": "d1"}
    assert_counters_are_exact(raw)


def test_a_repeated_delivery_changes_nothing(db: SessionDB, raw: RawSql, session: str) -> None:
    first = db.append_delegation_delivery("s", "d1", "the result")
    before = snapshot(raw)
    again = db.append_delegation_delivery("s", "d1", "another text", role="system", display_kind=None)
    assert again == (first.session_id, first.row_id, False)
    assert snapshot(raw) == before
    assert db.append_delegation_delivery("s", "d2", "the result").is_new


def test_a_lost_answer_is_repeated_without_harm(db: SessionDB, raw: RawSql, session: str) -> None:
    with failing_commit(db.engine, after_it_took_place=True), pytest.raises(StoreError):
        db.append_delegation_delivery("s", "d1", "the result")
    assert not db.append_delegation_delivery("s", "d1", "the result").is_new
    assert contents_of(raw) == ["the result"]
    assert_counters_are_exact(raw)


def test_a_delivery_goes_to_the_live_end_and_is_found_in_every_session_before_it(
    db: SessionDB, raw: RawSql, session: str
) -> None:
    early = db.append_delegation_delivery("s", "early", "early result")
    db.publish_continuation("s", "b", [user("summary")])
    assert db.append_delegation_delivery("s", "early", "early result") == (*early[:2], False)
    assert db.append_delegation_delivery("b", "early", "early result") == (*early[:2], False)
    late = db.append_delegation_delivery("s", "late", "late result")
    assert (late.session_id, late.is_new) == ("b", True)
    db.publish_continuation("b", "c", [user("summary"), *db.get_messages("b")[-1:]])
    copy = db.append_delegation_delivery("s", "late", "late result")
    assert (copy.session_id, copy.is_new) == ("c", False)
    for session_id in ("s", "b", "c"):
        assert_counters_are_exact(raw, session_id)


def test_what_was_compacted_or_taken_back_stays_delivered(db: SessionDB, raw: RawSql, session: str) -> None:
    question = db.append_message("s", "user", "go")
    db.append_delegation_delivery("s", "d1", "result")
    db.rewind_to_message("s", question)
    assert not db.append_delegation_delivery("s", "d1", "result").is_new
    db.append_delegation_delivery("s", "d2", "result")
    db.archive_and_compact("s", [user("summary")])
    assert not db.append_delegation_delivery("s", "d2", "result").is_new
    assert contents_of(raw) == ["go", "result", "result", "summary"]


def test_a_fork_is_another_conversation(db: SessionDB, session: str) -> None:
    db.append_delegation_delivery("s", "d1", "result")
    db.create_branch("s", "branch")
    assert db.append_delegation_delivery("branch", "d1", "result").is_new


def test_of_many_deliveries_at_once_one_is_new(
    db: SessionDB, raw: RawSql, session: str, open_db: Callable[..., SessionDB]
) -> None:
    found: list[Any] = []
    start = threading.Barrier(6)

    def deliver(store: SessionDB) -> None:
        start.wait()
        found.append(store.append_delegation_delivery("s", "d1", "result"))

    threads = [threading.Thread(target=deliver, args=(open_db(),)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(delivery.is_new for delivery in found) == [False] * 5 + [True]
    assert len({delivery.row_id for delivery in found}) == 1
    assert contents_of(raw) == ["result"]
    assert_counters_are_exact(raw)


def test_deliveries_meet_a_rotation_without_loss(
    db: SessionDB, raw: RawSql, session: str, open_db: Callable[..., SessionDB]
) -> None:
    db.append_messages_batch("s", [user("a"), assistant("b")])
    start = threading.Barrier(4)
    found: list[Any] = []

    def deliver(store: SessionDB, name: str) -> None:
        start.wait()
        found.extend(
            store.append_delegation_delivery("s", f"{name}-{number}", f"{name}-{number}")
            for number in range(5)
        )

    def rotate(store: SessionDB) -> None:
        start.wait()
        for parent, child in (("s", "b"), ("b", "c"), ("c", "d")):
            mark = store.get_active_message_watermark(parent)
            store.publish_continuation(parent, child, [user(f"summary {child}")], watermark=mark)

    threads = [threading.Thread(target=deliver, args=(open_db(), name)) for name in ("x", "y", "x")]
    threads.append(threading.Thread(target=rotate, args=(open_db(),)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 15
    visible = raw.column(
        "SELECT content FROM messages WHERE (active OR compacted) AND display_kind IS NOT NULL"
    )
    assert sorted(visible) == sorted(f"{name}-{number}" for name in "xy" for number in range(5))
    for session_id in ("s", "b", "c", "d"):
        assert_counters_are_exact(raw, session_id)


def test_an_unknown_or_closed_conversation_takes_no_delivery(
    db: SessionDB, raw: RawSql, session: str
) -> None:
    for unknown in ("?", "", "\x00"):
        with pytest.raises(SessionNotFoundError):
            db.append_delegation_delivery(unknown, "d1", "result")
    db.end_session("s", "compression")
    with pytest.raises(CompressionSessionClosedError):
        db.append_delegation_delivery("s", "d1", "result")
    assert contents_of(raw) == []


@pytest.mark.parametrize("delegation_id", ["", None, 1, True, "x" * 502, "\x00", "\ud800"])
def test_what_is_no_delegation_id_is_refused(db: SessionDB, session: str, delegation_id: Any) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        db.append_delegation_delivery("s", delegation_id, "result")
    assert caught.value.argument == "delegation_id"


def test_what_cannot_be_stored_is_refused(db: SessionDB, raw: RawSql, session: str) -> None:
    with pytest.raises(InvalidMessageError):
        db.append_delegation_delivery("s", "d1", [float("nan")])
    with pytest.raises(InvalidArgumentError):
        db.append_delegation_delivery("s", "d1", "x", display_metadata=[1])  # type: ignore[arg-type]
    assert db.append_delegation_delivery("s", "x" * 501, "longest").is_new
    assert contents_of(raw) == ["longest"]
