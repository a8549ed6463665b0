"""CONTRACT.md section 5, rules 3 and 5: store errors, sessions closed by compression, threads."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from hermes_state import (
    PERSISTED_MARKER,
    CompressionSessionClosedError,
    SessionDB,
    SessionNotFoundError,
    SessionPersistenceMixin,
    StoreClosedError,
    StoreUnavailableError,
    TranscriptFlusher,
)
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
from tests.support.statements import QueryRecorder, failing_commit, failing_statement

Failure = Callable[[sa.Engine], AbstractContextManager[None]]

LOST_ANSWER = pytest.param(partial(failing_commit, after_it_took_place=True), id="answer of COMMIT lost")
NOTHING_WRITTEN = [
    pytest.param(partial(failing_statement, number=0), id="first statement"),
    pytest.param(partial(failing_statement, number=1), id="insert"),
    pytest.param(partial(failing_statement, number=2), id="strip"),
    pytest.param(failing_commit, id="COMMIT"),
]


@pytest.fixture
def flusher(db: SessionDB, session: str) -> TranscriptFlusher:
    return TranscriptFlusher(db, session)


def turn() -> list[dict[str, Any]]:
    return [user("1"), carrier("a", reasoning()), caller("x"), carrier("b")]


def public(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in m.items() if not key.startswith("_")} for m in messages]


@pytest.mark.parametrize("failure", NOTHING_WRITTEN)
def test_a_failed_flush_stamps_nothing_and_writes_nothing(
    db: SessionDB, flusher: TranscriptFlusher, raw: RawSql, failure: Failure
) -> None:
    assert flusher.flush([carrier("older")])
    before, messages = snapshot(raw), turn()
    with failure(db.engine):
        assert not flusher.flush(messages)
    assert isinstance(flusher.last_error, StoreUnavailableError)
    assert public(messages) == turn()
    assert not any(PERSISTED_MARKER in m or "_row_id" in m for m in messages)
    assert snapshot(raw) == before


@pytest.mark.parametrize("failure", [*NOTHING_WRITTEN, LOST_ANSWER])
def test_the_next_flush_writes_the_same_dicts_exactly_once(
    db: SessionDB, flusher: TranscriptFlusher, raw: RawSql, failure: Failure
) -> None:
    messages = turn()
    for _ in range(3):
        with failure(db.engine):
            assert not flusher.flush(messages)
    messages.append(user("5"))
    assert flusher.flush(messages)
    assert flusher.last_error is None
    assert contents_of(raw) == ["1", "answer a", None, "answer b", "5"]
    assert items_of(raw) == [None, [reasoning()], None, [checkpoint("b")], None]
    assert [m["_row_id"] for m in messages] == raw.column("SELECT id FROM messages ORDER BY id")
    assert messages[1]["codex_reasoning_items"] == [reasoning()]
    assert_counters_are_exact(raw)


def test_stamps_are_put_on_after_the_commit_only(db: SessionDB, flusher: TranscriptFlusher) -> None:
    messages, seen = turn(), []
    commit = db.engine.dialect.do_commit

    def look_first(connection: Any) -> None:
        seen.append([PERSISTED_MARKER in m or "_row_id" in m for m in messages])
        commit(connection)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(db.engine.dialect, "do_commit", look_first)
        assert flusher.flush(messages)
    assert seen == [[False] * 4]
    assert all(m[PERSISTED_MARKER] == "s" for m in messages)


def test_an_edit_between_a_lost_answer_and_the_retry_updates_the_row(
    db: SessionDB, flusher: TranscriptFlusher, raw: RawSql
) -> None:
    messages = [user("1"), assistant("draft")]
    with failing_commit(db.engine, after_it_took_place=True):
        assert not flusher.flush(messages)
    messages[1]["content"] = "final"
    assert flusher.flush(messages)
    assert contents_of(raw) == ["1", "final"]
    assert_counters_are_exact(raw)


def test_a_uid_used_for_two_messages_loses_neither(flusher: TranscriptFlusher, raw: RawSql) -> None:
    messages = [user("first", message_uid="u"), user("second", message_uid="u")]
    assert flusher.flush(messages[:1])
    assert flusher.flush(messages)
    assert flusher.flush([*messages, user("x", message_uid="v"), user("y", message_uid="v")])
    assert contents_of(raw) == ["first", "second", "x", "y"]


def test_an_edit_made_dirty_during_a_failed_flush_is_written_later(
    db: SessionDB, flusher: TranscriptFlusher, raw: RawSql
) -> None:
    messages = [user("old")]
    assert flusher.flush(messages)
    messages[0]["content"] = "new"
    flusher.mark_dirty(messages[0])
    with failing_statement(db.engine, 1):
        assert not flusher.flush(messages)
    assert contents_of(raw) == ["old"]
    assert flusher.flush(messages, conversation_history=messages)
    assert contents_of(raw) == ["new"]


def test_an_unknown_session_is_a_failed_flush_and_no_phantom(db: SessionDB, raw: RawSql) -> None:
    flusher, messages = TranscriptFlusher(db, "nobody"), [user()]
    assert not flusher.flush(messages)
    assert isinstance(flusher.last_error, SessionNotFoundError)
    assert raw("SELECT id FROM sessions") == []
    db.ensure_session("nobody")
    assert flusher.flush(messages)


def test_a_closed_store_is_a_failed_flush(db: SessionDB, flusher: TranscriptFlusher) -> None:
    db.close()
    assert not flusher.flush([user()])
    assert isinstance(flusher.last_error, StoreClosedError)


@pytest.mark.parametrize("messages", ["text", b"x", {"role": "user"}, None, 5, iter([{"role": "user"}])])
def test_programming_errors_are_raised(flusher: TranscriptFlusher, messages: Any) -> None:
    with pytest.raises(TypeError):
        flusher.flush(messages)
    assert flusher.flush([user()])


def test_other_exceptions_pass_and_leave_the_flusher_usable(
    flusher: TranscriptFlusher, raw: RawSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [user("1")]
    with monkeypatch.context() as patch:
        patch.setattr(flusher.db, "append_messages_batch", lambda *_: int("programming"))
        with pytest.raises(ValueError, match="programming"):
            flusher.flush(messages)
    assert PERSISTED_MARKER not in messages[0]
    assert flusher.flush(messages)
    assert contents_of(raw) == ["1"]


def test_a_session_closed_by_compression_hands_over_to_its_tip(
    db: SessionDB, flusher: TranscriptFlusher, raw: RawSql
) -> None:
    messages = [user("1")]
    assert flusher.flush(messages)
    for parent, child in (("s", "s2"), ("s2", "s3")):
        db.end_session(parent, "compression")
        db.create_session(child, "cli", parent_session_id=parent)
    messages.append(user("2"))
    assert flusher.flush(messages)
    assert flusher.session_id == "s3"
    assert [m[PERSISTED_MARKER] for m in messages] == ["s", "s3"]
    assert (contents_of(raw, "s"), contents_of(raw, "s2"), contents_of(raw, "s3")) == (["1"], [], ["2"])
    assert flusher.flush(messages)
    assert contents_of(raw, "s3") == ["2"]


def test_the_move_is_tried_exactly_once(
    db: SessionDB, flusher: TranscriptFlusher, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def closed(session_id: str, _messages: Any) -> int:
        asked.append(session_id)
        raise CompressionSessionClosedError(session_id)

    monkeypatch.setattr(db, "append_messages_batch", closed)
    monkeypatch.setattr(db, "get_compression_tip", lambda session_id: f"{session_id}+")
    assert not flusher.flush([user()])
    assert asked == ["s", "s+"]
    assert isinstance(flusher.last_error, CompressionSessionClosedError)


def test_a_closed_session_without_a_tip_is_a_failed_flush(
    db: SessionDB, flusher: TranscriptFlusher, raw: RawSql
) -> None:
    db.end_session("s", "compression")
    messages = [user("1")]
    assert not flusher.flush(messages)
    assert isinstance(flusher.last_error, CompressionSessionClosedError)
    assert (flusher.session_id, raw("SELECT 1 FROM messages")) == ("s", [])
    db.create_session("child", "cli", parent_session_id="s")
    assert flusher.flush(messages)
    assert contents_of(raw, "child") == ["1"]


def test_a_session_closed_for_another_reason_takes_more(
    db: SessionDB, flusher: TranscriptFlusher, raw: RawSql
) -> None:
    db.end_session("s", "cli_close")
    assert flusher.flush([user("1")])
    assert contents_of(raw) == ["1"]


def test_two_threads_may_flush_the_same_list(flusher: TranscriptFlusher, raw: RawSql) -> None:
    messages = [user(str(number)) for number in range(60)]
    results: list[bool] = []
    ready = threading.Barrier(4)

    def flush() -> None:
        ready.wait()
        results.extend(flusher.flush(messages[: length + 1]) for length in range(0, 60, 6))
        results.append(flusher.flush(messages))

    threads = [threading.Thread(target=flush) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 44
    assert contents_of(raw) == [str(number) for number in range(60)]
    assert_counters_are_exact(raw)


def test_an_edit_during_a_flush_in_another_thread_is_not_lost(
    db: SessionDB, flusher: TranscriptFlusher, raw: RawSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    message, append = user("old"), db.append_messages_batch
    editor = threading.Thread(target=flusher.mark_dirty, args=(message,))

    def append_while_it_is_edited(session_id: str, messages: Any) -> int:
        inserted = append(session_id, messages)
        message["content"] = "new"
        editor.start()
        return inserted

    monkeypatch.setattr(db, "append_messages_batch", append_while_it_is_edited)
    assert flusher.flush([message])
    editor.join()
    monkeypatch.undo()
    assert flusher.flush([message])
    assert contents_of(raw) == ["new"]


class Agent(SessionPersistenceMixin):
    def __init__(self, db: SessionDB | None, session_id: str) -> None:
        self._session_db = db
        self.session_id = session_id
        self._persist_disabled = False


def test_an_agent_flushes_through_the_mixin_and_follows_to_the_tip(
    db: SessionDB, session: str, raw: RawSql
) -> None:
    agent, messages = Agent(db, session), [user("1")]
    assert agent._flush_messages_to_session_db(messages)
    db.end_session("s", "compression")
    db.create_session("child", "cli", parent_session_id="s")
    messages.append(user("2"))
    assert agent._flush_messages_to_session_db(messages, conversation_history=None)
    assert agent.session_id == "child"
    assert (contents_of(raw, "s"), contents_of(raw, "child")) == (["1"], ["2"])


def test_an_agent_that_changes_its_session_writes_there(db: SessionDB, session: str, raw: RawSql) -> None:
    agent = Agent(db, session)
    assert agent._flush_messages_to_session_db([user("1")])
    agent.session_id = db.create_session("t", "cli")
    assert agent._flush_messages_to_session_db([user("2")])
    assert (contents_of(raw, "s"), contents_of(raw, "t")) == (["1"], ["2"])


def test_an_agent_reports_a_failed_flush(db: SessionDB, session: str) -> None:
    agent, messages = Agent(db, session), [user("1")]
    with failing_statement(db.engine, 0):
        assert not agent._flush_messages_to_session_db(messages)
    assert agent._flush_messages_to_session_db(messages)


@pytest.mark.parametrize("without_store", [True, False])
def test_an_agent_that_does_not_persist_does_nothing(
    db: SessionDB, session: str, statements: QueryRecorder, without_store: bool
) -> None:
    agent = Agent(None if without_store else db, session)
    agent._persist_disabled = not without_store
    messages = [user("1")]
    before = copy.deepcopy(messages)
    statements.clear()
    assert agent._flush_messages_to_session_db(messages)
    assert (statements.texts, messages) == ([], before)
