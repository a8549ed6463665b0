"""Compaction locks and turn leases: who gets them, when they end (issue 3, item 4)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import pytest

from hermes_state import (
    InvalidArgumentError,
    SessionCompressionInProgressError,
    SessionDB,
    StoreReadOnlyError,
)
from tests.support.raw import RawSql

DAY = 24 * 3600.0
OpenDb = Callable[..., SessionDB]

pytestmark = pytest.mark.usefixtures("db")


class Kind:
    """The verbs of one kind of lease, and its table."""

    def __init__(self, db: SessionDB, raw: RawSql, table: str, key: str, verb: str) -> None:
        self.raw, self.table, self.key = raw, table, key
        self.acquire: Any = getattr(db, f"try_acquire_{verb}")
        self.refresh: Any = getattr(db, f"refresh_{verb}")
        self.release: Any = getattr(db, f"release_{verb}")

    def row(self, session_id: str = "s") -> tuple[Any, ...] | None:
        columns = f"SELECT holder, acquired_at, expires_at FROM {self.table} WHERE {self.key} = ?"
        return next(iter(self.raw(columns, session_id)), None)

    def seconds_left(self) -> float:
        row = self.row()
        assert row is not None
        return float(row[2] - time.time())

    def expire(self, *, ago: float = 1.0) -> None:
        """Lets every lease end ``ago`` seconds in the past."""
        self.raw(f"UPDATE {self.table} SET expires_at = ?", time.time() - ago)


@pytest.fixture(params=["compression_lock", "session_turn_lease"])
def kind(request: pytest.FixtureRequest, db: SessionDB, raw: RawSql) -> Kind:
    if request.param == "compression_lock":
        return Kind(db, raw, "compression_locks", "session_id", request.param)
    return Kind(db, raw, "session_turn_leases", "conversation_id", request.param)


def test_a_free_lease_is_taken_for_its_time_also_before_its_session_exists(kind: Kind) -> None:
    assert kind.acquire("s", "me", 120.0) is True
    row = kind.row()
    assert row is not None
    assert row[0] == "me"
    assert abs(row[1] - time.time()) < 30
    assert row[2] - row[1] == pytest.approx(120.0, abs=1.0)


def test_the_time_of_a_lease_is_300_seconds_if_none_is_given(kind: Kind) -> None:
    kind.acquire("s", "me")
    assert 270 < kind.seconds_left() < 330
    kind.expire()
    kind.refresh("s", "me")
    assert 270 < kind.seconds_left() < 330


def test_a_live_lease_of_somebody_else_is_not_taken_and_stays_as_it_is(kind: Kind) -> None:
    kind.acquire("s", "other")
    before = kind.row()
    assert kind.acquire("s", "me") is False
    assert kind.row() == before


def test_leases_of_different_sessions_do_not_meet(kind: Kind) -> None:
    assert kind.acquire("s", "me") is True
    assert kind.acquire("t", "other") is True


def test_acquiring_the_own_lease_again_extends_it_and_never_shortens_it(kind: Kind) -> None:
    kind.acquire("s", "me", 100.0)
    before = kind.row()
    assert kind.acquire("s", "me", 1000.0) is True
    assert kind.seconds_left() > 900
    assert kind.acquire("s", "me", 10.0) is True
    assert kind.seconds_left() > 900
    after = kind.row()
    assert before is not None
    assert after is not None
    assert after[1] == before[1]


def test_an_expired_lease_is_taken_by_somebody_else(kind: Kind) -> None:
    kind.acquire("s", "other")
    kind.expire()
    assert kind.acquire("s", "me", 100.0) is True
    row = kind.row()
    assert row is not None
    assert row[0] == "me"
    assert 70 < kind.seconds_left() < 130


def test_a_late_owner_renews_a_lease_that_nobody_claimed(kind: Kind) -> None:
    kind.acquire("s", "me")
    kind.expire(ago=3600.0)
    assert kind.refresh("s", "me", 50.0) is True
    assert 20 < kind.seconds_left() < 80


def test_a_lease_that_somebody_claimed_or_released_is_not_renewed(kind: Kind) -> None:
    kind.acquire("s", "other")
    before = kind.row()
    assert kind.refresh("s", "me") is False
    assert kind.row() == before
    kind.release("s", "other")
    assert kind.refresh("s", "other") is False
    assert kind.row() is None


def test_only_the_owner_releases_a_lease_and_may_do_so_twice(kind: Kind) -> None:
    kind.acquire("s", "other")
    kind.release("s", "me")
    assert kind.row() is not None
    kind.release("s", "other")
    kind.release("s", "other")
    assert kind.row() is None
    assert kind.acquire("s", "me") is True


def test_rows_expired_for_more_than_a_day_are_swept_by_any_acquisition(kind: Kind) -> None:
    now = time.time()
    for session_id, end in (("old", now - DAY - 60), ("late", now - DAY + 3600), ("live", now + 60)):
        kind.raw(f"INSERT INTO {kind.table} ({kind.key}, expires_at) VALUES (?, ?)", session_id, end)
    kind.acquire("live", "me")
    assert kind.raw(f"SELECT {kind.key} FROM {kind.table} ORDER BY 1") == [("late",), ("live",)]


@pytest.mark.parametrize("seconds", [0, -1.0, math.nan, math.inf, -math.inf, 10**400, "5", None, True])
def test_a_time_that_is_not_finite_and_above_0_is_refused(kind: Kind, seconds: Any) -> None:
    for verb in (kind.acquire, kind.refresh):
        with pytest.raises(InvalidArgumentError, match="ttl_seconds"):
            verb("s", "me", seconds)
    assert kind.row() is None


@pytest.mark.parametrize("holder", ["", "x" * 513, "a\0b", "\ud800", None, 5])
def test_a_holder_that_is_no_id_is_refused(kind: Kind, holder: Any) -> None:
    for verb in (kind.acquire, kind.refresh, kind.release):
        with pytest.raises(InvalidArgumentError, match="holder"):
            verb("s", holder)
    assert kind.row() is None


@pytest.mark.parametrize("session_id", ["", "x" * 513, "a\0b", "\ud800"])
def test_a_session_that_cannot_exist_is_refused_by_acquiring_and_held_by_nobody(
    db: SessionDB, kind: Kind, session_id: str
) -> None:
    with pytest.raises(InvalidArgumentError, match="session_id"):
        kind.acquire(session_id, "me")
    assert kind.refresh(session_id, "me") is False
    assert kind.release(session_id, "me") is None
    assert db.get_compression_lock_holder(session_id) is None
    assert db.has_live_session_turn_lease(session_id) is False


def test_holders_and_sessions_of_512_characters_are_taken(kind: Kind) -> None:
    assert kind.acquire("\N{GRINNING FACE}" * 512, "é" * 512) is True


def test_a_read_only_store_takes_no_lease(kind: Kind, open_db: OpenDb) -> None:
    reader = open_db(read_only=True)
    with pytest.raises(StoreReadOnlyError):
        reader.try_acquire_compression_lock("s", "me")
    with pytest.raises(StoreReadOnlyError):
        reader.acquire_session_turn_lease("s", "me", wait_seconds=0)
    assert kind.row() is None


def test_a_lease_taken_in_a_unit_of_work_that_fails_is_not_taken(db: SessionDB, kind: Kind) -> None:
    def acquire_and_fail() -> None:
        with db.unit_of_work() as uow:
            assert uow.leases.try_acquire_compression_lock("s", "me")
            assert uow.leases.try_acquire_session_turn_lease("s", "me")
            raise LookupError

    with pytest.raises(LookupError):
        acquire_and_fail()
    assert kind.row() is None


def test_the_clock_that_ends_leases_is_the_process_s_on_sqlite_and_the_server_s_on_postgresql(
    backend: str, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind.acquire("s", "other", 300.0)
    later = time.time() + 301.0
    monkeypatch.setattr(time, "time", lambda: later)
    assert kind.acquire("s", "me") is (backend == "sqlite")


def test_the_holder_of_a_lock_is_none_once_it_has_expired(db: SessionDB, raw: RawSql) -> None:
    assert db.get_compression_lock_holder("s") is None
    db.try_acquire_compression_lock("s", "me")
    assert db.get_compression_lock_holder("s") == "me"
    raw("UPDATE compression_locks SET expires_at = ?", time.time() - 1)
    assert db.get_compression_lock_holder("s") is None


def test_checking_a_lock_passes_for_its_owner_and_names_who_else_holds_it(db: SessionDB) -> None:
    db.try_acquire_compression_lock("s", "me")
    with db.unit_of_work() as uow:
        uow.leases.check_compression_lock("s", "me")
    with pytest.raises(SessionCompressionInProgressError) as refused, db.unit_of_work() as uow:
        uow.leases.check_compression_lock("s", "you")
    assert (refused.value.session_id, refused.value.holder) == ("s", "me")
    for session_id in ("t", ""):
        with pytest.raises(SessionCompressionInProgressError), db.unit_of_work() as uow:
            uow.leases.check_compression_lock(session_id, "me")


def test_checking_an_expired_lock_that_nobody_claimed_renews_it(db: SessionDB, raw: RawSql) -> None:
    db.try_acquire_compression_lock("s", "me")
    raw("UPDATE compression_locks SET expires_at = ?", time.time() - 1)
    with db.unit_of_work() as uow:
        uow.leases.check_compression_lock("s", "me", 100.0)
    assert 70 < raw.value("SELECT expires_at FROM compression_locks") - time.time() < 130


def test_a_continuation_shares_the_turn_lease_of_its_conversation(db: SessionDB, raw: RawSql) -> None:
    db.create_session("root", "cli")
    db.create_session("child", "cli", parent_session_id="root")
    assert db.try_acquire_session_turn_lease("child", "me") is True
    assert raw("SELECT conversation_id, holder FROM session_turn_leases") == [("root", "me")]
    assert db.try_acquire_session_turn_lease("root", "other") is False
    assert db.has_live_session_turn_lease("root")
    assert db.refresh_session_turn_lease("root", "me") is True
    db.release_session_turn_lease("root", "me")
    assert not db.has_live_session_turn_lease("child")


def test_a_delegate_has_a_turn_lease_of_its_own(db: SessionDB) -> None:
    db.create_session("root", "cli")
    db.create_session("worker", "cli", parent_session_id="root", model_config={"_delegate_from": "root"})
    assert db.try_acquire_session_turn_lease("root", "me") is True
    assert db.try_acquire_session_turn_lease("worker", "worker") is True


def test_a_turn_lease_is_live_until_it_expires(db: SessionDB, raw: RawSql) -> None:
    assert db.has_live_session_turn_lease("s") is False
    db.try_acquire_session_turn_lease("s", "me")
    assert db.has_live_session_turn_lease("s") is True
    raw("UPDATE session_turn_leases SET expires_at = ?", time.time() - 1)
    assert db.has_live_session_turn_lease("s") is False
