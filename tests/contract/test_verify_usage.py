"""Counters of usage and the ledgers tell the same (issue 6, items 3 and 5; field report H6)."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_state import SessionDB
from tests.support.builders import snapshot, user
from tests.support.raw import RawSql

COUNTERS = (
    "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "api_call_count",
)  # fmt: skip
MONEY = ("estimated_cost_usd", "actual_cost_usd")


@pytest.fixture
def used(db: SessionDB) -> SessionDB:
    """Two sessions with several models, side tasks and days; one without any usage."""
    for name in ("a", "b", "none"):
        db.create_session(name, "cli", model="m")
    db.append_message("a", "user", "x")
    db.update_token_counts("a", 10, 5, 1, 2, 3, 1, model="m", estimated_cost_usd=0.1)
    db.update_token_counts("a", 1, 1, model="n", actual_cost_usd=0.2, estimated_cost_usd=0.2)
    db.update_token_counts("b", 7)
    db.record_auxiliary_usage("a", "title", input_tokens=4, estimated_cost_usd=0.3)
    return db


def sums(db: SessionDB, by: Any, name: str) -> Any:
    return sum(record[name] or 0 for record in db.usage_totals(by=by))


def places(found: list[Any]) -> list[tuple[str, Any, Any, Any, Any]]:
    return [(each["table"], each["id"], each["column"], each["found"], each["expected"]) for each in found]


def test_what_the_package_counted_agrees(used: SessionDB, raw: RawSql) -> None:
    used.publish_continuation("a", "a2", [user("summary")])
    used.create_branch("a2", "branch")
    before = snapshot(raw)
    assert used.verify() == []
    assert used.verify(repair=True) == []
    assert snapshot(raw) == before


def test_totals_that_are_set_lower_are_taken_from_every_grouping(used: SessionDB, raw: RawSql) -> None:
    raw("UPDATE session_daily_usage SET day = '2020-01-01'")  # as if all had been yesterday
    used.update_token_counts(
        "a", 2, 0, absolute=True, model="new", estimated_cost_usd=0.05, actual_cost_usd=0.0
    )
    used.update_token_counts("b", 9, 1, absolute=True, model="m")
    totals = raw("SELECT sum(input_tokens), sum(output_tokens) FROM sessions")
    assert [tuple(map(int, row)) for row in totals] == [(11, 1)]
    for name in (*COUNTERS, *MONEY):
        whole = used.usage_totals()
        assert [sums(used, by, name) for by in ("model", "provider", "task", "session", "day")] == [
            pytest.approx(whole[name] or 0)  # type: ignore[literal-required]
        ] * 5, name
    assert used.usage_totals(task="")["input_tokens"] == 11
    assert used.usage_totals(task="title")["input_tokens"] == 4
    assert raw(
        "SELECT count(*) FROM session_model_usage WHERE input_tokens < 0 OR estimated_cost_usd < 0"
    ) == [(0,)]
    route = used.get_recent_session_model_route("a")
    assert route is not None
    assert route["model"] == "new"
    assert used.verify() == []


def test_what_only_the_session_knows_is_booked(used: SessionDB, raw: RawSql) -> None:
    raw("UPDATE sessions SET started_at = 86400 * 365 + 5, billing_provider = 'p' WHERE id = 'none'")
    raw("UPDATE sessions SET input_tokens = 100, actual_cost_usd = 1.5 WHERE id = 'none'")
    raw("UPDATE sessions SET input_tokens = 15 WHERE id = 'a'")
    raw("UPDATE sessions SET started_at = 86400 WHERE id = 'a'")
    found = used.verify()
    assert sorted(places(found), key=str) == [
        ("session_daily_usage", "a", "input_tokens", 15, 19),
        ("session_daily_usage", "none", "actual_cost_usd", 0, 1.5),
        ("session_daily_usage", "none", "input_tokens", 0, 100),
        ("session_model_usage", "a", "input_tokens", 11, 15),
        ("session_model_usage", "none", "actual_cost_usd", 0, 1.5),
        ("session_model_usage", "none", "input_tokens", 0, 100),
    ]
    assert all(each["repairable"] and not each["repaired"] for each in found)
    mended = used.verify(repair=True)
    assert places(mended) == places(found)
    assert all(each["repaired"] for each in mended)
    assert used.verify() == []
    assert raw("SELECT model, billing_provider, task FROM session_model_usage WHERE session_id = 'none'") == [
        ("m", "p", "")
    ]
    assert raw("SELECT day, input_tokens FROM session_daily_usage WHERE session_id = 'none'") == [
        ("1971-01-01", 100)
    ]
    assert (
        used.usage_totals("a", by="model")[0]["input_tokens"] == 18
    )  # of m: 10, the side task's 4, and the rest


def test_a_counter_that_knows_less_gets_the_sum(used: SessionDB, raw: RawSql) -> None:
    raw("UPDATE sessions SET input_tokens = 3, estimated_cost_usd = NULL WHERE id = 'a'")
    found = used.verify(repair=True)
    assert places(found) == [
        ("sessions", "a", "input_tokens", 3, 11),
        ("sessions", "a", "estimated_cost_usd", None, pytest.approx(0.3)),
    ]
    assert used.verify() == []
    assert raw("SELECT input_tokens, output_tokens FROM sessions WHERE id = 'a'") == [(11, 6)]


def test_days_are_filled_but_never_lowered(used: SessionDB, raw: RawSql) -> None:
    raw("UPDATE sessions SET started_at = 5 WHERE id = 'a'")
    raw("UPDATE session_daily_usage SET input_tokens = 1, output_tokens = 50 WHERE session_id = 'a'")
    found = used.verify(repair=True)
    assert [(*each[:3], *each[3:]) for each in places(found)] == [
        ("session_daily_usage", "a", "input_tokens", 1, 15),
        ("session_daily_usage", "a", "output_tokens", 50, 6),
    ]
    assert [(each["repairable"], each["repaired"]) for each in found] == [(True, True), (False, False)]
    assert [each[2] for each in places(used.verify())] == ["output_tokens"]
    assert raw("SELECT day, input_tokens FROM session_daily_usage WHERE session_id = 'a' ORDER BY day")[
        0
    ] == (
        "1970-01-01",
        14,
    )


@pytest.mark.parametrize("start", [1e300, -1e300])
def test_without_a_day_to_book_on_it_is_only_reported(used: SessionDB, raw: RawSql, start: float) -> None:
    raw("UPDATE sessions SET input_tokens = 100, started_at = ? WHERE id = 'none'", start)
    found = [each for each in used.verify(repair=True) if each["column"] == "input_tokens"]
    assert [each["repaired"] for each in found] == [False, False]
    assert raw("SELECT count(*) FROM session_model_usage WHERE session_id = 'none'") == [(0,)]


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize("value", ["many", b"\xff\x00", float("inf"), "12"])
def test_odd_values_of_other_programs_break_neither_sums_nor_the_comparison(
    used: SessionDB, raw: RawSql, value: Any
) -> None:
    raw("PRAGMA ignore_check_constraints = ON")
    for table, key in (
        ("sessions", "id"),
        ("session_model_usage", "session_id"),
        ("session_daily_usage", "session_id"),
    ):
        for name in ("input_tokens", "actual_cost_usd", "started_at"):
            if table == "sessions" or name != "started_at":
                raw(f"UPDATE {table} SET {name} = ? WHERE {key} = 'a'", value)
    used.verify(repair=True)
    used.verify()
    for by in (None, "model", "day", "session", "provider", "task"):
        used.usage_totals(by=by)
    used.update_token_counts("a", 1, model="m", actual_cost_usd=1)
    used.update_token_counts("a", 1, absolute=True, model="m", actual_cost_usd=0)
    assert used.usage_totals("b")["input_tokens"] == 7
