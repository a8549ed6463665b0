"""CONTRACT.md section 5, rules 1, 2 and 6: what a flush writes, stamps and leaves alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from hermes_state import PERSISTED_MARKER, InvalidArgumentError, SessionDB, TranscriptFlusher
from tests.support.builders import (
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
from tests.support.statements import QueryRecorder

KEY = "codex_reasoning_items"


@pytest.fixture
def flusher(db: SessionDB, session: str) -> TranscriptFlusher:
    return TranscriptFlusher(db, session)


def test_one_flush_is_one_batch_in_one_transaction(
    flusher: TranscriptFlusher, statements: QueryRecorder, raw: RawSql
) -> None:
    statements.clear()
    assert flusher.flush([user("1"), caller("a", "b"), user("3")])
    assert len(statements.matching("INSERT INTO messages")) == 1
    assert len(statements.texts) == 2
    assert contents_of(raw) == ["1", None, "3"]
    assert_counters_are_exact(raw)


def test_the_dicts_learn_marker_row_and_time(flusher: TranscriptFlusher, raw: RawSql) -> None:
    messages = [user("1"), assistant("2", timestamp=5)]
    assert flusher.flush(messages)
    rows = raw("SELECT id, timestamp, message_uid FROM messages ORDER BY id")
    assert [(m["_row_id"], m["timestamp"], m["_message_uid"]) for m in messages] == rows
    assert [m[PERSISTED_MARKER] for m in messages] == ["s", "s"]
    assert rows[1][1] == 5.0


def test_the_callers_uid_is_used_and_no_other_is_given(flusher: TranscriptFlusher, raw: RawSql) -> None:
    message = user(message_uid="mine")
    assert flusher.flush([message])
    assert raw.column("SELECT message_uid FROM messages") == ["mine"]
    assert "_message_uid" not in message


@pytest.mark.parametrize("messages", [[], [user()], [user(), carrier("a"), "no dict", {"_ephemeral": True}]])
def test_a_flush_with_nothing_new_sends_no_statement(
    flusher: TranscriptFlusher, statements: QueryRecorder, messages: list[Any]
) -> None:
    assert flusher.flush(messages)
    statements.clear()
    before = copy.deepcopy(messages)
    assert flusher.flush(messages)
    assert statements.texts == []
    assert messages == before


def test_each_flush_writes_only_what_is_new(flusher: TranscriptFlusher, raw: RawSql) -> None:
    messages: list[Any] = []
    for turn in range(4):
        messages += [user(f"q{turn}"), assistant(f"a{turn}")]
        assert flusher.flush(messages)
    assert contents_of(raw) == ["q0", "a0", "q1", "a1", "q2", "a2", "q3", "a3"]
    assert_counters_are_exact(raw)


def test_a_list_that_became_shorter_or_another_list_loses_nothing(
    flusher: TranscriptFlusher, raw: RawSql
) -> None:
    messages = [user("1"), assistant("2"), user("3")]
    assert flusher.flush(messages)
    assert flusher.flush([messages[2], assistant("4")])
    assert contents_of(raw) == ["1", "2", "3", "4"]


def test_equal_dicts_are_two_messages_and_one_dict_twice_is_one(
    flusher: TranscriptFlusher, raw: RawSql
) -> None:
    same = user("same")
    assert flusher.flush([user("same"), same, same])
    assert contents_of(raw) == ["same", "same"]
    assert_counters_are_exact(raw)


def test_history_is_stamped_by_identity_and_not_written(
    flusher: TranscriptFlusher, statements: QueryRecorder, raw: RawSql
) -> None:
    history = [user("old"), assistant("old")]
    statements.clear()
    assert flusher.flush(history, conversation_history=history)
    assert statements.texts == []
    assert [m[PERSISTED_MARKER] for m in history] == ["s", "s"]
    assert flusher.flush([*history, user("new")], history)
    assert flusher.flush([*history, user("old")])
    assert contents_of(raw) == ["new", "old"]


def test_an_equal_dict_that_is_not_the_same_is_no_history(flusher: TranscriptFlusher, raw: RawSql) -> None:
    assert flusher.flush([user("x")], conversation_history=[user("x"), "no dict"])
    assert contents_of(raw) == ["x"]


def test_history_is_history_even_with_a_foreign_marker(flusher: TranscriptFlusher, raw: RawSql) -> None:
    history = [user("old", **{PERSISTED_MARKER: "elsewhere"})]
    assert flusher.flush(history, history)
    assert raw("SELECT 1 FROM messages") == []
    assert history[0][PERSISTED_MARKER] == "s"


def test_scaffolding_and_what_is_no_dict_are_skipped(flusher: TranscriptFlusher, raw: RawSql) -> None:
    scaffold = user("scaffold", _ephemeral=True)
    messages: list[Any] = [None, "text", 5, ["list"], scaffold, user("kept", _ephemeral=False)]
    assert flusher.flush(messages)
    assert contents_of(raw) == ["kept"]
    assert scaffold == user("scaffold", _ephemeral=True)


def test_a_marker_of_another_lineage_counts_as_new(
    db: SessionDB, flusher: TranscriptFlusher, raw: RawSql
) -> None:
    db.create_session("other", "cli")
    messages = [user("1"), user("unknown", **{PERSISTED_MARKER: "never created"})]
    assert TranscriptFlusher(db, "other").flush(messages[:1])
    assert flusher.flush(messages)
    assert flusher.flush(messages)
    assert contents_of(raw, "s") == ["1", "unknown"]
    assert contents_of(raw, "other") == ["1"]
    assert [m[PERSISTED_MARKER] for m in messages] == ["s", "s"]


@pytest.mark.parametrize("ask_from", ["parent", "child"])
def test_a_marker_of_the_own_lineage_counts_as_written(db: SessionDB, raw: RawSql, ask_from: str) -> None:
    db.create_session("parent", "cli")
    messages = [user("1")]
    assert TranscriptFlusher(db, "parent").flush(messages)
    db.end_session("parent", "compression")
    db.create_session("child", "cli", parent_session_id="parent")
    messages[0][PERSISTED_MARKER] = "parent" if ask_from == "child" else "child"
    assert TranscriptFlusher(db, ask_from).flush(messages)
    assert raw.column("SELECT session_id FROM messages") == ["parent"]


def test_after_a_carrier_the_live_list_reads_as_its_rows(
    db: SessionDB, flusher: TranscriptFlusher, raw: RawSql
) -> None:
    messages = [user("1"), carrier("a", reasoning("ra")), user("3")]
    assert flusher.flush(messages)
    messages += [carrier("b"), carrier("c", reasoning("rc"))]
    assert flusher.flush(messages)
    assert items_of(raw) == [None, [reasoning("ra")], None, None, [reasoning("rc"), checkpoint("c")]]
    assert [m.get(KEY) for m in messages] == items_of(raw)
    assert KEY not in messages[3]
    assert all(m[PERSISTED_MARKER] == "s" for m in messages)
    assert_live_equals_rows(db, messages)


@pytest.mark.parametrize("as_text", [False, True])
def test_a_carrier_in_any_form_shadows_the_older_ones(
    flusher: TranscriptFlusher, raw: RawSql, as_text: bool
) -> None:
    messages = [carrier("a"), assistant(codex_reasoning_items=(checkpoint("b"),))]
    if as_text:
        messages[1][KEY] = '"[{\\"type\\": \\"compaction\\"}]"'
    assert flusher.flush(messages[:1])
    assert flusher.flush(messages)
    assert items_of(raw)[0] is None
    assert KEY not in messages[0]


def test_checkpoints_of_the_history_are_dropped_too(flusher: TranscriptFlusher) -> None:
    history = [carrier("old")]
    messages = [*history, carrier("new")]
    assert flusher.flush(messages, history)
    assert KEY not in history[0]


def test_dicts_that_are_not_persisted_keep_their_checkpoints(flusher: TranscriptFlusher) -> None:
    scaffold = carrier("scaffold", _ephemeral=True)
    assert flusher.flush([scaffold, carrier("new")])
    assert scaffold[KEY] == [checkpoint("scaffold")]


def test_a_flush_without_a_carrier_changes_no_older_dict(
    flusher: TranscriptFlusher, statements: QueryRecorder
) -> None:
    messages = [carrier("a")]
    assert flusher.flush(messages)
    statements.clear()
    messages.append(user())
    assert flusher.flush(messages)
    assert messages[0][KEY] == [checkpoint("a")]
    assert statements.matching("SET codex_reasoning_items") == []


def test_keys_that_role_gating_drops_stay_on_the_dict(flusher: TranscriptFlusher, raw: RawSql) -> None:
    message = user(codex_reasoning_items=[checkpoint()], reasoning="why")
    assert flusher.flush([message, carrier("b")])
    assert (message[KEY], message["reasoning"]) == ([checkpoint()], "why")
    assert items_of(raw)[0] is None


def test_an_edited_dict_updates_its_row_after_mark_dirty(flusher: TranscriptFlusher, raw: RawSql) -> None:
    messages = [user("old"), caller("a"), user("untouched")]
    assert flusher.flush(messages)
    row_id = messages[1]["_row_id"]
    messages[1]["tool_calls"] = []
    messages[1]["content"] = "edited"
    flusher.mark_dirty(messages[1])
    assert PERSISTED_MARKER not in messages[1]
    assert flusher.flush(messages)
    assert raw("SELECT id, content, tool_calls FROM messages WHERE content = 'edited'") == [
        (row_id, "edited", None)
    ]
    assert contents_of(raw) == ["old", "edited", "untouched"]
    assert_counters_are_exact(raw)


def test_a_dirty_dict_of_the_history_is_written(
    db: SessionDB, flusher: TranscriptFlusher, raw: RawSql
) -> None:
    db.append_message("s", "user", "old")
    history: list[dict[str, Any]] = [dict(row) for row in db.get_messages("s")]
    history[0]["content"] = "edited"
    flusher.mark_dirty(history[0])
    assert flusher.flush(history, history)
    assert contents_of(raw) == ["edited"]


def test_marking_without_an_edit_changes_no_row(flusher: TranscriptFlusher, raw: RawSql) -> None:
    messages = [user("1"), carrier("a")]
    assert flusher.flush(messages)
    before = snapshot(raw)
    flusher.mark_dirty(messages[0])
    assert flusher.flush(messages)
    assert snapshot(raw) == before


def test_a_dirty_dict_whose_row_is_gone_is_inserted(
    db: SessionDB, flusher: TranscriptFlusher, raw: RawSql
) -> None:
    messages = [user("1"), user("2")]
    assert flusher.flush(messages)
    db.clear_messages("s")
    flusher.mark_dirty(messages[0])
    assert flusher.flush(messages)
    assert contents_of(raw) == ["1"]
    assert_counters_are_exact(raw)


def test_a_checkpoint_edited_into_a_shadowed_dict_is_dropped_again(
    db: SessionDB, flusher: TranscriptFlusher, raw: RawSql
) -> None:
    messages = [assistant("1"), carrier("b")]
    assert flusher.flush(messages)
    messages[0][KEY] = [reasoning(), checkpoint("a")]
    flusher.mark_dirty(messages[0])
    assert flusher.flush(messages)
    assert items_of(raw) == [[reasoning()], [checkpoint("b")]]
    assert_live_equals_rows(db, messages)


def assert_live_equals_rows(db: SessionDB, messages: list[dict[str, Any]]) -> None:
    """Every dict of the live list reads exactly as its row; the row lacks nothing and adds nothing."""
    rows: list[dict[str, Any]] = [dict(row) for row in db.get_messages("s")]
    assert len(rows) == len(messages)
    for row, message in zip(rows, messages, strict=True):
        assert row["id"] == message["_row_id"]
        known = {key: row[key] for key in row if row[key] is not None and key in message}
        assert known == {
            key: value for key, value in message.items() if not key.startswith("_") and value is not None
        }
        assert (KEY in message) == (row["codex_reasoning_items"] is not None)


def test_an_edited_history_dict_that_knows_no_row_is_refused_not_stored_twice(
    db: SessionDB, session: str, raw: RawSql
) -> None:
    db.append_message(session, "user", "old")
    history = db.get_messages_as_conversation(session)
    flusher = TranscriptFlusher(db, session)
    assert flusher.flush(history, history)
    with pytest.raises(InvalidArgumentError, match="stamped"):
        flusher.mark_dirty(dict(history[0]))
    assert flusher.flush(history, history)
    assert raw.column("SELECT content FROM messages") == ["old"]


def test_an_edited_stamped_history_dict_updates_its_row(db: SessionDB, session: str, raw: RawSql) -> None:
    db.append_message(session, "user", "old")
    history: list[Any] = list(db.get_messages_as_conversation(session, stamped=True))
    flusher = TranscriptFlusher(db, session)
    history[0]["content"] = "new"
    flusher.mark_dirty(history[0])
    assert flusher.flush(history, history)
    assert raw.column("SELECT content FROM messages") == ["new"]


def test_a_flushed_dict_reads_as_its_row(db: SessionDB, session: str) -> None:
    odd: dict[str, Any] = {
        "role": "assistant",
        "content": "h\0i \ud800",
        "tool_calls": '[{"id": 1}]',
        "display_metadata": {},
        "reasoning_details": ({"n": (1, 2)},),
        "message_id": "p\N{SNOWMAN}",
        "foo": (1, {"k\0": "v\0"}),
        "k\0": 1,
        "observed": 1,
        "_private": (1, 2),
    }
    gated: dict[str, Any] = {"role": "user", "content": ["a", ("b",)], "reasoning": "stays on the dict"}
    assert TranscriptFlusher(db, session).flush([odd, gated])
    rows = db.get_messages(session)
    for live, row in zip([odd, gated], rows, strict=True):
        for key in live.keys() - {"reasoning", "message_id"}:
            if not key.startswith("_"):
                assert live[key] == row[key], key  # type: ignore[literal-required]
    assert odd["message_id"] == rows[0]["platform_message_id"]
    assert odd["observed"] is True
    assert "display_metadata" not in odd
    assert odd["_private"] == (1, 2)
    assert gated["reasoning"] == "stays on the dict"
