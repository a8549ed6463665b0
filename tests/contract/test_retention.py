"""Old conversations go as a whole or not at all (issue 6, item 4; field reports I7, K6, L6, L7, L8)."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from typing import Any

import pytest

from hermes_state import InvalidArgumentError, SessionDB
from tests.conftest import OpenDb
from tests.support.builders import user
from tests.support.raw import RawSql

DAY = 86_400.0


def ids(raw: RawSql) -> list[str]:
    return sorted(raw.column("SELECT id FROM sessions"))


def old(raw: RawSql, *names: str, days: float = 200, ended: bool = True) -> None:
    """Makes sessions look as if nobody had used them for so long."""
    then = time.time() - days * DAY
    for name in names:
        raw("UPDATE sessions SET started_at = ?, last_active_at = NULL WHERE id = ?", then - DAY, name)
        if raw.value("SELECT count(*) FROM messages WHERE session_id = ?", name):
            raw("UPDATE sessions SET last_active_at = ? WHERE id = ?", then, name)
        if ended:
            raw("UPDATE sessions SET ended_at = coalesce(ended_at, ?) WHERE id = ?", then, name)


def made(db: SessionDB, raw: RawSql, *names: str, source: str = "cli", days: float = 200) -> None:
    for name in names:
        db.create_session(name, source)
    old(raw, *names, days=days)


def pruned(db: SessionDB, raw: RawSql, *arguments: Any, **named: Any) -> list[str]:
    """What the dry run names is exactly what goes."""
    before = ids(raw)
    named_before = db.list_prune_candidates(*arguments, **named)
    assert ids(raw) == before
    assert db.count_prune_matches(*arguments, **named) == len(named_before)
    assert db.prune_sessions(*arguments, **named) == len(named_before)
    gone = sorted(set(before) - set(ids(raw)))
    assert gone == sorted(named_before)
    return gone


def test_the_last_activity_decides_and_only_ended_sessions_go(db: SessionDB, raw: RawSql) -> None:
    made(db, raw, "old", "used", "open", "new", "never used")
    db.reopen_session("used")
    db.append_message("used", "user", "yesterday")
    db.end_session("used", "done")
    db.reopen_session("open")
    db.create_session("fresh", "cli")
    db.end_session("fresh", "done")
    old(raw, "new", days=80)
    assert pruned(db, raw) == ["never used", "old"]
    assert db.count_idle_open_sessions() == 1
    assert pruned(db, raw, 79) == ["new"]
    assert pruned(db, raw, 0) == ["fresh", "used"]
    assert ids(raw) == ["open"]


def test_a_conversation_goes_as_a_whole(db: SessionDB, raw: RawSql) -> None:
    for name in ("x", "y", "z"):
        db.create_session(name, "cli")
        db.append_message(name, "user", "text")
        db.publish_continuation(name, f"{name}2", [user("summary")])
        db.publish_continuation(f"{name}2", f"{name}3", [user("summary")])
        old(raw, name, f"{name}2", f"{name}3")
    db.reopen_session("y3")
    old(raw, "z3", days=1)
    assert pruned(db, raw) == ["x", "x2", "x3"]
    assert db.get_compression_lineage("y") == ["y", "y2", "y3"]
    assert raw.value("SELECT count(*) FROM sessions WHERE root_session_id = 'z'") == 2


def test_delegates_go_along_and_branches_stay(db: SessionDB, raw: RawSql) -> None:
    made(db, raw, "p")
    for name, parent in (("d", "p"), ("dd", "d")):
        db.create_session(name, "cli", parent_session_id=parent, model_config={"_delegate_from": parent})
        old(raw, name, ended=False)
    db.publish_continuation("dd", "dd2", [user("x")])
    both = {"_delegate_from": "p", "_branched_from": "p"}
    db.create_session("both", "cli", parent_session_id="p", model_config=both)
    db.create_branch("p", "branch")
    old(raw, "dd2", "both", "branch", ended=False)
    assert pruned(db, raw) == ["d", "dd", "dd2", "p"]
    assert ids(raw) == ["both", "branch"]
    assert raw.column("SELECT parent_session_id FROM sessions") == [None, None]


def test_a_delegate_that_is_in_use_keeps_its_conversation(db: SessionDB, raw: RawSql) -> None:
    made(db, raw, "p")
    db.create_session("d", "cli", parent_session_id="p", model_config={"_delegate_from": "p"})
    assert pruned(db, raw) == []
    old(raw, "d")
    db.create_session("alone", "cli", parent_session_id="p", model_config={"_delegate_from": "p"})
    old(raw, "alone")
    db.create_session("q", "cli")
    raw("UPDATE sessions SET parent_session_id = 'q' WHERE id = 'alone'")
    assert pruned(db, raw) == ["d", "p"]  # the delegate of a session that lives stays with it
    assert ids(raw) == ["alone", "q"]


def test_pins_leases_and_locks_keep_a_conversation(db: SessionDB, raw: RawSql) -> None:
    for name in ("pin", "turn", "lock", "late"):
        db.create_session(name, "cli")
        db.append_message(name, "user", "x")
        db.publish_continuation(name, f"{name}2", [user("x")])
    db.acquire_session_turn_lease("turn2", "somebody")
    assert db.try_acquire_compression_lock("lock2", "somebody")
    db.acquire_session_turn_lease("late2", "somebody")
    raw("UPDATE session_turn_leases SET expires_at = 1 WHERE conversation_id = 'late'")
    raw("UPDATE sessions SET pinned = ? WHERE id = 'pin2'", True)
    old(raw, *(f"{name}{end}" for name in ("pin", "turn", "lock", "late") for end in ("", "2")))
    assert pruned(db, raw) == ["late", "late2"]
    assert raw.column("SELECT conversation_id FROM session_turn_leases") == ["turn"]


@pytest.mark.parametrize("source", ["100%_done", "a\\b", "cron"])
def test_a_source_is_literal_and_means_any_age_unless_days_are_given(
    db: SessionDB, raw: RawSql, source: str
) -> None:
    made(db, raw, "young", source=source, days=1)
    made(db, raw, "aged", source=source)
    for number, other in enumerate(("100XYdone", "100%_done2", "ab", "CRON", "cli")):
        made(db, raw, f"other-{number}", source=other)
    assert pruned(db, raw, 90, source) == ["aged"]
    assert pruned(db, raw, source=source) == ["young"]
    for nothing in ("", "%", "_", "\0", "nobody"):
        assert pruned(db, raw, source=nothing) == []
    assert len(ids(raw)) == 5


@pytest.mark.parametrize("days", [-1, -0.5, float("nan"), float("inf"), "90", True, 10**400])
def test_days_that_are_no_age_are_refused(db: SessionDB, raw: RawSql, days: Any) -> None:
    made(db, raw, "s")
    verbs: tuple[Any, ...] = (
        db.prune_sessions, db.list_prune_candidates, db.count_prune_matches, db.archive_stale_sessions,
        db.count_idle_open_sessions,
    )  # fmt: skip
    for verb in verbs:
        with pytest.raises(InvalidArgumentError):
            verb(days)
        with pytest.raises(InvalidArgumentError):
            verb(90, 7)
    assert ids(raw) == ["s"]
    assert raw.value("SELECT archived FROM sessions") in (0, False)


def test_many_conversations_go_in_parts(db: SessionDB, raw: RawSql, tmp_path: Path) -> None:
    with db.unit_of_work() as uow:
        for number in range(450):
            uow.sessions.create(f"s-{number:03}", "cli")
    raw("UPDATE sessions SET started_at = 1, ended_at = 1 WHERE id <> 's-007'")
    (tmp_path / "s-449.json").write_text("x")
    (tmp_path / "s-007.json").write_text("x")
    seen: list[int] = []
    assert db.prune_sessions(sessions_dir=tmp_path, on_part=seen.append) == 449
    assert ids(raw) == ["s-007"]
    assert [path.name for path in tmp_path.glob("*.json")] == ["s-007.json"]
    assert seen == sorted(seen)
    assert len(seen) > 1
    assert seen[-1] == 449


def test_parents_of_other_programs_and_circles_do_not_disturb(db: SessionDB, raw: RawSql) -> None:
    raw("INSERT INTO sessions (id, started_at, ended_at) VALUES ('raw', 1, 2)")
    raw("INSERT INTO sessions (id, started_at, ended_at, parent_session_id) VALUES ('next', 1, 2, 'raw')")
    raw(
        "INSERT INTO sessions (id, started_at, parent_session_id, model_config) VALUES ('odd', 1, 'raw', '{')"
    )
    for name in "ab":
        raw("INSERT INTO sessions (id, started_at, ended_at) VALUES (?, 1, 2)", name)
    raw("UPDATE sessions SET parent_session_id = 'b' WHERE id = 'a'")
    raw("UPDATE sessions SET parent_session_id = 'a' WHERE id = 'b'")
    assert pruned(db, raw) == []  # one session of the conversation is open
    raw("UPDATE sessions SET ended_at = 3 WHERE id = 'odd'")
    assert pruned(db, raw) == ["next", "odd", "raw"]
    assert ids(raw) == ["a", "b"]


def test_stale_conversations_are_hidden_open_ones_too(db: SessionDB, raw: RawSql) -> None:
    made(db, raw, "old", "open", "pinned")
    db.reopen_session("open")
    raw("UPDATE sessions SET pinned = ? WHERE id = 'pinned'", True)
    db.create_session("new", "cli")
    assert db.archive_stale_sessions() == 2
    assert sorted(raw.column("SELECT id FROM sessions WHERE archived AND auto_archived")) == ["old", "open"]
    assert [session["id"] for session in db.list_sessions() if session["id"] != "pinned"] == ["new"]
    assert db.archive_stale_sessions() == 0


def test_the_automatic_run_says_what_it_did_and_waits(db: SessionDB, raw: RawSql) -> None:
    made(db, raw, "a")
    nothing = {"skipped": False, "pruned": 0, "vacuumed": False, "error": None}
    before = time.time()
    assert db.maybe_auto_prune_and_vacuum() == {**nothing, "pruned": 1}
    assert (
        before
        <= float(raw.value("SELECT value FROM state_meta WHERE key = 'last_auto_prune'"))
        <= time.time()
    )
    made(db, raw, "b")
    assert db.maybe_auto_prune_and_vacuum() == {**nothing, "skipped": True}
    for stored in ("", "yesterday", "nan", "inf", None, str(time.time() + DAY), str(before - 2 * DAY)):
        raw("UPDATE state_meta SET value = ? WHERE key = 'last_auto_prune'", stored)
        report = db.maybe_auto_prune_and_vacuum(retention_days=1000)
        assert report == nothing, stored
    assert db.maybe_auto_prune_and_vacuum(min_interval_hours=0)["pruned"] == 1
    assert db.maybe_auto_prune_and_vacuum(min_interval_hours=0) == nothing


def test_the_automatic_run_never_raises(db: SessionDB, open_db: OpenDb, raw: RawSql) -> None:
    made(db, raw, "a")
    unfit: list[dict[str, Any]] = [{"retention_days": -1}, {"min_interval_hours": "x"}, {"sessions_dir": 7}]
    for arguments in unfit:
        report = db.maybe_auto_prune_and_vacuum(**arguments)
        assert report["error"] is not None
        assert report["error"].startswith("InvalidArgumentError: ")
    reading = open_db(read_only=True)
    assert "StoreReadOnlyError" in str(reading.maybe_auto_prune_and_vacuum()["error"])
    closed = open_db()
    closed.close()
    assert "StoreClosedError" in str(closed.maybe_auto_prune_and_vacuum()["error"])
    assert ids(raw) == ["a"]
    assert raw.column("SELECT key FROM state_meta") == []


@pytest.mark.parametrize("backend", ["sqlite"])
def test_the_file_is_rewritten_only_when_much_of_it_is_free_and_once_a_month(
    db: SessionDB, raw: RawSql, tmp_path: Path
) -> None:
    def fill(name: str) -> None:
        db.create_session(name, "cli")
        db.append_message(name, "user", "x" * 2_000_000)
        old(raw, name)

    fill("small")
    db.create_session("kept", "cli")
    for _ in range(3):
        db.append_message("kept", "user", "x" * 4_000_000)
    assert db.maybe_auto_prune_and_vacuum(min_interval_hours=0)["vacuumed"] is False
    db.delete_session("kept")
    fill("a")
    raw.close()
    report = db.maybe_auto_prune_and_vacuum(min_interval_hours=0)
    assert (report["pruned"], report["vacuumed"], report["error"]) == (1, True, None)
    assert db.get_meta("last_auto_vacuum") is not None
    assert (tmp_path / "state.db").stat().st_size < 1_000_000
    db.create_session("b", "cli")
    db.append_message("b", "user", "x" * 2_000_000)
    db.end_session("b", "done")
    report = db.maybe_auto_prune_and_vacuum(0, min_interval_hours=0)
    assert (report["pruned"], report["vacuumed"]) == (1, False)


def auto_prune(url: str, answers: Any) -> None:
    with SessionDB(url=url) as db:
        answers.put(db.maybe_auto_prune_and_vacuum())


def test_of_several_processes_one_prunes(db: SessionDB, store_url: str, raw: RawSql) -> None:
    made(db, raw, *(f"s{number}" for number in range(20)))
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    processes = [context.Process(target=auto_prune, args=(store_url, answers)) for _ in range(3)]
    for process in processes:
        process.start()
    found = [answers.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(60)
    assert sorted(report["skipped"] for report in found) == [False, True, True]
    assert sum(report["pruned"] for report in found) == 20
    assert [report["error"] for report in found] == [None] * 3
    assert ids(raw) == []
