"""Single facts about a session and its messages (issue 3, items 2 and 3; known store, sections 2.3 and 2.4)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from hermes_state import (
    CooldownSnapshot,
    InvalidArgumentError,
    RewindConflictError,
    SessionDB,
    SessionTooLargeError,
)
from tests.support.builders import REPLACEMENT, assistant, carrier, reasoning, user
from tests.support.raw import RawSql


def fill(db: SessionDB, *messages: dict[str, Any], session_id: str = "s") -> list[int]:
    db.append_messages_batch(session_id, list(messages))
    return [int(message["_row_id"]) for message in messages]


def tool(content: str = "result") -> dict[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": "call_1"}


def test_the_active_ids_are_those_of_the_live_rows_in_order(db: SessionDB, raw: RawSql, session: str) -> None:
    ids = fill(db, user("a", timestamp=9.0), assistant("b", timestamp=3.0), user("c"), assistant("d"))
    raw("UPDATE messages SET active = ?, compacted = ? WHERE id = ?", False, True, ids[0])
    raw("UPDATE messages SET active = ? WHERE id = ?", False, ids[3])
    assert db.get_active_message_ids("s") == ids[1:3]
    assert [db.get_active_message_ids(unknown) for unknown in ("?", "", "a\x00")] == [[], [], []]


def test_every_reader_keeps_the_order_of_insertion_after_old_rows_were_rewritten(
    db: SessionDB, session: str
) -> None:
    ids = fill(db, *[carrier(str(n), reasoning(str(n)), timestamp=100.0 - n) for n in range(6)])
    db.set_message_api_content("s", ids[0], "rewritten last")
    assert db.get_active_message_ids("s") == ids
    assert [m["id"] for m in db.get_messages("s", include_compacted=True, offset=2)] == ids[2:]
    model, display = db.get_resume_conversations("s")
    expected = [f"answer {n}" for n in range(6)]
    assert [m["content"] for m in model] == [m["content"] for m in display] == expected
    shown = db.get_messages_as_conversation("s", include_compacted=True)
    assert [m["content"] for m in shown] == expected


def test_the_active_ids_pin_a_rewind(db: SessionDB, session: str) -> None:
    ids = fill(db, user("a"), assistant("b"))
    pinned = db.get_active_message_ids("s")
    fill(db, user("meanwhile"))
    with pytest.raises(RewindConflictError):
        db.rewind_to_message("s", ids[0], expected_active_ids=pinned)
    again = db.get_active_message_ids("s")
    assert db.rewind_to_message("s", ids[0], expected_active_ids=again)["rewound_count"] == 3
    assert db.get_active_message_ids("s") == []


def test_the_role_is_that_of_a_row_of_this_session(db: SessionDB, session: str) -> None:
    db.create_session("other", "cli")
    (mine, answer), (foreign,) = fill(db, user(), assistant()), fill(db, user(), session_id="other")
    db.rewind_to_message("s", mine)
    assert db.get_message_role("s", mine) == "user"
    assert db.get_message_role("s", answer) == "assistant"
    for session_id, row_id in (("s", foreign), ("s", 0), ("s", -1), ("s", 2**63), ("?", mine), ("", mine)):
        assert db.get_message_role(session_id, row_id) is None


@pytest.mark.parametrize("row_id", ["1", True, 1.0, None])
def test_what_is_no_row_id_is_refused(db: SessionDB, session: str, row_id: Any) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        db.get_message_role("s", row_id)
    assert caught.value.argument == "row_id"


def test_the_latest_role_is_that_of_the_newest_live_word_of_either_side(db: SessionDB, session: str) -> None:
    assert db.latest_conversation_role("s") is None
    fill(db, {"role": "system", "content": "rules"}, tool())
    assert db.latest_conversation_role("s") is None
    (question,) = fill(db, user("a", timestamp=100.0))
    assert db.latest_conversation_role("s") == "user"
    fill(db, assistant("b", timestamp=1.0), tool(), {"role": "session_meta", "content": "x"})
    assert db.latest_conversation_role("s") == "assistant"
    db.rewind_to_message("s", question)
    assert db.latest_conversation_role("s") is None
    assert db.latest_conversation_role("?") is None


def test_the_resume_count_is_what_the_resume_guard_counts(db: SessionDB, session: str) -> None:
    fill(db, user("a"), assistant("b"), user("c"))
    db.end_session("s", "compression")
    db.create_session("child", "cli", parent_session_id="s")
    fill(db, user("d"), session_id="child")
    for include_ancestors, expected in ((False, 1), (True, 4)):
        count = db.get_resume_message_count("child", include_ancestors=include_ancestors)
        assert count == expected
        db.assert_resume_safe("child", count, include_ancestors=include_ancestors)
    with pytest.raises(SessionTooLargeError):
        db.assert_resume_safe("child", 3, include_ancestors=True)
    assert db.get_resume_message_count("?") == 0
    assert db.get_resume_message_count("", include_ancestors=True) == 0


def chain(db: SessionDB, *ids: str) -> None:
    """Each session continues the one before it, which compression has ended."""
    for parent, child in itertools.pairwise(ids):
        db.end_session(parent, "compression")
        db.create_session(child, "cli", parent_session_id=parent)


def test_the_live_child_is_the_only_open_continuation_of_a_compressed_parent(
    db: SessionDB, session: str
) -> None:
    assert db.find_live_compression_child("s") is None
    db.create_session("early", "cli", parent_session_id="s")
    assert db.find_live_compression_child("s") is None, "the parent is open"
    db.end_session("s", "compression")
    assert db.find_live_compression_child("s") == "early"
    db.create_session("twin", "cli", parent_session_id="s")
    assert db.find_live_compression_child("s") is None, "two are open"
    db.end_session("early", "agent_close")
    assert db.find_live_compression_child("s") == "twin"
    db.end_session("twin", "compression")
    assert db.find_live_compression_child("s") is None, "none is open"
    assert db.find_live_compression_child("?") is None


def test_forks_are_no_live_child(db: SessionDB, session: str) -> None:
    db.create_branch("s", "branch")
    db.end_session("s", "compression")
    db.create_session("delegate", "cli", parent_session_id="s", model_config={"_delegate_from": "s"})
    db.create_session("reset", "cli", parent_session_id="s", model_config={"_reset_from": "s"})
    db.create_session("tool", "tool", parent_session_id="s")
    assert db.find_live_compression_child("s") is None
    db.create_session("child", "cli", parent_session_id="s")
    assert db.find_live_compression_child("s") == "child"


def test_forks_are_told_from_continuations(db: SessionDB, session: str) -> None:
    db.create_branch("s", "branch")
    db.create_session("delegate", "cli", parent_session_id="s", model_config={"_delegate_from": "s"})
    db.create_session("reset", "cli", parent_session_id="s", model_config={"_reset_from": "s"})
    db.create_session("tool", "tool", parent_session_id="s")
    db.create_session("child", "cli", parent_session_id="s")
    forks = [
        name
        for name in ("s", "branch", "delegate", "reset", "tool", "child", "?", "")
        if db.is_explicit_fork_child(name)
    ]
    assert forks == ["branch", "delegate", "reset"]


def test_the_chain_goes_from_its_first_session_to_its_live_end(db: SessionDB, session: str) -> None:
    chain(db, "s", "b", "c")
    db.create_branch("c", "aside")
    for start in ("s", "b", "c"):
        assert db.get_compression_chain(start) == ["s", "b", "c"]
    assert db.get_compression_chain("aside") == ["aside"]
    assert db.get_compression_chain("?") == []


def test_a_circle_of_compressed_sessions_ends(db: SessionDB, raw: RawSql, session: str) -> None:
    chain(db, "s", "b", "c")
    raw(
        "UPDATE sessions SET parent_session_id = 'c', kind = 'continuation', end_reason = 'compression'"
        " WHERE id = 's'"
    )
    assert sorted(db.get_compression_chain("b")) == ["b", "c", "s"]
    assert db.find_live_compression_child("b") == "c"
    assert not db.is_explicit_fork_child("s")


def test_only_what_compression_did_not_close_is_opened_again(
    db: SessionDB, raw: RawSql, session: str
) -> None:
    assert not db.reopen_if_explicitly_closed("s"), "it is open"
    db.end_session("s", "user_exit")
    assert db.reopen_if_explicitly_closed("s")
    assert raw("SELECT ended_at, end_reason FROM sessions") == [(None, None)]
    raw("UPDATE sessions SET ended_at = 5.0")
    assert db.reopen_if_explicitly_closed("s"), "another program named no reason"
    db.end_session("s", "compression")
    before = raw("SELECT ended_at, end_reason FROM sessions")
    assert not db.reopen_if_explicitly_closed("s")
    assert raw("SELECT ended_at, end_reason FROM sessions") == before
    assert [db.reopen_if_explicitly_closed(unknown) for unknown in ("?", "", "\x00")] == [False] * 3


def test_a_cool_down_is_put_back_exactly(db: SessionDB, raw: RawSql, session: str) -> None:
    stored = "SELECT compression_failure_cooldown_until, compression_failure_error FROM sessions"
    empty = db.snapshot_compression_failure_cooldown("s")
    assert isinstance(empty, CooldownSnapshot)
    assert [*empty] == [None, None]
    db.record_compression_failure_cooldown("s", 100.5, "past\x00")
    past = db.snapshot_compression_failure_cooldown("s")
    assert isinstance(past, CooldownSnapshot)
    assert [*past] == [100.5, f"past{REPLACEMENT}"]
    assert db.get_compression_failure_cooldown("s") is None
    db.record_compression_failure_cooldown("s", 4e9, "later")
    for snapshot in (past, empty):
        db.restore_compression_failure_cooldown("s", snapshot)
        assert raw(stored) == [tuple(snapshot)]
    with pytest.raises(InvalidArgumentError):
        db.restore_compression_failure_cooldown("s", CooldownSnapshot(float("nan"), None))
    assert db.snapshot_compression_failure_cooldown("?") is None
    db.restore_compression_failure_cooldown("?", past)
    assert raw(stored) == [tuple(empty)]


def test_hidden_messages_are_no_recent_questions(db: SessionDB, session: str) -> None:
    shown, hidden, other = fill(
        db, user("shown"), user("scaffolding", display_kind="hidden"), user("steer", display_kind="steer")
    )
    assert [found["id"] for found in db.list_recent_user_messages("s")] == [other, shown]
    assert [found["id"] for found in db.list_recent_user_messages("s", include_inactive=True)] == [
        other,
        shown,
    ]
    assert db.get_message_role("s", hidden) == "user"


def test_bytes_that_another_program_stored_read_as_text(
    db: SessionDB, raw: RawSql, session: str, backend: str
) -> None:
    fill(db, user("a"))
    value: Any = b"role \xff" if backend == "sqlite" else f"role {REPLACEMENT}"
    raw("INSERT INTO messages (session_id, role, content) VALUES ('s', ?, ?)", value, value)
    row = db.get_active_message_ids("s")[-1]
    assert db.get_message_role("s", row) == f"role {REPLACEMENT}"
    assert db.set_message_reaction("s", row, "x")
    (taken,) = db.take_unseen_reactions("s")
    assert taken["role"] == f"role {REPLACEMENT}"
    assert db.get_resume_conversations("s").display[-1]["content"] == f"role {REPLACEMENT}"
    assert db.set_message_api_content("s", row, "sent")
