"""Several threads, objects and processes on one store (CONTRACT.md sections 3, 4, 6; field reports I, S1)."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hermes_state import SessionDB, StoreBusyError, StoreUnavailableError
from tests.conftest import OpenDb
from tests.support.builders import assert_counters_are_exact, caller, carrier, contents_of, user
from tests.support.databases import libpq_url
from tests.support.raw import RawSql, sqlite_file

END_EVERYBODY_ELSE = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
SPAWN = multiprocessing.get_context("spawn")


def append_many(url: str, name: str, turns: int) -> None:
    with SessionDB(url=url) as db:
        for number in range(turns):
            db.append_messages_batch(
                "s", [user(f"{name}-{number}"), caller("x"), carrier(f"{name}-{number}")]
            )


def open_and_append(path: str, name: str) -> None:
    with SessionDB(path) as db:
        db.ensure_session("s")
        db.append_message("s", "user", name)


def run_all(processes: list[multiprocessing.context.SpawnProcess]) -> list[int | None]:
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    return [process.exitcode for process in processes]


def test_processes_appending_to_one_session_lose_nothing(
    db: SessionDB, session: str, store_url: str, raw: RawSql
) -> None:
    processes = [SPAWN.Process(target=append_many, args=(store_url, str(n), 10)) for n in range(4)]
    assert run_all(processes) == [0] * 4
    assert db.message_count(session) == 120
    assert_counters_are_exact(raw)
    texts = [text for text in contents_of(raw) if text is not None and "answer" not in text]
    for name in "0123":
        assert [text for text in texts if text.startswith(f"{name}-")] == [f"{name}-{n}" for n in range(10)]
    carriers = raw.value("SELECT count(*) FROM messages WHERE codex_reasoning_items IS NOT NULL")
    assert carriers == 1


def test_processes_opening_one_new_file_all_succeed(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    processes = [SPAWN.Process(target=open_and_append, args=(str(path), str(n))) for n in range(10)]
    assert run_all(processes) == [0] * 10
    with SessionDB(path) as db:
        assert db.message_count("s") == 10


def test_threads_on_one_object_and_on_several_lose_nothing(open_db: OpenDb, raw: RawSql) -> None:
    stores = [open_db() for _ in range(3)]
    stores[0].create_session("s", "cli")

    def write(store: SessionDB, name: str) -> None:
        for number in range(15):
            store.append_messages_batch("s", [user(f"{name}-{number}"), caller("a", "b")])
            store.get_messages("s")

    threads = [threading.Thread(target=write, args=(stores[n % 3], str(n))) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stores[0].message_count("s") == 180
    assert_counters_are_exact(raw)


def test_one_uid_sent_by_all_lands_once(open_db: OpenDb, raw: RawSql) -> None:
    db = open_db()
    db.create_session("s", "cli")
    found: list[int] = []
    barrier = threading.Barrier(6)

    def send() -> None:
        barrier.wait(10)
        found.append(db.append_message("s", "user", "same", message_uid="u"))

    threads = [threading.Thread(target=send) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert contents_of(raw) == ["same"]
    assert_counters_are_exact(raw)


def test_a_write_waits_for_another_writer_of_the_file(
    db: SessionDB, session: str, store_url: str, backend: str
) -> None:
    if backend == "sqlite":
        other: Any = sqlite3.connect(sqlite_file(store_url), isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(1.0, lambda: other.execute("COMMIT"))
    else:
        other = psycopg.connect(libpq_url(store_url))
        other.execute("SELECT 1 FROM sessions FOR UPDATE")
        release = threading.Timer(1.0, other.commit)
    release.start()
    started = time.monotonic()
    assert db.append_message(session, "user", "waited") > 0
    assert time.monotonic() - started > 0.5
    release.join()
    other.close()


def test_a_writer_that_never_ends_makes_a_typed_busy_error_and_the_next_call_works(
    open_db: OpenDb, store_url: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_STATE_BUSY_TIMEOUT_SECONDS", "0.2")
    db = open_db()
    db.create_session("s", "cli")
    if backend == "sqlite":
        other: Any = sqlite3.connect(sqlite_file(store_url), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
    else:
        other = psycopg.connect(libpq_url(store_url))
        other.execute("SELECT 1 FROM sessions FOR UPDATE")
    with pytest.raises(StoreBusyError) as refusal:
        db.append_message("s", "user", "a")
    assert refusal.value.transient
    assert db.get_messages("s") == []
    other.rollback()
    other.close()
    assert db.append_message("s", "user", "b") > 0


def test_readers_never_wait_for_a_writer(db: SessionDB, session: str, store_url: str) -> None:
    with db.unit_of_work() as uow:
        uow.messages.append(session, "user", "a")
        with SessionDB(url=store_url, read_only=True) as reader:
            started = time.monotonic()
            assert reader.get_messages(session) == []
            assert time.monotonic() - started < 10


def test_a_forked_child_and_its_parent_write_side_by_side(db: SessionDB, session: str, raw: RawSql) -> None:
    db.append_message(session, "user", "before")
    child = os.fork()
    if child == 0:
        for number in range(10):
            db.append_message(session, "user", f"child {number}")
        os._exit(0)
    for number in range(10):
        db.append_message(session, "user", f"parent {number}")
    assert os.waitpid(child, 0)[1] == 0
    assert db.message_count(session) == 21
    assert_counters_are_exact(raw)


@pytest.mark.postgres
@pytest.mark.parametrize("backend", ["postgresql"])
def test_connections_that_ended_while_idle_are_replaced(
    db: SessionDB, session: str, raw: RawSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.append_message(session, "user", "a")
    raw(END_EVERYBODY_ELSE)
    monkeypatch.setattr("hermes_state.engine.IDLE_SECONDS_BEFORE_PING", 0.0)
    assert db.append_message(session, "user", "b") > 0
    assert db.message_count(session) == 2


@pytest.mark.postgres
@pytest.mark.parametrize("backend", ["postgresql"])
def test_a_connection_that_ended_a_moment_ago_costs_one_typed_error_at_most(
    db: SessionDB, session: str, raw: RawSql
) -> None:
    db.append_message(session, "user", "a")
    raw(END_EVERYBODY_ELSE)
    with pytest.raises(StoreUnavailableError) as refusal:
        db.append_message(session, "user", "b")
    assert refusal.value.transient
    assert db.append_message(session, "user", "b") > 0
    assert contents_of(raw) == ["a", "b"]


@pytest.mark.postgres
@pytest.mark.parametrize("backend", ["postgresql"])
def test_a_connection_lost_inside_a_unit_loses_and_duplicates_nothing(
    db: SessionDB, session: str, raw: RawSql
) -> None:
    messages = [user("a"), caller("x")]

    def append_and_be_cut() -> None:
        with db.unit_of_work() as uow:
            uow.messages.append_batch(session, messages)
            raw(END_EVERYBODY_ELSE)

    with pytest.raises(StoreUnavailableError) as refusal:
        append_and_be_cut()
    assert refusal.value.transient
    assert contents_of(raw) == []
    assert db.append_messages_batch(session, messages) == 2
    assert_counters_are_exact(raw)


@pytest.mark.postgres
@pytest.mark.parametrize("backend", ["postgresql"])
def test_a_deadlock_is_run_again_as_a_whole(db: SessionDB, raw: RawSql) -> None:
    for session_id in ("a", "b"):
        db.create_session(session_id, "cli")
    barrier = threading.Barrier(2, timeout=20)
    first_try = threading.local()

    def write(order: tuple[str, str]) -> None:
        def work(uow: object) -> None:
            from hermes_state import UnitOfWork

            assert isinstance(uow, UnitOfWork)
            uow.messages.append(order[0], "user", "x")
            if not getattr(first_try, "over", False):
                first_try.over = True
                barrier.wait()
            uow.messages.append(order[1], "user", "y")

        db._write(work)

    threads = [threading.Thread(target=write, args=(order,)) for order in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert raw("SELECT id, message_count FROM sessions ORDER BY id") == [("a", 2), ("b", 2)]
