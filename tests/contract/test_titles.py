"""Titles (issue 6, item 2; known-store.md 2.7 and 8; field reports N1 to N6, E6, L8)."""

from __future__ import annotations

import multiprocessing
import threading
from typing import Any

import pytest

from hermes_state import HermesStateError, InvalidArgumentError, SessionDB, TitleConflictError
from tests.conftest import OpenDb
from tests.support.builders import user
from tests.support.raw import RawSql

BY_SESSION = "SELECT id, title, title_source FROM sessions ORDER BY id"


@pytest.fixture
def ab(db: SessionDB) -> SessionDB:
    """A store with the sessions a, b and c."""
    for name in ("a", "b", "c"):
        db.create_session(name, "cli")
    return db


def name_many(url: str, prefix: str, number: int) -> None:
    with SessionDB(url=url) as db:
        for n in range(number):
            db.create_session(f"{prefix}{n}", "cli")
            assert db.set_auto_title(f"{prefix}{n}", "same") is not None


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("  a \t\n b  ", "a b"),
        ("a\u202eb\u200bc\ufeff\u2066", "abc"),
        ("a\0b\x1bc\x7f", "abc"),
        ("\ud800x", "\N{REPLACEMENT CHARACTER}x"),
        ("x" * 100, "x" * 100),
        ("\u200b" * 20_000 + "x", "x"),
        (" \u202e ", None),
        ("", None),
        (None, None),
    ],
)
def test_a_title_is_cleaned(ab: SessionDB, raw: RawSql, given: str | None, stored: str | None) -> None:
    assert SessionDB.sanitize_title(given) == stored
    assert ab.set_session_title("a", given) is True
    assert ab.get_session_title("a") == stored
    assert raw(BY_SESSION)[0] == ("a", stored, "user" if stored else None)


@pytest.mark.parametrize("given", ["x" * 101, "\u202e" + "x y" * 7_000, 7, b"x", ["x"], True])
def test_a_title_that_is_too_long_or_no_text_is_refused(ab: SessionDB, raw: RawSql, given: Any) -> None:
    ab.set_session_title("a", "before")
    before = raw(BY_SESSION)
    with pytest.raises(InvalidArgumentError, match="too long" if isinstance(given, str) else "text"):
        ab.set_session_title("a", given)
    assert raw(BY_SESSION) == before


@pytest.mark.parametrize("session_id", ["nobody", "", "\0", "\ud800", "x" * 600])
def test_an_unknown_session_has_no_title(ab: SessionDB, raw: RawSql, session_id: str) -> None:
    assert ab.set_session_title(session_id, "t") is False
    assert ab.set_auto_title(session_id, "t") is None
    ab.set_session_title_source(session_id, "user")
    assert (ab.get_session_title(session_id), ab.get_session_title_source(session_id)) == (None, None)
    assert [row[1] for row in raw(BY_SESSION)] == [None] * 3


def test_a_taken_title_is_a_typed_conflict_that_names_the_owner(ab: SessionDB, raw: RawSql) -> None:
    ab.set_session_title("a", "mine")
    with pytest.raises(TitleConflictError, match="already in use") as conflict:
        ab.set_session_title("b", "mine")
    assert (conflict.value.title, conflict.value.owner_session_id) == ("mine", "a")
    assert isinstance(conflict.value, ValueError)
    assert ab.set_session_title("a", "mine") is True
    assert ab.set_session_title("b", "Mine") is True
    assert ab.set_session_title("a", None) is True
    assert ab.set_session_title("c", "mine") is True


def test_a_conflict_leaves_the_unit_of_work_alive(ab: SessionDB, raw: RawSql) -> None:
    ab.set_session_title("a", "mine")
    with ab.unit_of_work() as uow:
        uow.messages.append("b", "user", "before")
        with pytest.raises(TitleConflictError):
            uow.titles.set("b", "mine")
        uow.messages.append("b", "user", "after")
        uow.titles.set("b", "other")
    assert ab.message_count("b") == 2
    assert ab.get_session_title("b") == "other"


def test_a_race_for_a_title_is_undone_to_a_savepoint(
    open_db: OpenDb, raw: RawSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = open_db()
    for name in ("a", "b"):
        db.create_session(name, "cli")
    db.set_session_title("a", "mine")
    looked: list[str | None] = [None]  # the first look finds nobody, as if the other came in between
    from hermes_state.repositories.titles import TitleRepository

    look = TitleRepository._owner
    monkeypatch.setattr(
        TitleRepository, "_owner", lambda self, title: looked.pop() if looked else look(self, title)
    )
    with db.unit_of_work() as uow:
        with pytest.raises(TitleConflictError):
            uow.titles.set("b", "mine")
        uow.messages.append("b", "user", "goes on")
    looked.append(None)
    assert db.set_auto_title("b", "mine") == "mine #2"
    assert db.message_count("b") == 1


def test_a_title_moves_along_compression_edges_only(ab: SessionDB, raw: RawSql) -> None:
    ab.append_message("a", "user", "x")
    ab.set_session_title("a", "topic")
    ab.publish_continuation("a", "child", [user("summary")])
    ab.publish_continuation("child", "grandchild", [user("summary")])
    assert ab.set_session_title("grandchild", "topic") is True
    assert (ab.get_session_title("a"), ab.get_session_title("grandchild")) == (None, "topic")
    with pytest.raises(TitleConflictError):  # downwards it does not move
        ab.set_session_title("a", "topic")
    ab.create_branch("grandchild", "branch")
    with pytest.raises(TitleConflictError):
        ab.set_session_title("branch", "topic")


def test_a_cycle_of_parents_ends(ab: SessionDB, raw: RawSql) -> None:
    raw(
        "UPDATE sessions SET parent_session_id = 'b', kind = 'continuation', end_reason = 'compression' WHERE id = 'a'"
    )
    raw(
        "UPDATE sessions SET parent_session_id = 'a', kind = 'continuation', end_reason = 'compression' WHERE id = 'b'"
    )
    ab.set_session_title("a", "topic")
    assert ab.set_session_title("b", "topic") is True
    assert ab.get_session_title("a") is None


def test_an_automatic_title_numbers_itself(ab: SessionDB) -> None:
    assert [ab.set_auto_title(name, "notes", "derived") for name in "abc"] == [
        "notes",
        "notes #2",
        "notes #3",
    ]
    long = "x" * 100
    ab.set_session_title("a", long)
    name = ab.set_auto_title("b", long)
    assert name == "x" * 97 + " #2"
    assert ab.set_auto_title("c", long) == "x" * 97 + " #3"


@pytest.mark.parametrize(
    ("first", "second", "wins"),
    [
        ("derived", "derived", False), ("derived", "llm", True), ("llm", "derived", False), ("llm", "llm", False),
        ("user", "llm", False), ("branch", "llm", True),
    ],
)  # fmt: skip
def test_a_name_is_replaced_only_by_a_higher_rank(
    ab: SessionDB, raw: RawSql, first: str, second: str, wins: bool
) -> None:
    raw("UPDATE sessions SET title = 'first', title_source = ? WHERE id = 'a'", first)
    assert ab.set_auto_title("a", "second", second) == ("second" if wins else None)
    assert ab.get_session_title_source("a") == (second if wins else first)


def test_a_name_of_unknown_origin_stays(ab: SessionDB, raw: RawSql) -> None:
    raw("UPDATE sessions SET title = 'by another program' WHERE id = 'a'")
    assert ab.set_auto_title("a", "llm says") is None
    ab.set_session_title_source("a", "derived")
    assert ab.set_auto_title("a", "llm says") == "llm says"
    for source in ("user", "robot", ""):
        with pytest.raises(InvalidArgumentError):
            ab.set_auto_title("a", "x", source)


def test_numbers_go_on_from_the_highest_and_characters_are_literal(ab: SessionDB, raw: RawSql) -> None:
    for name, title in (("a", "100%_done"), ("b", "100%_done #2"), ("c", "100XYdone #7")):
        ab.set_session_title(name, title)
    assert ab.get_next_title_in_lineage("100%_done") == "100%_done #3"
    assert ab.get_next_title_in_lineage("100%_done #2") == "100%_done #3"
    assert ab.get_next_title_in_lineage("free #9") == "free"
    assert ab.get_next_title_in_lineage("100") == "100"
    with pytest.raises(InvalidArgumentError):
        ab.get_next_title_in_lineage(" ")


def test_a_session_is_found_by_its_title_letter_by_letter(ab: SessionDB, raw: RawSql) -> None:
    ab.set_session_title("a", "alpha")
    found = ab.get_session_by_title("alpha")
    assert found is not None
    assert found["id"] == "a"
    for other in ("Alpha", "alph", "alpha ", "%", "_lpha", "\0", "\ud800", ""):
        assert ab.get_session_by_title(other) is None
        assert ab.resolve_session_by_title(other) is None


def test_the_newest_numbered_variant_wins_over_the_plain_title(ab: SessionDB, raw: RawSql) -> None:
    ab.set_session_title("a", "topic")
    assert ab.resolve_session_by_title("topic") == "a"
    ab.set_session_title("b", "topic #2")
    ab.set_session_title("c", "topic #10 and more")
    raw("UPDATE sessions SET started_at = 1 WHERE id = 'b'")
    assert ab.resolve_session_by_title("topic") == "b"


def test_processes_naming_at_once_all_get_a_name(db: SessionDB, store_url: str, raw: RawSql) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=name_many, args=(store_url, prefix, 4)) for prefix in "xyz"]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 3
    assert sorted(raw.column("SELECT title FROM sessions")) == sorted(
        ["same", *(f"same #{n}" for n in range(2, 13))]
    )


def name_again(url: str, session_id: str, number: int, gate: Any, answers: Any) -> None:
    """Takes the same titles as another process at the same moment, each between two messages of one unit of work."""
    outcome: list[str] = []
    with SessionDB(url=url) as db:
        for n in range(number):
            gate.wait(60)
            try:
                with db.unit_of_work() as uow:
                    uow.messages.append(session_id, "user", f"before {n}")
                    try:
                        uow.titles.set(session_id, f"title {n}")
                        outcome.append("got")
                    except TitleConflictError as conflict:
                        outcome.append(f"lost to {conflict.owner_session_id}")
                    uow.titles.set_auto(f"{session_id}-auto-{n}", "automatic", "llm")
                    uow.messages.append(session_id, "user", f"after {n}")
            except HermesStateError as error:
                outcome.append(repr(error))
    answers.put((session_id, outcome))


def test_of_processes_that_take_the_same_title_one_gets_it_and_all_transactions_survive(
    db: SessionDB, store_url: str, raw: RawSql
) -> None:
    number = 12
    for name in ("x", "y"):
        db.create_session(name, "cli")
        for n in range(number):
            db.create_session(f"{name}-auto-{n}", "cli")
    context = multiprocessing.get_context("spawn")
    gate, answers = context.Barrier(2), context.Queue()
    processes = [
        context.Process(target=name_again, args=(store_url, name, number, gate, answers))
        for name in ("x", "y")
    ]
    for process in processes:
        process.start()
    found = dict(answers.get(timeout=120) for _ in processes)
    for process in processes:
        process.join(60)
    # A title is free again when its owner took the next one, so the slower one may get it after all.
    assert {*found["x"], *found["y"]} <= {"got", "lost to x", "lost to y"}
    assert "lost to x" not in found["x"]
    assert [db.message_count(name) for name in ("x", "y")] == [2 * number] * 2
    automatic = raw.column("SELECT title FROM sessions WHERE title LIKE 'automatic%'")
    assert sorted(automatic) == sorted(["automatic", *(f"automatic #{n}" for n in range(2, 2 * number + 1))])


def test_of_two_users_at_once_one_gets_the_title(open_db: OpenDb, raw: RawSql) -> None:
    db = open_db()
    outcomes: list[str] = []
    barrier = threading.Barrier(2)

    def take(session_id: str) -> None:
        db.create_session(session_id, "cli")
        barrier.wait(10)
        try:
            db.set_session_title(session_id, "mine")
            outcomes.append("got")
        except TitleConflictError:
            outcomes.append("lost")

    threads = [threading.Thread(target=take, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["got", "lost"]
