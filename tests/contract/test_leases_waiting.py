"""Waiting for a turn lease, several at once, and holders that died, which Linux can prove (issue 3, item 4)."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Never

import pytest

from hermes_state import (
    InvalidArgumentError,
    LeaseHeldError,
    SessionDB,
    UnitOfWorkOpenError,
    local_lease_holder,
)
from hermes_state.repositories import lease_holders
from tests.support.raw import RawSql

OpenDb = Callable[..., SessionDB]

CHILD = """
import sys
from hermes_state import SessionDB, local_lease_holder
with SessionDB(url=sys.argv[1]) as db:
    sys.stdin.readline()
    taken = db.try_acquire_session_turn_lease("s", local_lease_holder(), 3600.0)
    db.try_acquire_compression_lock("s", local_lease_holder(), 3600.0)
    print(taken, local_lease_holder(), flush=True)
    sys.stdin.readline()
"""


def child(url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def answer(process: subprocess.Popen[str]) -> tuple[bool, str]:
    """Whether the child has got the lease, and the holder it used."""
    assert process.stdout is not None
    taken, holder = process.stdout.readline().split()
    return taken == "True", holder


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@pytest.fixture
def holding_child(store_url: str, db: SessionDB) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that holds lock and lease of session ``s``, and its holder."""
    process = child(store_url)
    go(process)
    taken, holder = answer(process)
    assert taken
    yield process, holder
    end(process)


def test_a_free_lease_is_acquired_at_once_without_a_callback(db: SessionDB, raw: RawSql) -> None:
    called: list[str] = []
    db.acquire_session_turn_lease("s", "me", on_wait=called.append, should_abort=lambda: True)
    assert raw("SELECT conversation_id, holder FROM session_turn_leases") == [("s", "me")]
    assert called == []


def test_waiting_ends_with_the_release_and_tells_meanwhile_who_holds_the_lease(
    db: SessionDB, raw: RawSql
) -> None:
    db.try_acquire_session_turn_lease("s", "other")
    told: list[str] = []

    def on_wait(holder: str) -> None:
        told.append(holder)
        if len(told) == 2:
            db.release_session_turn_lease("s", "other")

    db.acquire_session_turn_lease("s", "me", 100.0, wait_seconds=60.0, on_wait=on_wait)
    assert told == ["other", "other"]
    assert raw("SELECT holder FROM session_turn_leases") == [("me",)]


def test_waiting_ends_when_the_holder_s_lease_expires(db: SessionDB, raw: RawSql) -> None:
    db.try_acquire_session_turn_lease("s", "other")

    def on_wait(_holder: str) -> None:
        raw("UPDATE session_turn_leases SET expires_at = ?", time.time() - 1)

    db.acquire_session_turn_lease("s", "me", wait_seconds=60.0, on_wait=on_wait)
    assert raw("SELECT holder FROM session_turn_leases") == [("me",)]


@pytest.mark.parametrize("wait_seconds", [0, 0.3])
def test_the_error_at_the_end_of_the_waiting_time_names_the_holder(
    db: SessionDB, wait_seconds: float
) -> None:
    db.try_acquire_session_turn_lease("s", "other")
    with pytest.raises(LeaseHeldError) as held:
        db.acquire_session_turn_lease("s", "me", wait_seconds=wait_seconds)
    assert (held.value.session_id, held.value.holder) == ("s", "other")


def test_waiting_is_given_up_when_asked_to_even_if_the_lease_became_free(db: SessionDB, raw: RawSql) -> None:
    db.try_acquire_session_turn_lease("s", "other")
    stop = threading.Event()

    def on_wait(_holder: str) -> None:
        stop.set()
        db.release_session_turn_lease("s", "other")

    with pytest.raises(LeaseHeldError):
        db.acquire_session_turn_lease("s", "me", wait_seconds=60.0, on_wait=on_wait, should_abort=stop.is_set)
    assert raw("SELECT * FROM session_turn_leases") == []


def test_errors_of_the_callbacks_propagate(db: SessionDB) -> None:
    db.try_acquire_session_turn_lease("s", "other")

    def fail(*_arguments: str) -> Never:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        db.acquire_session_turn_lease("s", "me", wait_seconds=60.0, on_wait=fail)
    with pytest.raises(ZeroDivisionError):
        db.acquire_session_turn_lease("s", "me", wait_seconds=60.0, should_abort=fail)


def test_nothing_of_the_database_is_held_while_waiting(db: SessionDB, raw: RawSql) -> None:
    db.try_acquire_session_turn_lease("s", "other")
    checked_out: list[int] = []

    def on_wait(_holder: str) -> None:
        checked_out.append(db.engine.pool.checkedout())  # type: ignore[attr-defined]
        raw("UPDATE session_turn_leases SET holder = 'somebody'")
        db.create_session(f"made while waiting {len(checked_out)}", "cli")

    with pytest.raises(LeaseHeldError) as held:
        db.acquire_session_turn_lease("s", "me", wait_seconds=0.5, on_wait=on_wait)
    assert held.value.holder == "somebody"
    assert checked_out
    assert set(checked_out) == {0}


def test_waiting_inside_a_unit_of_work_is_refused(db: SessionDB) -> None:
    with db.unit_of_work(), pytest.raises(UnitOfWorkOpenError):
        db.acquire_session_turn_lease("s", "me")


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "5", None])
def test_a_waiting_time_that_is_not_finite_is_refused(db: SessionDB, seconds: float) -> None:
    with pytest.raises(InvalidArgumentError, match="wait_seconds"):
        db.acquire_session_turn_lease("s", "me", wait_seconds=seconds)


def test_of_many_threads_exactly_one_gets_an_expired_lease(open_db: OpenDb, raw: RawSql) -> None:
    stores = [open_db() for _ in range(4)]
    for number in range(5):
        session_id = f"s{number}"
        raw(
            "INSERT INTO session_turn_leases (conversation_id, holder, expires_at) VALUES (?, 'old', 0)",
            session_id,
        )
        start = threading.Barrier(8)

        def acquire(index: int, session_id: str = session_id, start: threading.Barrier = start) -> bool:
            start.wait()
            return stores[index % 4].try_acquire_session_turn_lease(session_id, f"holder {index}")

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(acquire, range(8)))
        assert won.count(True) == 1
        held = raw.value("SELECT holder FROM session_turn_leases WHERE conversation_id = ?", session_id)
        assert held == f"holder {won.index(True)}"


def test_of_several_processes_exactly_one_gets_the_lease(store_url: str, db: SessionDB, raw: RawSql) -> None:
    processes = [child(store_url) for _ in range(4)]
    try:
        for process in processes:
            go(process)
        answers = [answer(process) for process in processes]
        winners = [holder for taken, holder in answers if taken]
        assert len(winners) == 1
        assert raw("SELECT holder FROM session_turn_leases") == [(winners[0],)]
        assert len({holder for _taken, holder in answers}) == 4
    finally:
        for process in processes:
            end(process)


def test_the_leases_of_a_running_process_are_left_alone(
    db: SessionDB, holding_child: tuple[subprocess.Popen[str], str]
) -> None:
    assert db.try_acquire_session_turn_lease("s", "me") is False
    assert db.try_acquire_compression_lock("s", "me") is False
    assert db.get_compression_lock_holder("s") == holding_child[1]


def test_the_leases_of_a_killed_process_are_taken_before_they_expire(
    db: SessionDB, raw: RawSql, holding_child: tuple[subprocess.Popen[str], str]
) -> None:
    end(holding_child[0])
    assert db.try_acquire_session_turn_lease("s", "me") is True
    assert db.try_acquire_compression_lock("s", "me") is True
    assert raw("SELECT holder FROM session_turn_leases") == [("me",)]
    assert raw("SELECT holder FROM compression_locks") == [("me",)]


def test_the_leases_of_a_killed_process_that_nobody_reaped_are_taken(
    db: SessionDB, holding_child: tuple[subprocess.Popen[str], str]
) -> None:
    process = holding_child[0]
    assert process.stdout is not None
    process.kill()
    process.stdout.read()  # ends when the process has; it stays a zombie until it is waited for
    deadline = time.monotonic() + 30
    while not lease_holders.is_gone(holding_child[1]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.returncode is None
    assert db.try_acquire_session_turn_lease("s", "me") is True


def test_a_waiting_turn_gets_the_lease_of_a_process_that_is_killed(
    db: SessionDB, holding_child: tuple[subprocess.Popen[str], str]
) -> None:
    db.acquire_session_turn_lease("s", "me", wait_seconds=60.0, on_wait=lambda _holder: end(holding_child[0]))
    assert db.refresh_session_turn_lease("s", "me") is True


def test_a_pid_that_belongs_to_another_process_now_does_not_keep_the_lease(db: SessionDB) -> None:
    kind, place, pid, started, label = local_lease_holder().split(":")
    db.try_acquire_session_turn_lease("s", ":".join((kind, place, pid, str(int(started) - 1), label)))
    assert db.try_acquire_session_turn_lease("s", "me") is True


@pytest.mark.parametrize("place", ["0" * 32, "elsewhere", ""])
def test_a_process_of_another_machine_keeps_its_lease_until_it_expires(db: SessionDB, place: str) -> None:
    pid_of_nobody = 2**22 + 1
    db.try_acquire_session_turn_lease("s", f"process:{place}:{pid_of_nobody}:1:")
    assert db.try_acquire_session_turn_lease("s", "me") is False


def test_without_a_view_of_processes_nothing_is_reclaimed(
    db: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    kind, place, _pid, started, label = local_lease_holder().split(":")
    holder = ":".join((kind, place, str(process.pid), started, label))
    assert lease_holders.is_gone(holder)
    monkeypatch.setattr(lease_holders, "_BOOT_ID", lease_holders._BOOT_ID / "missing")
    db.try_acquire_session_turn_lease("s", holder)
    assert db.try_acquire_session_turn_lease("s", "me") is False
    assert local_lease_holder("turn").startswith("name:")


def test_the_holder_of_a_process_is_the_same_at_every_call_and_has_a_label() -> None:
    assert local_lease_holder() == local_lease_holder("")
    assert local_lease_holder("a") != local_lease_holder("b")
    assert local_lease_holder("turn: 1").endswith(":turn: 1")
    for label in ("a\0", "\ud800", "x" * 512):
        with pytest.raises(InvalidArgumentError, match="label"):
            local_lease_holder(label)


@pytest.mark.parametrize("pid", ["0", "00012", "-1", "9" * 10, "9" * 30, "x", ""])
def test_a_holder_that_names_no_possible_process_is_never_called_gone(pid: str) -> None:
    kind, place, _pid, started, label = local_lease_holder().split(":")
    gone = lease_holders.is_gone(f"{kind}:{place}:{pid}:{started}:{label}")
    assert not gone
