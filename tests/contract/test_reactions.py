"""Reactions to messages (issue 3; known store, section 2.3): they stay with the message and are handed out once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from hermes_state import InvalidArgumentError, SessionDB
from tests.support.builders import (
    REPLACEMENT,
    SURROGATE,
    assert_counters_are_exact,
    assistant,
    snapshot,
    user,
)
from tests.support.raw import RawSql

THUMB, HEART = "\N{THUMBS UP SIGN}", "\N{HEAVY BLACK HEART}"


def fill(db: SessionDB, *messages: dict[str, Any], session_id: str = "s") -> list[int]:
    db.append_messages_batch(session_id, list(messages))
    return [int(message["_row_id"]) for message in messages]


def seen_as(reactions: Any) -> list[tuple[int, str, str]]:
    return [(r["row_id"], r["actor"], r["emoji"]) for r in reactions]


def test_a_reaction_is_set_changed_and_removed(db: SessionDB, raw: RawSql, session: str) -> None:
    question, answer = fill(db, user(), assistant())
    before = snapshot(raw)
    assert db.set_message_reaction("s", answer, THUMB)
    assert db.set_message_reaction("s", answer, HEART, "anna")
    assert db.set_message_reaction("s", question, THUMB, "agent", seen=True)
    assert seen_as(db.get_message_reactions("s", answer)) == [
        (answer, "user", THUMB),
        (answer, "anna", HEART),
    ]
    assert db.set_message_reaction("s", answer, HEART)
    assert seen_as(db.get_message_reactions("s", answer)) == [
        (answer, "anna", HEART),
        (answer, "user", HEART),
    ]
    for nothing in (None, ""):
        assert db.set_message_reaction("s", answer, nothing, "anna")
        assert seen_as(db.get_message_reactions("s", answer)) == [(answer, "user", HEART)]
    (own,) = db.get_message_reactions("s", question)
    assert (own["role"], own["seen"], own["set_at"] > 1e9) == ("user", True, True)
    assert len(db.get_message_reactions("s")) == 2
    assert snapshot(raw) == before


def test_what_is_unseen_is_handed_out_once(db: SessionDB, session: str) -> None:
    question, answer = fill(db, user(), assistant())
    assert db.take_unseen_reactions("s") == []
    db.set_message_reaction("s", answer, THUMB)
    db.set_message_reaction("s", question, HEART, "agent", seen=True)
    db.set_message_reaction("s", question, HEART, "anna")
    taken = db.take_unseen_reactions("s")
    assert seen_as(taken) == [(answer, "user", THUMB), (question, "anna", HEART)]
    assert [(r["role"], r["seen"]) for r in taken] == [("assistant", True), ("user", True)]
    assert db.take_unseen_reactions("s") == []
    db.set_message_reaction("s", answer, THUMB)
    assert db.take_unseen_reactions("s") == [], "the same again is nothing new"
    db.set_message_reaction("s", answer, HEART)
    assert seen_as(db.take_unseen_reactions("s")) == [(answer, "user", HEART)]
    db.set_message_reaction("s", answer, None)
    assert db.take_unseen_reactions("s") == []


def test_of_many_takers_at_once_one_gets_each_reaction(
    db: SessionDB, session: str, open_db: Callable[..., SessionDB]
) -> None:
    rows = fill(db, *[assistant(str(number)) for number in range(20)])
    for row in rows:
        db.set_message_reaction("s", row, THUMB)
    taken: list[int] = []
    start = threading.Barrier(6)

    def take(store: SessionDB) -> None:
        start.wait()
        taken.extend(reaction["row_id"] for reaction in store.take_unseen_reactions("s"))

    takers = [threading.Thread(target=take, args=(open_db(),)) for _ in range(6)]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join()
    assert sorted(taken) == rows


def test_a_compaction_with_a_list_from_before_neither_loses_nor_repeats_a_reaction(
    db: SessionDB, raw: RawSql, session: str
) -> None:
    old, kept = fill(db, user("old"), assistant("kept"))
    tail = db.get_messages("s")[-1:]
    db.set_message_reaction("s", kept, THUMB)
    db.set_message_reaction("s", old, HEART)
    assert len(db.take_unseen_reactions("s")) == 2
    db.archive_and_compact("s", [user("summary"), *tail], tail_count=1)
    copy = db.get_active_message_ids("s")[-1]
    assert db.take_unseen_reactions("s") == []
    assert seen_as(db.get_message_reactions("s", copy)) == [(copy, "user", THUMB)]
    assert seen_as(db.get_message_reactions("s", kept)) == [(copy, "user", THUMB)]
    assert seen_as(db.get_message_reactions("s")) == [(copy, "user", THUMB), (old, "user", HEART)]
    assert db.set_message_reaction("s", kept, HEART), "the old row id still leads to the message"
    assert seen_as(db.take_unseen_reactions("s")) == [(copy, "user", HEART)]
    assert_counters_are_exact(raw)


def test_a_continuation_carries_reactions_on(db: SessionDB, session: str) -> None:
    first, last = fill(db, user("first"), assistant("last"))
    db.set_message_reaction("s", first, THUMB)
    db.set_message_reaction("s", last, THUMB)
    db.publish_continuation("s", "b", [user("summary"), *db.get_messages("s")[-1:]])
    copy = db.get_active_message_ids("b")[-1]
    assert seen_as(db.take_unseen_reactions("b")) == [(first, "user", THUMB), (copy, "user", THUMB)]
    assert seen_as(db.get_message_reactions("b", copy)) == [(copy, "user", THUMB)]
    assert db.set_message_reaction("b", copy, HEART)
    assert seen_as(db.get_message_reactions("b")) == [(first, "user", THUMB), (copy, "user", HEART)]
    assert db.set_message_reaction("b", copy, None)
    assert db.get_message_reactions("b", copy) == []
    assert db.take_unseen_reactions("b") == []
    assert db.take_unseen_reactions("s") == []


def test_what_is_taken_back_has_no_reactions_until_it_is_restored(db: SessionDB, session: str) -> None:
    question, answer = fill(db, user(), assistant())
    db.set_message_reaction("s", answer, THUMB)
    db.rewind_to_message("s", question)
    assert db.take_unseen_reactions("s") == []
    assert db.get_message_reactions("s") == db.get_message_reactions("s", answer) == []
    assert not db.set_message_reaction("s", answer, HEART)
    db.restore_rewound("s", question)
    assert seen_as(db.take_unseen_reactions("s")) == [(answer, "user", THUMB)]


def test_other_sessions_and_their_rows_have_no_part_in_it(db: SessionDB, raw: RawSql, session: str) -> None:
    db.create_session("other", "cli")
    (mine,), (foreign,) = fill(db, user()), fill(db, user(), session_id="other")
    db.set_message_reaction("s", mine, THUMB)
    for session_id, row in (
        ("s", foreign),
        ("other", mine),
        ("s", 0),
        ("s", -1),
        ("s", 2**63),
        ("?", mine),
        ("", mine),
        ("\x00", mine),
    ):
        assert not db.set_message_reaction(session_id, row, HEART)
        assert db.get_message_reactions(session_id, row) == []
    assert (
        db.take_unseen_reactions("other")
        == db.take_unseen_reactions("?")
        == db.take_unseen_reactions("")
        == []
    )
    assert db.get_message_reactions("") == []
    assert raw.column("SELECT emoji FROM message_reactions") == [THUMB]


def test_a_branch_begins_without_reactions(db: SessionDB, session: str) -> None:
    (row,) = fill(db, user())
    db.set_message_reaction("s", row, THUMB)
    db.create_branch("s", "branch")
    assert db.get_message_reactions("branch") == db.take_unseen_reactions("branch") == []


def test_text_is_cleaned_and_bounded(db: SessionDB, raw: RawSql, session: str) -> None:
    (row,) = fill(db, user())
    assert db.set_message_reaction("s", row, f":%_\\{SURROGATE}\x00:", "a%_'")
    assert raw("SELECT emoji, actor FROM message_reactions") == [
        (f":%_\\{REPLACEMENT}{REPLACEMENT}:", "a%_'")
    ]
    db.set_message_reaction("s", row, "x" * 64)
    with pytest.raises(InvalidArgumentError) as caught:
        db.set_message_reaction("s", row, "x" * 65)
    assert caught.value.argument == "emoji"


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"emoji": 1}, "emoji"),
        ({"emoji": b"x"}, "emoji"),
        ({"actor": ""}, "actor"),
        ({"actor": None}, "actor"),
        ({"actor": "x" * 513}, "actor"),
        ({"actor": "\x00"}, "actor"),
        ({"seen": 1}, "seen"),
        ({"row_id": True}, "row_id"),
        ({"row_id": "1"}, "row_id"),
    ],
)
def test_unfit_arguments_are_refused(
    db: SessionDB, raw: RawSql, session: str, arguments: dict[str, Any], name: str
) -> None:
    (row,) = fill(db, user())
    with pytest.raises(InvalidArgumentError) as caught:
        db.set_message_reaction("s", **{"row_id": row, "emoji": THUMB, **arguments})
    assert caught.value.argument == name
    assert raw("SELECT * FROM message_reactions") == []


def test_reactions_of_deleted_messages_are_not_shown(db: SessionDB, raw: RawSql, session: str) -> None:
    gone, stays = fill(db, user("a"), user("b"))
    for row in (gone, stays):
        db.set_message_reaction("s", row, THUMB)
    db.delete_messages("s", [gone])
    assert seen_as(db.get_message_reactions("s")) == [(stays, "user", THUMB)]
    assert seen_as(db.take_unseen_reactions("s")) == [(stays, "user", THUMB)]


def test_reactions_work_inside_a_unit(db: SessionDB, session: str) -> None:
    (row,) = fill(db, user())

    def react_and_fail() -> None:
        with db.unit_of_work() as uow:
            assert uow.reactions.set("s", row, THUMB)
            assert len(uow.reactions.take_unseen("s")) == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        react_and_fail()
    assert db.get_message_reactions("s") == []


def test_reactions_travel_with_an_export(db: SessionDB, raw: RawSql, session: str) -> None:
    question, answer = fill(db, user(), assistant())
    assert "reactions" not in (db.export_session("s") or {})
    db.set_message_reaction("s", question, HEART, "agent", seen=True)
    db.set_message_reaction("s", answer, THUMB, "a%_'")
    exported = json.loads(json.dumps(db.export_session("s")))
    report = db.import_sessions([exported | {"id": "copy"}])
    assert (report["ok"], report["imported"]) == (True, 1)
    mine, theirs = (
        [
            (r["message_uid"], r["actor"], r["emoji"], r["set_at"], r["seen"])
            for r in db.get_message_reactions(name)
        ]
        for name in ("s", "copy")
    )
    assert mine == theirs
    assert [r["actor"] for r in db.take_unseen_reactions("copy")] == ["a%_'"]
    renamed = db.import_sessions([exported], on_existing="rename")
    assert len(db.get_message_reactions(renamed["imported_ids"][0])) == 2


GOOD = {"message_uid": "u", "actor": "anna", "emoji": THUMB, "set_at": 5.0, "seen": False}


@pytest.mark.parametrize(
    "reactions",
    [
        "text",
        {"a": 1},
        [1],
        [GOOD | {"actor": ""}],
        [GOOD | {"message_uid": None}],
        [GOOD | {"emoji": ""}],
        [GOOD | {"emoji": "x" * 65}],
        [GOOD | {"set_at": "now"}],
        [GOOD | {"set_at": 1e300}],
        [GOOD | {"seen": 2}],
    ],
)
def test_an_import_with_what_is_no_reaction_writes_nothing(
    db: SessionDB, raw: RawSql, reactions: Any
) -> None:
    report = db.import_sessions([{"id": "s", "source": "cli", "reactions": reactions}])
    assert (report["ok"], len(report["errors"])) == (False, 1)
    assert snapshot(raw) == []


def test_of_repeated_reactions_in_an_import_the_last_counts(db: SessionDB, raw: RawSql) -> None:
    given = [GOOD, GOOD | {"emoji": HEART, "set_at": None, "unknown": 1}]
    assert db.import_sessions([{"id": "s", "source": "cli", "reactions": given}])["ok"]
    ((emoji, set_at),) = raw("SELECT emoji, set_at FROM message_reactions")
    assert (emoji, set_at > 1e9) == (HEART, True)
