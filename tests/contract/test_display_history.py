"""The history as a person sees it: each message once, over compactions and continuations (issue 3, item 2; F1, G1)."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_state import PERSISTED_MARKER, InvalidArgumentError, SessionDB, TranscriptFlusher
from tests.support.builders import assistant, carrier, snapshot, user
from tests.support.raw import RawSql
from tests.support.statements import QueryRecorder


def turns(db: SessionDB, *names: str, session_id: str = "s") -> None:
    for name in names:
        db.append_messages_batch(session_id, [user(f"q{name}"), assistant(f"a{name}")])


def texts(messages: Any) -> list[Any]:
    return [message["content"] for message in messages]


def compact(db: SessionDB, summary: str, tail_count: int) -> None:
    tail = db.get_messages("s")[-tail_count:] if tail_count else []
    db.archive_and_compact("s", [user(summary), *tail], tail_count=tail_count)


def hand_over(db: SessionDB, parent: str, child: str, tail_count: int) -> None:
    tail = db.get_messages(parent)[-tail_count:]
    db.publish_continuation(parent, child, [user("summary"), *tail])


def test_a_message_carried_through_compactions_is_displayed_once(db: SessionDB, session: str) -> None:
    turns(db, "1", "2", "3")
    for number in range(3):
        compact(db, f"summary {number}", 4 if number < 2 else 1)
    shown = texts(db.get_messages("s", include_compacted=True))
    assert sorted(shown) == sorted(
        ["q1", "a1", "q2", "a2", "q3", "a3", "summary 0", "summary 1", "summary 2"]
    )
    assert shown[:3] == ["q1", "a1", "summary 0"]
    assert texts(db.get_messages("s")) == ["summary 2", "a3"]
    assert len(db.get_messages("s", include_inactive=True)) > len(shown)


def test_the_displayed_history_is_paged_by_offset(db: SessionDB, session: str) -> None:
    turns(db, "1", "2", "3")
    compact(db, "summary", 2)
    shown = texts(db.get_messages("s", include_compacted=True))
    assert len(shown) == 7
    for size in (1, 3, 7, 9):
        pages = [
            texts(db.get_messages("s", include_compacted=True, limit=size, offset=start))
            for start in range(0, 10, size)
        ]
        assert [text for page in pages for text in page] == shown
    assert texts(db.get_messages("s", include_compacted=True, offset=5)) == shown[5:]
    assert texts(db.get_messages("s", include_compacted=True, latest=True, limit=2, offset=1)) == shown[-3:-1]
    assert texts(db.get_messages("s", include_compacted=True, latest=True, offset=5)) == shown[:2]
    assert db.get_messages("s", include_compacted=True, offset=2**63 - 1) == []


@pytest.mark.parametrize("other", [{"after_id": 1}, {"before_id": 9}])
def test_an_offset_goes_with_no_id(db: SessionDB, session: str, other: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        db.get_messages("s", offset=1, **other)
    assert caught.value.argument == "offset"


@pytest.mark.parametrize("offset", [-1, True, "1", 1.0, None, 2**63])
def test_what_is_no_offset_is_refused(db: SessionDB, session: str, offset: Any) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        db.get_messages("s", offset=offset)
    assert caught.value.argument == "offset"


def test_a_resume_has_the_live_messages_and_the_whole_history(db: SessionDB, session: str) -> None:
    turns(db, "1", "2")
    compact(db, "summary", 2)
    turns(db, "3")
    model, display = db.get_resume_conversations("s")
    assert texts(model) == ["summary", "q2", "a2", "q3", "a3"]
    assert texts(display) == ["q1", "a1", "summary", "q2", "a2", "q3", "a3"]
    assert db.get_resume_conversations("s").model == db.get_messages_as_conversation("s", stamped=True)


def test_the_history_goes_over_continuations_and_shows_their_copies_where_it_goes_on(
    db: SessionDB, session: str
) -> None:
    turns(db, "1", "2")
    hand_over(db, "s", "b", 2)
    turns(db, "3", session_id="b")
    hand_over(db, "b", "c", 2)
    turns(db, "4", session_id="c")
    model, display = db.get_resume_conversations("c")
    assert texts(model) == ["summary", "q3", "a3", "q4", "a4"]
    assert texts(display) == ["q1", "a1", "summary", "q2", "a2", "summary", "q3", "a3", "q4", "a4"]
    prefix = db.get_ancestor_display_prefix("c")
    assert prefix == display[:5]
    assert {message[PERSISTED_MARKER] for message in prefix} == {"s", "b"}  # type: ignore[literal-required]
    assert db.get_ancestor_display_prefix("s") == []


def test_what_was_taken_back_does_not_come_back_from_the_session_before(db: SessionDB, session: str) -> None:
    turns(db, "1", "2")
    hand_over(db, "s", "b", 2)
    question = db.list_recent_user_messages("b", limit=1)[0]["id"]
    db.rewind_to_message("b", question)
    assert texts(db.get_resume_conversations("b").display) == ["q1", "a1", "summary"]
    assert texts(db.get_ancestor_display_prefix("b")) == ["q1", "a1"]


def test_the_model_too_is_sent_each_message_of_the_ancestors_once(db: SessionDB, session: str) -> None:
    turns(db, "1", "2")
    hand_over(db, "s", "b", 2)
    turns(db, "3", session_id="b")
    sent = db.get_messages_as_conversation("b", include_ancestors=True)
    assert texts(sent) == ["q1", "a1", "summary", "q2", "a2", "q3", "a3"]
    db.rewind_to_message("b", db.get_active_message_ids("b")[1])
    assert texts(db.get_messages_as_conversation("b", include_ancestors=True)) == ["q1", "a1", "summary"]
    everything = db.get_messages_as_conversation("b", include_ancestors=True, include_inactive=True)
    assert texts(everything).count("a2") == 2


def test_a_conversation_may_hold_what_was_summarised_away(db: SessionDB, session: str) -> None:
    turns(db, "1", "2")
    compact(db, "summary", 2)
    db.rewind_to_message("s", db.append_message("s", "user", "taken back"))
    assert texts(db.get_messages_as_conversation("s")) == ["summary", "q2", "a2"]
    shown = db.get_messages_as_conversation("s", include_compacted=True)
    assert texts(shown) == ["q1", "a1", "summary", "q2", "a2"]
    hand_over(db, "s", "b", 1)
    over_both = db.get_messages_as_conversation("b", include_ancestors=True, include_compacted=True)
    # The hand-off repeats the summary, which nobody has answered meanwhile: ``a2`` stands behind it now.
    assert texts(over_both) == ["q1", "a1", "summary", "q2", "a2"]


def test_late_messages_are_shown_in_the_session_they_went_to(db: SessionDB, session: str) -> None:
    turns(db, "1")
    watermark = db.get_active_message_watermark("s")
    turns(db, "late")
    db.publish_compression_child("s", "b", [user("summary")], watermark=watermark)
    assert texts(db.get_resume_conversations("b").display) == ["q1", "a1", "summary", "qlate", "alate"]
    assert texts(db.get_ancestor_display_prefix("b")) == ["q1", "a1"]


def test_branches_and_forks_have_no_prefix(db: SessionDB, session: str) -> None:
    turns(db, "1")
    db.create_branch("s", "branch")
    db.create_session("delegate", "cli", parent_session_id="s", model_config={"_delegate_from": "s"})
    for fork in ("branch", "delegate", "?", ""):
        assert db.get_ancestor_display_prefix(fork) == []
    assert texts(db.get_resume_conversations("branch").display) == ["q1", "a1"]
    assert db.get_resume_conversations("?") == ([], [])
    assert db.get_resume_conversations("") == ([], [])


def test_scaffolding_is_sent_but_not_shown(db: SessionDB, session: str) -> None:
    db.append_messages_batch("s", [user("scaffold", display_kind="hidden"), user("steer", display_kind="x")])
    model, display = db.get_resume_conversations("s")
    assert texts(model) == ["scaffold", "steer"]
    assert texts(display) == ["steer"]


def test_a_resumed_agent_writes_nothing_twice(db: SessionDB, raw: RawSql, session: str) -> None:
    turns(db, "1")
    db.append_messages_batch("s", [carrier("1"), carrier("2")])
    before = snapshot(raw)
    messages: list[Any] = [*db.get_resume_conversations("s").model]
    assert TranscriptFlusher(db, "s").flush(messages)
    assert snapshot(raw) == before


def test_alternation_is_repaired_for_the_model_alone(db: SessionDB, session: str) -> None:
    db.append_messages_batch("s", [user("a"), user("b"), assistant("c")])
    model, display = db.get_resume_conversations("s", repair_alternation=True)
    assert len(model) == 2
    assert texts(display) == ["a", "b", "c"]


def test_rows_of_other_programs_and_a_circle_of_parents_end(
    db: SessionDB, raw: RawSql, session: str, backend: str
) -> None:
    turns(db, "1")
    db.create_session("b", "cli", parent_session_id="s")
    raw("UPDATE sessions SET parent_session_id = 'b', kind = 'continuation' WHERE id = 's'")
    broken = "{broken" if backend == "sqlite" else "[1]"
    raw("INSERT INTO messages (session_id, content, display_metadata) VALUES ('b', 'odd', ?)", broken)
    assert texts(db.get_resume_conversations("b").display)[-1] == "odd"
    assert texts(db.get_ancestor_display_prefix("b")) == ["q1", "a1"]


def test_a_resume_takes_the_same_few_statements_whatever_the_length(
    db: SessionDB, session: str, statements: QueryRecorder
) -> None:
    turns(db, *map(str, range(50)))
    hand_over(db, "s", "b", 10)
    hand_over(db, "b", "c", 10)
    statements.clear()
    db.get_resume_conversations("c")
    assert len(statements.texts) == 3
    assert all("session_id" in text for text in statements.texts)


def test_verbs_have_the_names_of_the_known_store_too(db: SessionDB, raw: RawSql, session: str) -> None:
    turns(db, "1", "2")
    ids = db.get_active_message_ids("s")
    assert db.delete_session_messages("s", ids[:1]) == 1
    assert db.clear_session_messages("s", keep_last_n=1) == 2
    assert texts(db.get_messages("s")) == ["a2"]
    assert db.publish_compression_child("s", "b", [user("summary")]) == "b"
    assert raw.value("SELECT end_reason FROM sessions WHERE id = 's'") == "compression"
