"""Loading a conversation: ancestors, stamps, repair (issue 3, item 2; known store, section 2.4; CONTRACT.md 5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hermes_state import PERSISTED_MARKER, SessionDB, TranscriptFlusher
from hermes_state import agent as agent_module
from hermes_state.alternation import repaired
from tests.support.builders import assistant, call, caller, carrier, contents_of, snapshot, user
from tests.support.raw import RawSql
from tests.support.statements import QueryRecorder

OpenDb = Callable[..., SessionDB]


def tool(call_id: str | None, content: str = "result") -> dict[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": call_id, "tool_name": "search"}


def load(db: SessionDB, session_id: str = "s", **options: Any) -> list[dict[str, Any]]:
    return [dict(message) for message in db.get_messages_as_conversation(session_id, **options)]


def chain(db: SessionDB, length: int) -> str:
    """Sessions c0, c1, ... each with a question of its own, each continued by the next; the last one's id."""
    db.create_session("c0", "cli")
    db.append_message("c0", "user", "question 0")
    for i in range(1, length):
        db.publish_continuation(f"c{i - 1}", f"c{i}", [assistant(f"summary {i}"), user(f"question {i}")])
    return f"c{length - 1}"


def test_row_ids_are_added_when_asked_for(db: SessionDB, session: str) -> None:
    messages = [user("a"), assistant("b")]
    db.append_messages_batch("s", messages)
    assert all("_row_id" not in message for message in load(db))
    assert [m["_row_id"] for m in load(db, include_row_ids=True)] == [m["_row_id"] for m in messages]
    assert set(load(db, include_row_ids=True)[0]) == {"role", "content", "timestamp", "_row_id"}


def test_ancestors_come_first_whatever_the_length_in_three_statements(
    db: SessionDB, statements: QueryRecorder
) -> None:
    tip = chain(db, 12)
    statements.clear()
    loaded = load(db, tip, include_ancestors=True)
    assert [m["content"] for m in loaded if m["role"] == "user"] == [f"question {i}" for i in range(12)]
    assert len(statements.texts) == 3


def test_ancestors_come_first_even_where_their_ids_are_higher(db: SessionDB, session: str) -> None:
    db.create_session("child", "cli", parent_session_id="s")
    db.append_message("child", "user", "second")
    db.append_message("s", "user", "first")
    assert [m["content"] for m in load(db, "child", include_ancestors=True)] == ["first", "second"]


def test_a_question_repeated_before_any_answer_comes_once(db: SessionDB, session: str) -> None:
    db.append_messages_batch("s", [user("q"), assistant("a"), user("again")])
    db.create_session("child", "cli", parent_session_id="s")
    db.append_messages_batch("child", [user("again"), assistant("b"), user("again")])
    loaded = load(db, "child", include_ancestors=True, include_row_ids=True)
    assert [m["content"] for m in loaded] == ["q", "a", "again", "b", "again"]


def test_loaded_dicts_can_come_stamped(db: SessionDB, raw: RawSql, session: str) -> None:
    db.append_messages_batch("s", [user("a", message_uid="u1"), carrier("x")])
    for message in load(db, stamped=True):
        row_id, uid = raw("SELECT id, message_uid FROM messages WHERE content = ?", message["content"])[0]
        assert message[PERSISTED_MARKER] == "s"
        assert (message["_row_id"], message["_message_uid"]) == (row_id, uid)
    assert agent_module.PERSISTED_MARKER == PERSISTED_MARKER


def test_a_resumed_agent_writes_nothing_twice(
    open_db: OpenDb, raw: RawSql, session: str, db: SessionDB
) -> None:
    db.append_messages_batch("s", [user("a"), caller("search"), tool("call_search"), carrier("x")])
    before = snapshot(raw)
    resumed = open_db()
    messages = load(resumed, stamped=True)
    flusher = TranscriptFlusher(resumed, "s")
    assert flusher.flush(messages) is True
    assert snapshot(raw) == before
    messages.append(user("next"))
    assert flusher.flush(messages) is True
    assert contents_of(raw) == ["a", None, "result", "answer x", "next"]


def test_an_agent_resumed_with_its_ancestors_writes_nothing_twice(db: SessionDB, raw: RawSql) -> None:
    tip = chain(db, 3)
    before = snapshot(raw)
    messages = load(db, tip, include_ancestors=True, stamped=True, repair_alternation=True)
    flusher = TranscriptFlusher(db, tip)
    assert flusher.flush(messages) is True
    assert flusher.flush(messages) is True
    assert snapshot(raw) == before


def test_an_edit_of_a_resumed_dict_updates_its_row(db: SessionDB, raw: RawSql, session: str) -> None:
    db.append_messages_batch("s", [user("a"), user("b")])
    messages = load(db, stamped=True)
    flusher = TranscriptFlusher(db, "s")
    messages[0]["content"] = "edited"
    flusher.mark_dirty(messages[0])
    assert flusher.flush(messages) is True
    assert contents_of(raw) == ["edited", "b"]


def test_inactive_rows_come_when_asked_for(db: SessionDB, session: str) -> None:
    db.append_messages_batch("s", [user("old"), assistant("older")])
    db.archive_and_compact("s", [user("summary")])
    assert [m["content"] for m in load(db)] == ["summary"]
    assert [m["content"] for m in load(db, include_inactive=True)] == ["old", "older", "summary"]


def test_user_messages_in_a_row_are_merged_without_losing_text(db: SessionDB, session: str) -> None:
    db.append_messages_batch(
        "s", [user("one"), user("two"), assistant("a"), user("three"), user(""), user(4)]
    )
    loaded = load(db, repair_alternation=True)
    assert [(m["role"], m["content"]) for m in loaded] == [
        ("user", "one\n\ntwo"),
        ("assistant", "a"),
        ("user", "three\n\n4"),
    ]
    assert len(load(db)) == 6


def test_tool_results_without_their_call_are_left_out(db: SessionDB, session: str) -> None:
    messages = [
        tool("call_lost", "before any call"),
        user("q"),
        caller("search", "read"),
        tool("call_search", "one"),
        tool("call_other", "of no call"),
        tool("call_read", "two"),
        assistant("a"),
        tool("call_search", "too late"),
        user("next"),
        tool(None, "of nothing"),
    ]
    db.append_messages_batch("s", messages)
    loaded = load(db, repair_alternation=True)
    assert [m["content"] for m in loaded] == ["q", None, "one", "two", "a", "next"]


def test_users_that_only_a_lost_result_parted_are_merged(db: SessionDB, session: str) -> None:
    db.append_messages_batch("s", [user("one"), tool("call_lost"), user("two")])
    assert [m["content"] for m in load(db, repair_alternation=True)] == ["one\n\ntwo"]


def test_a_merged_message_has_no_row_of_its_own_but_is_persisted(
    db: SessionDB, raw: RawSql, session: str
) -> None:
    db.append_messages_batch("s", [user("one"), user("two"), assistant("a")])
    before = snapshot(raw)
    merged, answer = load(db, repair_alternation=True, stamped=True)
    assert "_row_id" not in merged
    assert "_message_uid" not in merged
    assert isinstance(answer["_row_id"], int)
    assert TranscriptFlusher(db, "s").flush([merged, answer]) is True
    assert snapshot(raw) == before


@pytest.mark.parametrize(
    ("first", "second", "merged"),
    [
        (
            "a",
            [{"type": "text", "text": "b"}],
            [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        ),
        ([{"type": "image_url"}], "b", [{"type": "image_url"}, {"type": "text", "text": "b"}]),
        ({"type": "image_url"}, 5, [{"type": "image_url"}, {"type": "text", "text": "5"}]),
        (None, "b", "b"),
        ("a", None, "a"),
        (None, None, None),
        (0, 1.5, "0\n\n1.5"),
    ],
)
def test_contents_of_any_form_can_be_merged(first: Any, second: Any, merged: Any) -> None:
    given: list[Any] = [user(first), user(second)]
    before = [dict(message) for message in given]
    assert [m["content"] for m in repaired(given)] == [merged]
    assert given == before


def test_the_text_that_was_sent_is_merged_with_the_content_of_the_other() -> None:
    given: list[Any] = [user("a", api_content="A"), user("b"), user("c", api_content="C")]
    (merged,) = repaired(given)
    assert (merged["content"], merged["api_content"]) == ("a\n\nb\n\nc", "A\n\nb\n\nC")


def test_a_text_that_was_sent_is_left_out_where_it_would_hide_parts() -> None:
    parts = [{"type": "image_url"}]
    given: list[Any] = [user("a", api_content="A"), user(parts)]
    (merged,) = repaired(given)
    assert "api_content" not in merged
    assert merged["content"] == [{"type": "text", "text": "a"}, *parts]


def test_a_merged_message_keeps_the_keys_of_the_first_and_is_observed_only_if_all_were() -> None:
    given: list[Any] = [
        user("a", timestamp=1.0, observed=True),
        user("b", timestamp=2.0, message_id="7"),
        assistant("x"),
        user("c", observed=True),
        user("d", observed=True),
    ]
    first, _, last = repaired(given)
    assert first == {"role": "user", "content": "a\n\nb", "timestamp": 1.0, "message_id": "7"}
    assert last == {"role": "user", "content": "c\n\nd", "observed": True}


def test_calls_are_known_by_either_of_their_ids() -> None:
    given: list[Any] = [
        assistant(None, tool_calls=[{**call("x"), "call_id": "alias"}]),
        tool("alias"),
        tool("call_x"),
        assistant(None, tool_calls={"id": "single"}),
        tool("single"),
        assistant(None, tool_calls=["odd", {"id": 5}]),
        tool("odd"),
    ]
    assert len(repaired(given)) == 6
