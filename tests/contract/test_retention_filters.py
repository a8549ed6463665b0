"""Filters of retention mean whole conversations, and an empty one never everything (issue 6, item 4; field reports L7, L8)."""

from __future__ import annotations

import datetime as dt
import time
from typing import Any

import pytest

from hermes_state import DeletionConflictError, InvalidArgumentError, SessionDB
from tests.support.builders import user
from tests.support.raw import RawSql

DAY = 86_400.0
NOW = time.time()


@pytest.fixture
def filled(db: SessionDB, raw: RawSql) -> SessionDB:
    """Conversations that ended yesterday, told apart by everything a filter knows; ``chain`` has three sessions."""
    for name in ("a", "b", "c", "chain"):
        db.create_session(name, "cli", model="m", cwd=f"/w/my_proj/{name}", user_id=f"u-{name}")
        for number in range({"a": 1, "b": 2, "c": 5, "chain": 3}[name]):
            db.append_message(name, "user", f"{number}")
    db.publish_continuation("chain", "chain2", [user("summary")])
    db.publish_continuation("chain2", "chain3", [user("summary")])
    for number, name in enumerate(("a", "b", "c", "chain", "chain2", "chain3")):
        db.end_session(name, "done" if name != "b" else "error")
        raw("UPDATE sessions SET started_at = ? WHERE id = ?", NOW - (20 - number) * DAY, name)
    raw("UPDATE sessions SET last_active_at = ?", NOW - DAY)
    raw("UPDATE sessions SET model = 'other' WHERE id = 'chain2'")
    raw("UPDATE sessions SET cwd = '/w/myXproj' WHERE id = 'b'")
    for name, title in (
        ("a", "user_auth"),
        ("b", "userXauth"),
        ("c", "100%"),
        ("chain3", "User_auth \\ path"),
    ):
        raw("UPDATE sessions SET title = ? WHERE id = ?", title, name)
    for name, estimated, actual in (
        ("a", 1.0, None),
        ("b", 5.0, 0.25),
        ("chain", 1.5, None),
        ("chain3", 0.5, None),
    ):
        raw(
            "UPDATE sessions SET estimated_cost_usd = ?, actual_cost_usd = ? WHERE id = ?",
            estimated,
            actual,
            name,
        )
    return db


CHAIN = ["chain", "chain2", "chain3"]
CASES: list[tuple[dict[str, Any], list[str]]] = [
    ({"model": "m"}, ["a", "b", "c"]),
    ({"model": "M"}, []),
    ({"model": ""}, []),
    ({"user_id": "u-a"}, ["a"]),
    ({"billing_provider": "nobody"}, []),
    ({"session_key": "%"}, []),
    ({"cwd_prefix": "/w/my_proj"}, ["a", "c", *CHAIN]),
    ({"cwd_prefix": "/w/my_proj/c/"}, ["c"]),
    ({"cwd_prefix": "/w/my"}, []),
    ({"cwd_prefix": "C:\\w"}, []),
    ({"title_query": "user_auth"}, ["a"]),
    ({"title_query": "%"}, ["c"]),
    ({"title_query": "\\"}, CHAIN),
    ({"title_query": "\0"}, []),
    ({"end_reason": "error"}, ["b"]),
    ({"end_reason": "done"}, ["a", "c", *CHAIN]),
    ({"end_reason": "compression"}, []),
    ({"min_messages": 2}, ["b", "c", *CHAIN]),
    ({"min_messages": 2, "max_messages": 4}, ["b"]),
    ({"max_messages": 0}, []),
    ({"max_cost_usd": 0.25}, ["b"]),
    ({"min_cost_usd": 2}, CHAIN),
    ({"min_cost_usd": 0.5, "max_cost_usd": 1.5}, ["a"]),
    ({"started_before": NOW - 18 * DAY}, ["a", "b"]),
    ({"started_after": NOW - 18 * DAY}, ["c", *CHAIN]),
    ({"started_before": dt.datetime.fromtimestamp(NOW - 18.5 * DAY, dt.UTC)}, ["a", "b"]),
    ({"started_after": NOW - 18.5 * DAY, "started_before": NOW - 17.5 * DAY}, ["c"]),
    ({"source": "cli", "title_query": "100%", "older_than_days": 0.5}, ["c"]),
    ({"title_query": "100%", "older_than_days": 90}, []),
]


@pytest.mark.parametrize(("filters", "found"), CASES)
def test_a_filter_means_whole_conversations_and_the_dry_run_names_them(
    filled: SessionDB, raw: RawSql, filters: dict[str, Any], found: list[str]
) -> None:
    if "billing_provider" in filters:
        raw("UPDATE sessions SET billing_provider = 'nobody%' WHERE id = 'a'")
    before = set(raw.column("SELECT id FROM sessions"))
    assert filled.list_archive_candidates(**filters) == found
    assert filled.list_prune_candidates(**filters) == found
    assert filled.count_prune_matches(**filters) == len(found)
    assert set(raw.column("SELECT id FROM sessions WHERE NOT archived")) == before
    assert filled.archive_stale_sessions(**filters) == len(found)
    assert sorted(raw.column("SELECT id FROM sessions WHERE archived")) == sorted(found)
    assert filled.list_archive_candidates(**filters) == []
    assert filled.prune_sessions(**filters) == len(found)
    assert set(raw.column("SELECT id FROM sessions")) == before - set(found)


@pytest.mark.parametrize(
    "filters",
    [
        {},
        dict.fromkeys(("source", "model", "title_query", "cwd_prefix", "max_messages", "started_before")),
        {"min_messages": 0},
        {"min_cost_usd": 0},
        {"started_after": 0},
        {"started_before": NOW + 9_999 * DAY},
    ],
)
def test_a_filter_that_leaves_nothing_out_does_not_lift_the_90_days(
    filled: SessionDB, raw: RawSql, filters: dict[str, Any]
) -> None:
    assert filled.list_prune_candidates(**filters) == []
    assert filled.archive_stale_sessions(**filters) == 0
    assert filled.prune_sessions(**filters) == 0


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("title_query", ("", 7, b"x")),
        ("cwd_prefix", ("", "/", "\\", " ", 7)),
        ("model", (7, ["m"])),
        ("end_reason", (True,)),
        ("min_messages", (-1, 1.5, "1", True, 2**63)),
        ("max_messages", (-1, float("nan"))),
        ("min_cost_usd", (-1, float("nan"), "1", True)),
        ("max_cost_usd", (float("inf"), float("nan"), 10**400)),
        ("started_before", ("yesterday", float("nan"), True, dt.date(2026, 1, 1))),
        ("started_after", (float("inf"), [])),
        ("expected_delete_ids", ("a", 7, b"x", {"a": 1})),
    ],
)
def test_an_empty_or_unfit_filter_is_refused_before_anything_happens(
    filled: SessionDB, raw: RawSql, name: str, values: tuple[Any, ...]
) -> None:
    verbs: list[Any] = [filled.prune_sessions]
    if name != "expected_delete_ids":
        verbs += [filled.list_prune_candidates, filled.archive_stale_sessions, filled.list_archive_candidates]
        verbs += [filled.count_prune_matches, filled.count_idle_open_sessions]
    for value in values:
        for verb in verbs:
            with pytest.raises(InvalidArgumentError) as refused:
                verb(0, **{name: value})
            assert refused.value.argument == name
    with pytest.raises(TypeError, match="title_like"):
        filled.prune_sessions(0, title_like="x")  # type: ignore[call-arg]
    assert raw.value("SELECT count(*) FROM sessions WHERE NOT archived") == 6


def test_delegates_do_not_decide_but_what_they_cost_counts(filled: SessionDB, raw: RawSql) -> None:
    work = {"_delegate_from": "a"}
    filled.create_session("work", "tool-runner", parent_session_id="a", model="small", model_config=work)
    filled.append_message("work", "user", "x")
    raw("UPDATE sessions SET last_active_at = ?, actual_cost_usd = 3 WHERE id = 'work'", NOW - DAY)
    assert filled.list_prune_candidates(source="cli", model="m", max_messages=1) == []
    assert filled.list_prune_candidates(min_cost_usd=4) == ["a", "work"]
    assert filled.list_archive_candidates(source="cli", title_query="user_auth") == ["a"]
    assert filled.prune_sessions(source="cli", title_query="user_auth", max_messages=2) == 2


def test_the_open_ones_are_counted_by_the_same_filters(filled: SessionDB) -> None:
    for name in ("a", "b"):
        filled.reopen_session(name)
    assert filled.count_idle_open_sessions(0.5) == 2
    assert filled.count_idle_open_sessions(title_query="user_auth") == 1
    assert filled.count_idle_open_sessions(started_before=NOW - 19.5 * DAY) == 1
    assert filled.count_idle_open_sessions(end_reason="done") == 0
    assert filled.count_idle_open_sessions() == 0


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize("value", ["many", b"\xff", ""])
def test_values_that_are_no_numbers_keep_a_conversation(filled: SessionDB, raw: RawSql, value: Any) -> None:
    raw("PRAGMA ignore_check_constraints = ON")
    for column, filters in (
        ("message_count", {"min_messages": 1}),
        ("actual_cost_usd", {"min_cost_usd": 0.1}),
        ("started_at", {"started_after": 1}),
        ("last_active_at", {"older_than_days": 0}),
    ):
        before = raw.value(f"SELECT {column} FROM sessions WHERE id = 'a'")
        raw(f"UPDATE sessions SET {column} = ? WHERE id = 'a'", value)
        assert "a" not in filled.list_prune_candidates(**filters), column
        raw(f"UPDATE sessions SET {column} = ? WHERE id = 'a'", before)


def test_only_what_was_expected_goes(filled: SessionDB, raw: RawSql) -> None:
    named = filled.list_prune_candidates(0.5)
    assert filled.prune_sessions(0.5, expected_delete_ids=[]) == 0
    assert filled.prune_sessions(0.5, expected_delete_ids=["a", "chain", "chain2", "nobody"]) == 1
    assert raw.column("SELECT id FROM sessions WHERE id = 'a'") == []
    assert filled.prune_sessions(0.5, expected_delete_ids=iter(named)) == len(named) - 1


def test_a_delegate_that_came_since_the_look_stops_a_deletion(filled: SessionDB, raw: RawSql) -> None:
    expected = filled.get_session_delete_targets("a")
    filled.create_session("late", "cli", parent_session_id="a", model_config={"_delegate_from": "a"})
    with filled.unit_of_work() as uow:
        with pytest.raises(DeletionConflictError) as conflict:
            uow.deleting.delete(["a"], expected)
        uow.messages.append("late", "user", "goes on")
    assert conflict.value.session_ids == ["late"]
    with pytest.raises(DeletionConflictError):
        filled.delete_session("a", expected_delete_ids=[])
    assert raw.value("SELECT count(*) FROM sessions") == 7
    assert filled.delete_session("nobody", expected_delete_ids=[]) is False
    again = filled.get_session_delete_targets("a")
    assert filled.delete_session("a", expected_delete_ids=[*again, "gone already"]) is True
    for unfit in ("a", 7):
        with pytest.raises(InvalidArgumentError):
            filled.delete_sessions(["b"], expected_delete_ids=unfit)  # type: ignore[arg-type]
