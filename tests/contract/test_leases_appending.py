"""A turn lease presented with an append (CONTRACT.md section 3, rule 6)."""

from __future__ import annotations

import sqlite3
import time
from typing import Any

import psycopg
import pytest

from hermes_state import (
    InvalidArgumentError,
    SessionDB,
    SessionNotFoundError,
    SessionTurnLeaseLostError,
    TranscriptFlusher,
)
from tests.support.builders import snapshot, user
from tests.support.raw import RawSql
from tests.support.statements import QueryRecorder

pytestmark = pytest.mark.usefixtures("session")


def expire(raw: RawSql, ago: float = 1.0) -> None:
    raw("UPDATE session_turn_leases SET expires_at = ?", time.time() - ago)


def lease(raw: RawSql) -> tuple[str, float]:
    ((holder, end),) = raw("SELECT holder, expires_at FROM session_turn_leases")
    return holder, end


def test_the_holder_of_the_lease_appends_and_the_live_lease_stays_as_it_is(
    db: SessionDB, raw: RawSql
) -> None:
    db.try_acquire_session_turn_lease("s", "me", 100.0)
    before = lease(raw)
    assert db.append_messages_batch("s", [user()], turn_lease_holder="me") == 1
    assert lease(raw) == before


@pytest.mark.parametrize("chunk_rows", [None, 1])
def test_who_does_not_hold_the_lease_appends_nothing(
    db: SessionDB, raw: RawSql, chunk_rows: int | None
) -> None:
    for holder in (None, "other"):
        if holder is not None:
            db.try_acquire_session_turn_lease("s", holder)
        before = snapshot(raw)
        messages = [user("a"), user("b")]
        with pytest.raises(SessionTurnLeaseLostError) as lost:
            db.append_messages_batch("s", messages, turn_lease_holder="me", chunk_rows=chunk_rows)
        assert (lost.value.session_id, lost.value.holder) == ("s", "me")
        assert snapshot(raw) == before
        assert messages == [user("a"), user("b")]


@pytest.mark.parametrize("chunk_rows", [None, 1])
def test_an_own_expired_lease_that_nobody_claimed_is_renewed(
    db: SessionDB, raw: RawSql, chunk_rows: int | None
) -> None:
    db.try_acquire_session_turn_lease("s", "me")
    expire(raw, ago=3600.0)
    inserted = db.append_messages_batch(
        "s",
        [user("a"), user("b")],
        turn_lease_holder="me",
        turn_lease_ttl_seconds=50.0,
        chunk_rows=chunk_rows,
    )
    assert inserted == 2
    assert lease(raw)[0] == "me"
    assert 20 < lease(raw)[1] - time.time() < 80


def test_an_expired_lease_that_somebody_claimed_is_lost(db: SessionDB, raw: RawSql) -> None:
    db.try_acquire_session_turn_lease("s", "me")
    expire(raw)
    db.try_acquire_session_turn_lease("s", "other")
    with pytest.raises(SessionTurnLeaseLostError):
        db.append_messages_batch("s", [user()], turn_lease_holder="me")
    assert raw("SELECT * FROM messages") == []


def test_a_renewal_is_undone_when_the_append_fails(db: SessionDB, raw: RawSql) -> None:
    db.try_acquire_session_turn_lease("s", "me")
    expire(raw)
    before = lease(raw)

    def append_and_fail() -> None:
        with db.unit_of_work() as uow:
            uow.messages.append_batch("s", [user()], turn_lease_holder="me")
            raise LookupError

    with pytest.raises(LookupError):
        append_and_fail()
    assert lease(raw) == before


def test_the_lease_of_the_conversation_counts_for_its_continuation(db: SessionDB, raw: RawSql) -> None:
    db.create_session("child", "cli", parent_session_id="s")
    db.try_acquire_session_turn_lease("s", "me")
    assert db.append_messages_batch("child", [user()], turn_lease_holder="me") == 1
    raw("UPDATE session_turn_leases SET conversation_id = 'child'")
    with pytest.raises(SessionTurnLeaseLostError):
        db.append_messages_batch("child", [user()], turn_lease_holder="me")


def test_nobody_can_claim_a_lease_between_the_guard_and_the_commit(
    db: SessionDB, raw: RawSql, backend: str
) -> None:
    db.try_acquire_session_turn_lease("s", "me")
    with db.unit_of_work() as uow:
        uow.messages.append_batch("s", [user()], turn_lease_holder="me")
        raw("SET lock_timeout = '100ms'" if backend == "postgresql" else "PRAGMA busy_timeout = 100")
        with pytest.raises((sqlite3.OperationalError, psycopg.errors.LockNotAvailable)):
            raw("UPDATE session_turn_leases SET holder = 'other'")
    assert lease(raw)[0] == "me"


def test_a_turn_lease_does_not_save_an_unknown_session(db: SessionDB) -> None:
    db.try_acquire_session_turn_lease("missing", "me")
    with pytest.raises(SessionNotFoundError):
        db.append_messages_batch("missing", [user()], turn_lease_holder="me")


@pytest.mark.parametrize("holder", ["", "a\0b", "x" * 513, "\ud800", 5])
def test_a_holder_that_is_no_id_is_refused(db: SessionDB, raw: RawSql, holder: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="turn_lease_holder"):
        db.append_messages_batch("s", [user()], turn_lease_holder=holder)
    assert raw("SELECT * FROM messages") == []


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_presented_lease_needs_a_finite_time_above_0(db: SessionDB, raw: RawSql, seconds: float) -> None:
    db.try_acquire_session_turn_lease("s", "me")
    with pytest.raises(InvalidArgumentError, match="ttl_seconds"):
        db.append_messages_batch("s", [user()], turn_lease_holder="me", turn_lease_ttl_seconds=seconds)
    assert raw("SELECT * FROM messages") == []


def test_an_append_without_a_lease_is_two_statements_and_looks_at_no_lease(
    db: SessionDB, statements: QueryRecorder
) -> None:
    db.append_messages_batch("s", [user()])
    assert len(statements.texts) == 2
    assert not [text for text in statements.texts if "session_turn_leases" in text]


def test_ordinary_appends_ignore_leases_and_locks_of_others(db: SessionDB) -> None:
    db.try_acquire_session_turn_lease("s", "other")
    db.try_acquire_compression_lock("s", "other")
    assert db.append_messages_batch("s", [user()]) == 1
    assert db.append_messages_batch("s", [user()], compression_lock_holder="me") == 1


def test_a_single_append_checks_a_presented_lease_too(db: SessionDB, session: str, raw: RawSql) -> None:
    with pytest.raises(SessionTurnLeaseLostError):
        db.append_message(session, "user", "a", turn_lease_holder="nobody")
    assert db.try_acquire_session_turn_lease(session, "me")
    assert db.append_message(session, "user", "b", turn_lease_holder="me") > 0
    assert raw("SELECT content, extra FROM messages") == [("b", None)]


def test_a_flusher_that_presents_a_lost_lease_writes_nothing(db: SessionDB, raw: RawSql) -> None:
    flusher = TranscriptFlusher(db, "s", turn_lease_holder="me")
    live = [user("a")]
    assert not flusher.flush(live)
    assert isinstance(flusher.last_error, SessionTurnLeaseLostError)
    assert raw("SELECT * FROM messages") == []
    db.try_acquire_session_turn_lease("s", "me")
    assert flusher.flush(live)
    assert db.message_count("s") == 1
