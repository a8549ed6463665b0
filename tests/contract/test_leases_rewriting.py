"""Who rewrites a transcript meets nobody else at work on it (known-store.md 3.3; issue 3, items 1 and 4)."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from hermes_state import (
    LeaseHeldError,
    SessionCompressionInProgressError,
    SessionDB,
    SessionTurnLeaseLostError,
)
from tests.support.builders import snapshot, user
from tests.support.raw import RawSql

Verb = Callable[..., Any]
VERBS: dict[str, Verb] = {
    "replace_messages": lambda db, _ids, **who: db.replace_messages("s", [user("new")], **who),
    "replace archiving": lambda db, _ids, **who: db.replace_messages("s", [], archive_dropped=True, **who),
    "rewind_to_message": lambda db, ids, **who: db.rewind_to_message("s", ids[1], **who),
    "restore_rewound": lambda db, ids, **who: db.restore_rewound("s", ids[0], **who),
    "clear_messages": lambda db, _ids, **who: db.clear_messages("s", **who),
    "delete_messages": lambda db, ids, **who: db.delete_messages("s", ids[:1], **who),
}
ENDED_PROCESS = "import hermes_state; print(hermes_state.local_lease_holder(), end='')"


@pytest.fixture(params=VERBS)
def verb(request: pytest.FixtureRequest) -> Verb:
    """A verb that rewrites, called with the store, the ids of the rows, and who calls it."""
    return VERBS[request.param]


@pytest.fixture
def ids(db: SessionDB, session: str) -> list[int]:
    """The ids of three rows of the session, the last of them rewound."""
    found = [db.append_message(session, "user", f"m{n}") for n in range(3)]
    db.rewind_to_message(session, found[-1])
    return found


def test_a_turn_of_somebody_else_refuses_a_rewriting(
    db: SessionDB, raw: RawSql, ids: list[int], verb: Verb
) -> None:
    db.try_acquire_session_turn_lease("s", "other")
    before = snapshot(raw)
    with pytest.raises(LeaseHeldError) as held:
        verb(db, ids)
    assert (held.value.session_id, held.value.holder) == ("s", "other")
    with pytest.raises(SessionTurnLeaseLostError):
        verb(db, ids, turn_lease_holder="me")
    assert snapshot(raw) == before


def test_a_compaction_of_somebody_else_refuses_a_rewriting(
    db: SessionDB, raw: RawSql, ids: list[int], verb: Verb
) -> None:
    db.try_acquire_compression_lock("s", "other")
    before = snapshot(raw)
    for who in ({}, {"compression_lock_holder": "me"}):
        with pytest.raises(SessionCompressionInProgressError) as held:
            verb(db, ids, **who)
        assert (held.value.session_id, held.value.holder) == ("s", "other")
    assert snapshot(raw) == before


def test_the_holders_themselves_may_rewrite(db: SessionDB, raw: RawSql, ids: list[int], verb: Verb) -> None:
    db.try_acquire_session_turn_lease("s", "me")
    db.try_acquire_compression_lock("s", "my compactor")
    before = snapshot(raw)
    verb(db, ids, turn_lease_holder="me", compression_lock_holder="my compactor")
    assert snapshot(raw) != before


def test_an_expired_lease_is_nobodys_and_its_late_owner_renews_it(
    db: SessionDB, raw: RawSql, ids: list[int], verb: Verb
) -> None:
    db.try_acquire_session_turn_lease("s", "late")
    raw("UPDATE session_turn_leases SET expires_at = ?", time.time() - 10)
    before = snapshot(raw)
    verb(db, ids, turn_lease_holder="late")
    assert snapshot(raw) != before
    ((end,),) = raw("SELECT expires_at FROM session_turn_leases")
    assert end > time.time() + 200
    raw("UPDATE session_turn_leases SET expires_at = ?", time.time() - 10)
    verb(db, ids)


def test_a_process_that_ended_is_in_nobodys_way(db: SessionDB, ids: list[int], verb: Verb) -> None:
    gone = subprocess.run(
        [sys.executable, "-c", ENDED_PROCESS], capture_output=True, text=True, check=True
    ).stdout
    db.try_acquire_session_turn_lease("s", gone)
    db.try_acquire_compression_lock("s", gone)
    verb(db, ids)
    assert not db.has_live_session_turn_lease("s")
    assert db.get_compression_lock_holder("s") is None


def test_the_lease_of_the_conversation_covers_its_continuations(db: SessionDB, session: str) -> None:
    db.publish_continuation(session, "child", [user("summary")])
    db.try_acquire_session_turn_lease(session, "other")
    with pytest.raises(LeaseHeldError):
        db.clear_messages("child")
    assert db.message_count("child") == 1


def test_a_refused_rewriting_leaves_the_unit_of_work_alive(
    db: SessionDB, raw: RawSql, ids: list[int]
) -> None:
    db.try_acquire_compression_lock("s", "other")
    with db.unit_of_work() as uow:
        with pytest.raises(SessionCompressionInProgressError):
            uow.messages.clear("s")
        with pytest.raises(SessionCompressionInProgressError):
            uow.messages.rewind("s", ids[0])
        uow.messages.append("s", "user", "still here")
    assert raw("SELECT count(*) FROM messages WHERE content = 'still here'") == [(1,)]
