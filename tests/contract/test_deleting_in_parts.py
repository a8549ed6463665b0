"""A huge conversation goes in short transactions: nobody waits for the write lock (issue 6, speed; field report L11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hermes_state import DeletionConflictError, SessionDB
from hermes_state.repositories import deleting, pruning
from hermes_state.repositories.verifying import HALF_DELETED
from hermes_state.store import deleting as verbs
from hermes_state.store import retention
from tests.support.builders import caller, user
from tests.support.raw import RawSql

Look = Callable[[], object]


@pytest.fixture
def big(db: SessionDB, raw: RawSql, monkeypatch: pytest.MonkeyPatch) -> SessionDB:
    """An ended session of 25 messages with a delegate of 12, where 10 are too many for one transaction."""
    for module in (deleting, pruning):
        monkeypatch.setattr(module, "MESSAGES_A_PART", 10)
    db.create_session("big", "cli")
    db.append_messages_batch("big", [user("q"), caller("x", "y")] * 10)
    db.rewind_to_message("big", db.append_message("big", "user", "taken back"))
    db.append_messages_batch("big", [user("q")] * 4)
    db.create_session("work", "cli", parent_session_id="big", model_config={"_delegate_from": "big"})
    db.append_messages_batch("work", [user("q")] * 12)
    db.create_session("small", "cli")
    db.append_message("small", "user", "stays")
    db.end_session("big", "done")
    return db


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> list[Look]:
    """What is called between two transactions."""
    looks: list[Look] = []

    def look(started: float) -> None:
        for each in looks:
            each()

    for module in (verbs, retention):
        monkeypatch.setattr(module, "pause_after", look)
    return looks


def left(raw: RawSql) -> tuple[int, int]:
    found = dict(raw("SELECT session_id, count(*) FROM messages GROUP BY session_id"))
    return found.get("big", 0), found.get("work", 0)


@pytest.mark.parametrize("how", ["delete", "prune"])
def test_it_is_hidden_loses_its_oldest_messages_and_goes(
    big: SessionDB, raw: RawSql, between: list[Look], how: str
) -> None:
    seen: list[tuple[int, int]] = []

    def look() -> None:
        seen.append(left(raw))
        ids = [session["id"] for session in big.list_sessions_rich(include_children=True)]
        assert ids == (["small"] if left(raw) != (0, 0) else ids)
        assert {each["found"] for each in big.verify()} <= {HALF_DELETED}

    between.append(look)
    if how == "delete":
        assert big.delete_session("big") is True
    else:
        raw("UPDATE sessions SET ended_at = coalesce(ended_at, 1), source = 'old' WHERE id <> 'small'")
        assert big.prune_sessions(source="old") == 2
    assert [pair for pair in seen if pair != (0, 0)] == [(15, 12), (5, 12), (0, 7)]
    assert raw.column("SELECT id FROM sessions") == ["small"]
    assert raw.column("SELECT content FROM messages") == ["stays"]
    assert big.verify() == []


def test_what_was_taken_up_meanwhile_is_kept(big: SessionDB, raw: RawSql, between: list[Look]) -> None:
    raw("UPDATE sessions SET source = 'old', ended_at = coalesce(ended_at, 1) WHERE id <> 'small'")
    between.append(lambda: big.set_session_pinned("big", True))
    assert big.prune_sessions(source="old") == 0
    assert left(raw) == (15, 12)


def test_a_bound_of_messages_does_not_keep_the_rest_of_what_was_begun(big: SessionDB, raw: RawSql) -> None:
    raw("UPDATE sessions SET source = 'old', ended_at = coalesce(ended_at, 1) WHERE id <> 'small'")
    assert big.list_prune_candidates(0, "old", min_messages=30) == ["big", "work"]
    assert big.prune_sessions(0, "old", min_messages=30) == 2
    assert raw.column("SELECT id FROM sessions") == ["small"]
    assert big.verify() == []


def stopped(db: SessionDB, between: list[Look], work: Callable[[SessionDB], object]) -> None:
    """Has ``work`` stopped after its first transaction."""

    def stop() -> None:
        raise KeyboardInterrupt

    between.append(stop)
    with pytest.raises(KeyboardInterrupt):
        work(db)
    between.clear()


def half_deleted(db: SessionDB) -> list[str]:
    found = db.verify()
    assert {each["found"] for each in found} <= {HALF_DELETED}
    assert not any(each["repairable"] for each in found)
    return [each["id"] for each in found]


def test_a_later_run_judges_what_was_begun_by_what_it_held_before(
    big: SessionDB, raw: RawSql, between: list[Look]
) -> None:
    raw("UPDATE sessions SET source = 'old', ended_at = coalesce(ended_at, 1) WHERE id <> 'small'")
    stopped(big, between, lambda db: db.prune_sessions(0, "old", min_messages=30))
    assert left(raw) == (15, 12)
    assert big.list_prune_candidates(0, "old", max_messages=29) == []
    assert big.list_prune_candidates(0, "old", min_messages=30) == ["big", "work"]
    assert big.prune_sessions(0, "old", min_messages=30) == 2
    assert big.list_meta_prefix("deleting:") == {}


def test_verify_names_what_is_half_deleted_until_it_is_gone(big: SessionDB, between: list[Look]) -> None:
    stopped(big, between, lambda db: db.delete_session("big"))
    assert half_deleted(big) == ["big", "work"]
    assert [each["repaired"] for each in big.verify(repair=True)] == [False, False]
    assert big.delete_session("big") is True
    assert big.verify() == []
    assert big.list_meta_prefix("deleting:") == {}


def test_who_shows_it_again_keeps_what_is_left(big: SessionDB, raw: RawSql, between: list[Look]) -> None:
    stopped(big, between, lambda db: db.delete_session("big"))
    assert big.set_session_hidden("big", False) is True
    assert half_deleted(big) == ["work"]
    assert big.set_session_hidden("big", True) is True  # for a reason of its own: nothing is begun any more
    assert half_deleted(big) == ["work"]
    raw("UPDATE sessions SET source = 'old', ended_at = coalesce(ended_at, 1) WHERE id <> 'small'")
    assert big.list_prune_candidates(0, "old", min_messages=27) == []
    assert left(raw) == (15, 12)


@pytest.mark.parametrize("value", [None, "", "many big", "-1 big", "1" * 30 + " big", "12 other"])
def test_a_note_that_is_no_mark_says_nothing(
    big: SessionDB, raw: RawSql, between: list[Look], value: str | None
) -> None:
    stopped(big, between, lambda db: db.delete_session("big"))
    for key in big.list_meta_prefix("deleting:"):
        big.set_meta(key, value)
    assert half_deleted(big) == []
    assert big.delete_session("big") is True


def test_ids_of_the_greatest_length_can_be_marked(big: SessionDB, raw: RawSql, between: list[Look]) -> None:
    long = "\N{CJK UNIFIED IDEOGRAPH-4E2D}" * 512
    big.create_session(long, "cli")
    big.append_messages_batch(long, [user("q")] * 12)
    stopped(big, between, lambda db: db.delete_session(long))
    assert half_deleted(big) == [long]
    assert big.delete_session(long) is True


def test_many_ids_go_in_parts_and_are_counted_once(
    big: SessionDB, raw: RawSql, between: list[Look], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verbs, "_IDS_A_PART", 2)
    for each in "abc":
        big.create_session(each, "cli")
    seen: list[int] = []
    between.append(lambda: seen.append(raw.value("SELECT count(*) FROM sessions")))
    # 'work' goes with 'big' in the first part, and was asked for in the last.
    assert big.delete_sessions(["a", "nobody", "b", "b", "c", "big", "small", "work", ""]) == 6
    assert seen[0] == 5
    assert seen == sorted(seen, reverse=True)
    assert raw.value("SELECT count(*) FROM sessions") == 0


def test_of_many_ids_none_goes_when_one_is_not_expected(
    big: SessionDB, raw: RawSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verbs, "_IDS_A_PART", 1)
    with pytest.raises(DeletionConflictError):
        big.delete_sessions(["small", "big"], expected_delete_ids=["small", "big"])
    assert raw.value("SELECT count(*) FROM sessions") == 3
    assert big.delete_sessions(["small", "big"], expected_delete_ids=["small", "big", "work"]) == 2


def test_an_interrupted_deletion_is_called_again(big: SessionDB, raw: RawSql, between: list[Look]) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    between.append(stop)
    with pytest.raises(KeyboardInterrupt):
        big.delete_session("big")
    between.clear()
    assert big.get_session("big") is not None
    assert big.delete_session("big") is True
    assert raw.column("SELECT id FROM sessions") == ["small"]


def test_a_delegate_that_comes_meanwhile_stops_it(big: SessionDB, raw: RawSql, between: list[Look]) -> None:
    def come() -> None:
        big.ensure_session("late", "cli", parent_session_id="big", model_config={"_delegate_from": "big"})

    between.append(come)
    with pytest.raises(DeletionConflictError):
        big.delete_session("big", expected_delete_ids=["big", "work"])
    assert raw.value("SELECT count(*) FROM sessions") == 4


def test_a_unit_of_work_deletes_whole(big: SessionDB, raw: RawSql, between: list[Look]) -> None:
    between.append(lambda: pytest.fail("no pause inside a transaction"))
    with big.unit_of_work() as uow:
        assert uow.deleting.delete(["big"]) == (1, ["big", "work"])
        assert left(raw) == (25, 12)  # of others, nobody sees half of it
        uow.messages.append("small", "user", "goes on")
    assert left(raw) == (0, 0)


def test_files_go_after_the_last_part(
    big: SessionDB, raw: RawSql, between: list[Look], tmp_path: Any
) -> None:
    (tmp_path / "big.json").write_text("x")
    between.append(lambda: None if (tmp_path / "big.json").exists() else pytest.fail("too early"))
    assert big.delete_sessions(["big", "nobody", "small"], tmp_path) == 2
    assert not (tmp_path / "big.json").exists()
    assert raw.value("SELECT count(*) FROM sessions") == 0
