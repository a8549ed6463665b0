"""Taking back a turn that is named by its number (issue 3, item 1; known store, section 2.4)."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_state import (
    CompressionSessionClosedError,
    InvalidArgumentError,
    LeaseHeldError,
    RewindConflictError,
    SessionDB,
    SessionNotFoundError,
    TranscriptFlusher,
)
from tests.support.builders import assert_counters_are_exact, assistant, caller, snapshot, user
from tests.support.raw import RawSql
from tests.support.statements import failing_commit

PICTURE = [{"type": "image_url", "image_url": {"url": "data:x"}}]


def live(db: SessionDB) -> list[Any]:
    return [message["content"] for message in db.get_messages("s")]


@pytest.fixture
def history(db: SessionDB, session: str) -> list[dict[str, Any]]:
    """Three turns with a hidden message between them, as an agent holds them after its flush."""
    messages = [
        user("a"),
        assistant("A"),
        user("scaffold", display_kind="hidden"),
        user("b"),
        caller("x"),
        user(PICTURE),
        assistant("C"),
    ]
    db.append_messages_batch("s", messages)
    return messages


@pytest.mark.parametrize(("ordinal", "left"), [(0, 0), (1, 3), (2, 5), (-1, 5), (-2, 3), (-3, 0)])
def test_turns_are_counted_from_either_end(
    db: SessionDB, raw: RawSql, history: list[dict[str, Any]], ordinal: int, left: int
) -> None:
    expected = [message["content"] for message in history[:left]]
    result = db.rewind_user_turn("s", ordinal, warm_history=history)
    assert result["rewound_count"] == 7 - left
    assert result["target_message"]["role"] == "user"
    assert live(db) == expected == [message["content"] for message in history]
    assert_counters_are_exact(raw)
    assert raw.value("SELECT rewind_count FROM sessions") == 1


def test_the_live_list_goes_on_from_there(db: SessionDB, raw: RawSql, history: list[dict[str, Any]]) -> None:
    resumed: list[Any] = [*db.get_resume_conversations("s").model]
    db.rewind_user_turn("s", -1, warm_history=resumed)
    resumed.append(user("d"))
    assert TranscriptFlusher(db, "s").flush(resumed)
    assert live(db) == ["a", "A", "scaffold", "b", None, "d"]
    assert_counters_are_exact(raw)


def test_dicts_that_know_no_row_are_found_by_number_and_content(
    db: SessionDB, history: list[dict[str, Any]]
) -> None:
    plain = [{k: v for k, v in message.items() if not k.startswith("_")} for message in history]
    db.rewind_user_turn("s", 2, warm_history=plain)
    assert len(plain) == 5
    db.rewind_user_turn("s", -2, warm_history=plain)
    assert plain == []


def test_a_live_list_that_tells_another_story_changes_nothing(
    db: SessionDB, raw: RawSql, history: list[dict[str, Any]]
) -> None:
    before = snapshot(raw)
    others: list[list[Any]] = [
        [],
        [user("x"), user("y"), user("z")],
        ["text", None],
        [user("a", _row_id=10**6)],
    ]
    for other in others:
        kept = list(other)
        with pytest.raises(RewindConflictError):
            db.rewind_user_turn("s", 0, warm_history=other)
        assert other == kept
    assert snapshot(raw) == before


def test_a_rewind_that_is_not_durable_leaves_the_live_list(
    db: SessionDB, history: list[dict[str, Any]]
) -> None:
    with failing_commit(db.engine), pytest.raises(Exception, match="injected"):
        db.rewind_user_turn("s", 0, warm_history=history)
    assert len(history) == 7
    assert len(live(db)) == 7


@pytest.mark.parametrize("ordinal", [3, -4, 2**63 - 1, -(2**63), 2**63, True, "1", 1.0, None])
def test_what_is_no_turn_is_refused(
    db: SessionDB, raw: RawSql, history: list[dict[str, Any]], ordinal: Any
) -> None:
    before = snapshot(raw)
    with pytest.raises(InvalidArgumentError) as caught:
        db.rewind_user_turn("s", ordinal, warm_history=history)
    assert caught.value.argument == "ordinal"
    assert (snapshot(raw), len(history)) == (before, 7)


def test_the_guards_of_a_rewind_hold(db: SessionDB, raw: RawSql, history: list[dict[str, Any]]) -> None:
    db.acquire_session_turn_lease("s", "somebody")
    with pytest.raises(LeaseHeldError):
        db.rewind_user_turn("s", -1)
    assert db.rewind_user_turn("s", -1, turn_lease_holder="somebody")["rewound_count"] == 2
    db.end_session("s", "compression")
    with pytest.raises(CompressionSessionClosedError):
        db.rewind_user_turn("s", -1)
    with pytest.raises(SessionNotFoundError):
        db.rewind_user_turn("?", -1)
    with pytest.raises(InvalidArgumentError):
        db.rewind_user_turn("s", -1, warm_history=("a",))  # type: ignore[arg-type]
    assert_counters_are_exact(raw)
