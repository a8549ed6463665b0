"""Imports: limits, names, runtime state, what is refused (known store, section 2.11; field reports R1, R6)."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_state import ImportLimits, InvalidArgumentError, SessionDB
from tests.contract.test_export import RUNTIME
from tests.support.builders import assert_counters_are_exact, carrier, snapshot, user
from tests.support.raw import RawSql


def test_runtime_state_in_a_list_is_not_taken(db: SessionDB, raw: RawSql) -> None:
    db.import_sessions([{"id": "s", **RUNTIME, "user_id": "u"}])
    ((*runtime, user_id),) = raw(f"SELECT {', '.join(RUNTIME)}, user_id FROM sessions")
    assert set(runtime) == {None, 0}
    assert user_id == "u"


def test_derived_columns_in_a_list_are_not_taken(db: SessionDB, raw: RawSql) -> None:
    lies = {"message_count": 99, "tool_call_count": 99, "last_active_at": 1e9, "root_session_id": "x"}
    db.import_sessions([{"id": "s", **lies, "messages": [user("a", timestamp=7.0)]}])
    assert raw("SELECT message_count, tool_call_count, last_active_at, root_session_id FROM sessions") == [
        (1, 0, 7.0, None)
    ]


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({"b": 1, "a": [1.50, "é\0"]}, '{"b":1,"a":[1.5,"é\ufffd"]}'),
        ('{"b": 1.50}', '{"b": 1.50}'),
        ("{broken", "{broken"),
        ({}, None),
        ("{}", "{}"),
    ],
)
def test_settings_may_be_a_dict_or_text_that_is_kept_to_the_letter(
    db: SessionDB, raw: RawSql, given: Any, stored: str | None
) -> None:
    assert db.import_sessions([{"id": "s", "model_config": given}])["ok"]
    assert raw.value("SELECT model_config FROM sessions") == stored


def test_an_existing_id_is_renamed_when_asked_and_its_children_follow(db: SessionDB, raw: RawSql) -> None:
    exported = [
        {"id": "c", "parent_session_id": "p", "messages": [user("in c")]},
        {"id": "p", "end_reason": "compression", "messages": [user("in p")]},
    ]
    db.import_sessions(exported)
    before = snapshot(raw)
    report = db.import_sessions(exported, on_existing="rename")
    assert (report["imported_ids"], report["skipped_ids"]) == (["c-2", "p-2"], [])
    assert report["renamed_ids"] == {"c": "c-2", "p": "p-2"}
    assert raw("SELECT id, parent_session_id, root_session_id FROM sessions ORDER BY id") == [
        ("c", "p", "p"),
        ("c-2", "p-2", "p-2"),
        ("p", None, None),
        ("p-2", None, None),
    ]
    assert raw.column("SELECT content FROM messages WHERE session_id = 'p-2'") == ["in p"]
    assert [row for row in snapshot(raw) if "-2" not in f"{row[0]}{row[1]}"] == before
    assert db.import_sessions(exported, on_existing="rename")["imported_ids"] == ["c-3", "p-3"]


def test_what_carries_a_message_on_follows_a_renamed_session(db: SessionDB, raw: RawSql) -> None:
    successor = {"session_id": "s", "message_uid": "new"}
    old = user("q", message_uid="old", active=False, _superseded_by=successor)
    session = {"id": "s", "messages": [old, user("q", message_uid="new")]}
    db.import_sessions([session])
    db.import_sessions([session], on_existing="rename")
    assert raw(
        "SELECT o.session_id, n.session_id FROM messages AS o JOIN messages AS n ON n.id = o.superseded_by "
        "ORDER BY o.id"
    ) == [("s", "s"), ("s-2", "s-2")]


def test_a_renamed_id_of_full_length_stays_within_the_bounds(db: SessionDB, raw: RawSql) -> None:
    longest = "x" * 512
    for _ in range(2):
        assert db.import_sessions([{"id": longest}], on_existing="rename")["ok"]
    assert raw.column("SELECT id FROM sessions ORDER BY id") == ["x" * 510 + "-2", longest]


def test_a_child_of_a_skipped_session_hangs_on_the_one_that_is_there(db: SessionDB, raw: RawSql) -> None:
    db.create_session("p", "cli")
    report = db.import_sessions([{"id": "c", "parent_session_id": "p"}, {"id": "p"}])
    assert (report["imported_ids"], report["skipped_ids"], report["detached_ids"]) == (["c"], ["p"], [])
    assert raw.value("SELECT parent_session_id FROM sessions WHERE id = 'c'") == "p"


def test_a_long_line_of_sessions_in_reverse_is_put_in_order(db: SessionDB, raw: RawSql) -> None:
    count = 450
    line = [{"id": f"{n}", "parent_session_id": f"{n - 1}" if n else None} for n in range(count)]
    assert db.import_sessions(line[::-1])["detached"] == 0
    assert raw.value("SELECT count(*) FROM sessions WHERE root_session_id = '0'") == count - 1


def test_detached_sessions_are_named(db: SessionDB) -> None:
    report = db.import_sessions([{"id": "a", "parent_session_id": "gone"}, {"id": "b"}])
    assert report["detached_ids"] == ["a"]


@pytest.mark.parametrize(
    ("limits", "listed", "bad", "words"),
    [
        (ImportLimits(messages_per_session=2), [2, 3, 1], [1], "3 messages in a session are more than 2"),
        (ImportLimits(messages=4), [2, 2, 1], [2], "5 messages in one import are more than 4"),
        (ImportLimits(bytes_per_session=300), [1, 9, 1], [1], "bytes in a session are more than 300"),
        (ImportLimits(bytes=300), [1, 2, 9], [2], "bytes in one import are more than 300"),
    ],
)
def test_entries_over_a_limit_are_named_and_nothing_is_written(
    db: SessionDB, raw: RawSql, limits: ImportLimits, listed: list[int], bad: list[int], words: str
) -> None:
    sessions = [{"id": f"{n}", "messages": [user("x" * 9)] * count} for n, count in enumerate(listed)]
    report = db.import_sessions(sessions, limits=limits)
    assert [error["index"] for error in report["errors"]] == bad
    assert words in report["errors"][0]["error"]
    assert snapshot(raw) == []
    assert db.import_sessions(sessions)["ok"]


def test_the_limits_are_those_of_the_known_store(db: SessionDB, raw: RawSql) -> None:
    mib = 1024 * 1024
    assert ImportLimits() == ImportLimits(500, 10_000, 50_000, 5 * mib, 25 * mib)
    with pytest.raises(InvalidArgumentError, match="501 sessions are more than 500"):
        db.import_sessions([{"id": f"{n}"} for n in range(501)])
    large = {"id": "s", "messages": [user("é" * (mib // 2))] * 6}
    (error,) = db.import_sessions([large])["errors"]
    assert error["session_id"] == "s"
    assert "6,291" in error["error"]
    assert snapshot(raw) == []


@pytest.mark.parametrize(
    "bad",
    [
        {"started_at": 10**400},
        {"started_at": True},
        {"ended_at": float("-inf")},
        {"input_tokens": 2**63},
        {"output_tokens": 1.0},
        {"rewind_count": True},
        {"archived": "yes"},
        {"parent_session_id": 7},
        {"model_config": {"a": float("nan")}},
        {"model_config": {"a": {1, 2}}},
        {"model_config": {1: 2}},
        {"model_config": [1]},
        {"source": 3},
        {"title": "x" * 513},
        {"source": "x" * 513},
        {"messages": [user(active=2)]},
        {"messages": [user(timestamp=float("nan"))]},
        {"messages": [user(timestamp=10**400)]},
        {"messages": [user({"a": float("inf")})]},
        {"messages": [user(b"bytes")]},
        {"messages": [user(token_count=2**63)]},
        {"messages": [user(_superseded_by="uid")]},
        {"messages": [None]},
        {"messages": 7},
        {"session_model_usage": {"model": "m"}},
        {"session_model_usage": ["m"]},
        {"session_model_usage": [{"model": "m", "input_tokens": -1}]},
        {"session_model_usage": [{"model": "m", "input_tokens": 2**63}]},
        {"session_model_usage": [{"model": "m", "estimated_cost_usd": float("nan")}]},
        {"session_model_usage": [{"model": 7}]},
        {"session_model_usage": [{"model": "x" * 513}]},
        {"session_daily_usage": [{"day": "2026-12-01"}] * 2},
        {"messages": {1}},
    ],
    ids=repr,
)
def test_what_no_column_holds_is_an_error_of_its_entry(db: SessionDB, raw: RawSql, bad: Any) -> None:
    report = db.import_sessions([{"id": "good"}, {"id": "x", **bad}])
    assert [(error["index"], error["session_id"]) for error in report["errors"]] == [(1, "x")]
    assert snapshot(raw) == []


def test_an_unknown_way_with_existing_ids_is_refused(db: SessionDB) -> None:
    with pytest.raises(InvalidArgumentError):
        db.import_sessions([], on_existing="overwrite")  # type: ignore[arg-type]


def test_unusable_successors_leave_the_message_superseded(db: SessionDB, raw: RawSql) -> None:
    named: list[dict[str, Any]] = [
        {},
        {"session_id": "\0", "message_uid": 7},
        {"session_id": "x", "message_uid": "y"},
    ]
    messages = [user(f"q{n}", active=False, _superseded_by=each) for n, each in enumerate(named)]
    assert db.import_sessions([{"id": "s", "messages": messages}])["ok"]
    assert db.restore_rewound("s", 0) == 0
    assert raw.value("SELECT count(*) FROM messages WHERE active") == 0


def test_an_import_inside_a_unit_of_work_takes_part_in_it(db: SessionDB, raw: RawSql) -> None:
    with pytest.raises(InvalidArgumentError), db.unit_of_work() as uow:  # noqa: PT012
        uow.portable.import_sessions([{"id": "s", "messages": [carrier("1")]}])
        uow.sessions.create("", "cli")
    assert snapshot(raw) == []
    with db.unit_of_work() as uow:
        uow.portable.import_sessions([{"id": "s", "messages": [carrier("1")]}])
    assert_counters_are_exact(raw)
