"""``db.unit_of_work()``: several verbs, one transaction (DESIGN.md, decision 1; field report E6)."""

from __future__ import annotations

import threading

import pytest
import sqlalchemy as sa

from hermes_state import (
    InvalidArgumentError,
    InvalidMessageError,
    MessageConflictError,
    SessionDB,
    SessionNotFoundError,
    StoreClosedError,
    UnitOfWorkOpenError,
)
from tests.conftest import OpenDb
from tests.support.builders import assert_counters_are_exact, caller, contents_of, snapshot, user
from tests.support.raw import RawSql


class StoppedError(Exception):
    """What a caller's own code raises."""


def test_several_verbs_commit_together(db: SessionDB, raw: RawSql) -> None:
    with db.unit_of_work() as uow:
        uow.sessions.create("s", "cli")
        uow.messages.append_batch("s", [user("a"), caller("x")])
        uow.meta.set("seen", "yes")
        assert raw("SELECT id FROM sessions") == []
    assert contents_of(raw) == ["a", None]
    assert db.get_meta("seen") == "yes"
    assert_counters_are_exact(raw)


def test_an_exception_undoes_all_of_it_and_passes_through(db: SessionDB, session: str, raw: RawSql) -> None:
    before = snapshot(raw)
    messages = [user("a")]

    def write_and_stop() -> None:
        with db.unit_of_work() as uow:
            uow.messages.append_batch(session, messages)
            uow.sessions.end(session, "done")
            raise StoppedError

    with pytest.raises(StoppedError):
        write_and_stop()
    assert snapshot(raw) == before
    assert messages == [user("a")]


def test_a_unit_sees_what_it_wrote(db: SessionDB, session: str) -> None:
    with db.unit_of_work() as uow:
        uow.messages.append(session, "user", "a")
        assert uow.messages.count(session) == 1
        assert [m["content"] for m in uow.messages.get(session)] == ["a"]


def test_a_refused_verb_leaves_the_unit_usable(db: SessionDB, session: str, raw: RawSql) -> None:
    with db.unit_of_work() as uow:
        uow.messages.append(session, "user", "before")
        with pytest.raises(SessionNotFoundError):
            uow.messages.append("unknown", "user", "x")
        with pytest.raises(InvalidMessageError):
            uow.messages.append(session, "user", b"bytes")
        uow.messages.append(session, "user", "after")
    assert contents_of(raw) == ["before", "after"]
    assert_counters_are_exact(raw)


def test_half_a_verb_can_never_be_committed(db: SessionDB, session: str, raw: RawSql) -> None:
    db.append_message(session, "user", "first", message_uid="taken")
    before = snapshot(raw)

    def swallow_a_conflict() -> None:
        with db.unit_of_work() as uow:
            uow.messages.append(session, "user", "written before")
            with pytest.raises(MessageConflictError):
                uow.messages.append_batch(session, [user("fresh"), user("other", message_uid="taken")])
            with pytest.raises(StoreClosedError):
                uow.messages.append(session, "user", "written after")

    with pytest.raises(StoreClosedError, match="rolled back"):
        swallow_a_conflict()
    assert snapshot(raw) == before


def test_repositories_refuse_to_work_after_the_end(db: SessionDB, session: str) -> None:
    with db.unit_of_work() as uow:
        messages = uow.messages
    with pytest.raises(StoreClosedError):
        messages.append(session, "user", "late")
    with pytest.raises(StoreClosedError):
        messages.get(session)


def test_a_write_of_the_store_inside_an_open_unit_is_refused_at_once(db: SessionDB, session: str) -> None:
    with db.unit_of_work() as uow:
        uow.messages.append(session, "user", "a")
        with pytest.raises(UnitOfWorkOpenError):
            db.append_message(session, "user", "b")
        with pytest.raises(UnitOfWorkOpenError), db.unit_of_work():
            pass
    assert db.append_message(session, "user", "c") > 0
    assert db.message_count(session) == 2


def test_reads_of_the_store_go_on_beside_an_open_unit(db: SessionDB, session: str) -> None:
    with db.unit_of_work() as uow:
        uow.messages.append(session, "user", "a")
        assert db.message_count(session) == 0
    assert db.message_count(session) == 1


def test_another_thread_waits_for_the_unit_and_then_writes(open_db: OpenDb, raw: RawSql) -> None:
    db = open_db()
    db.create_session("s", "cli")
    inside = threading.Event()

    def write() -> None:
        inside.wait(10)
        db.append_message("s", "user", "second")

    thread = threading.Thread(target=write)
    thread.start()
    with db.unit_of_work() as uow:
        uow.messages.append("s", "user", "first")
        inside.set()
        uow.messages.append("s", "user", "still first")
    thread.join(30)
    assert contents_of(raw) == ["first", "still first", "second"]


def test_a_closed_store_gives_no_unit(db: SessionDB) -> None:
    db.close()
    db.close()
    with pytest.raises(StoreClosedError):
        db.unit_of_work()
    with pytest.raises(StoreClosedError):
        db.list_sessions()


def test_an_export_sees_one_moment_although_it_takes_several_statements(open_db: OpenDb, raw: RawSql) -> None:
    db = open_db()
    db.create_session("s", "cli")
    db.append_message("s", "user", "before")

    def write_between(_conn: object, _cursor: object, statement: str, *_rest: object) -> None:
        if "FROM messages" in statement:
            raw("UPDATE messages SET content = 'after'")

    sa.event.listen(db.engine, "before_cursor_execute", write_between)
    exported = db.export_session("s")
    assert exported is not None
    assert exported["messages"][0]["content"] == "before"
    assert contents_of(raw) == ["after"]


def test_a_refusal_after_the_first_write_of_a_verb_undoes_the_unit(
    db: SessionDB, session: str, raw: RawSql
) -> None:
    def publish_badly() -> None:
        with db.unit_of_work() as uow, pytest.raises(InvalidArgumentError):
            uow.lineages.publish_continuation(session, "child", [user()], model_config="no json")

    with pytest.raises(StoreClosedError, match="rolled back"):
        publish_badly()
    assert raw("SELECT id, ended_at FROM sessions") == [(session, None)]
