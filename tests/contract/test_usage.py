"""Tokens and money (issue 6, item 3; known-store.md 2.8; weak point W17; field reports C5, H6, H7)."""

from __future__ import annotations

import datetime as dt
import multiprocessing
from collections.abc import Callable
from typing import Any

import pytest

from hermes_state import InvalidArgumentError, SessionDB, StoreUnavailableError
from tests.support.builders import snapshot
from tests.support.raw import RawSql
from tests.support.statements import QueryRecorder, failing_statement

COUNTERS = (
    "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "api_call_count",
)  # fmt: skip
OF_SESSION = f"SELECT {', '.join(COUNTERS)} FROM sessions WHERE id = ?"


def totals(raw: RawSql, session_id: str = "s") -> tuple[Any, ...]:
    (row,) = raw(OF_SESSION, session_id)
    return row


def cost(raw: RawSql) -> tuple[Any, ...]:
    (row,) = raw(
        "SELECT estimated_cost_usd, actual_cost_usd, cost_status, cost_source, pricing_version FROM sessions"
    )
    return row


def ledger(raw: RawSql) -> list[tuple[Any, ...]]:
    return raw(
        "SELECT model, billing_provider, task, input_tokens, output_tokens FROM session_model_usage "
        "ORDER BY model, billing_provider, task"
    )


def count(url: str, times: int) -> None:
    with SessionDB(url=url) as db:
        for _ in range(times):
            db.update_token_counts("s", 3, 2, api_call_count=1, model="m", estimated_cost_usd=0.5)


def test_increments_add_up_in_the_session_and_in_both_ledgers(
    db: SessionDB, session: str, raw: RawSql
) -> None:
    for number in (1, 2):
        db.update_token_counts(session, number, 10, 20, 30, 5, 1, model="m", estimated_cost_usd=0.25)
    assert totals(raw) == (3, 20, 40, 60, 10, 2)
    assert ledger(raw) == [("m", "", "", 3, 20)]
    today = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d")
    assert raw("SELECT day, input_tokens, reasoning_tokens, estimated_cost_usd FROM session_daily_usage") == [
        (today, 3, 10, 0.5)
    ]
    assert cost(raw)[:2] == (0.5, None)


def test_absolute_numbers_are_the_totals_and_the_ledgers_follow(
    db: SessionDB, session: str, raw: RawSql
) -> None:
    db.update_token_counts(session, 100, 50, model="a", estimated_cost_usd=1.0)
    db.update_token_counts(session, 130, 40, absolute=True, model="a")
    assert totals(raw)[:2] == (130, 40)
    assert ledger(raw) == [("a", "", "", 130, 40)]
    assert cost(raw)[0] == 1.0  # no cost given: the stored one stays
    db.update_token_counts(session, 10, 0, absolute=True, model="b", estimated_cost_usd=0.5)
    assert totals(raw)[:2] == (10, 0)
    assert cost(raw)[0] == 0.5
    assert all(value >= 0 for row in ledger(raw) for value in row[3:])


def test_a_missing_session_is_made_and_repaired_by_its_creator(db: SessionDB, raw: RawSql) -> None:
    db.update_token_counts("early", 5, model="m")
    assert raw("SELECT source, model FROM sessions") == [("unknown", "m")]
    db.create_session("early", "cli")
    assert raw("SELECT source, input_tokens FROM sessions") == [("cli", 5)]


@pytest.mark.parametrize("session_id", ["", "\0", "x" * 513, "\ud800"])
def test_an_id_that_cannot_exist_counts_nothing(db: SessionDB, raw: RawSql, session_id: str) -> None:
    db.update_token_counts(session_id, 5)
    db.record_auxiliary_usage(session_id, "title", input_tokens=5)
    assert raw("SELECT count(*) FROM sessions") == [(0,)]
    assert db.usage_totals(session_id)["input_tokens"] == 0
    assert db.usage_totals(session_id, by="model") == []
    assert db.get_recent_session_model_route(session_id) is None


def test_nothing_used_leaves_no_row_in_the_ledgers(db: SessionDB, session: str, raw: RawSql) -> None:
    db.update_token_counts(session, model="m")
    db.record_auxiliary_usage(session, "title")
    assert raw("SELECT model FROM sessions") == [("m",)]
    assert ledger(raw) == raw("SELECT * FROM session_daily_usage") == []
    assert db.usage_totals()["total_tokens"] == 0


def test_model_and_route_fill_what_is_empty_and_provenance_is_the_newest(
    db: SessionDB, session: str, raw: RawSql
) -> None:
    db.update_token_counts(
        session, 1, model="a", billing_provider="p", cost_status="estimated", cost_source="table"
    )
    db.update_token_counts(
        session, 2, model="b", billing_provider="q", cost_status="actual", actual_cost_usd=0.0
    )
    db.update_token_counts(session, 4)
    assert raw("SELECT model, billing_provider FROM sessions") == [("a", "p")]
    assert cost(raw) == (None, 0.0, "actual", "table", None)
    assert ledger(raw) == [("a", "p", "", 5, 0), ("b", "q", "", 2, 0)]
    assert db.get_recent_session_model_route(session) == {
        "model": "a", "billing_provider": "p", "billing_base_url": None, "billing_mode": None,
    }  # fmt: skip


def test_side_tasks_have_rows_of_their_own_and_leave_the_totals(
    db: SessionDB, session: str, raw: RawSql
) -> None:
    db.update_token_counts(session, 10, model="m")
    db.record_auxiliary_usage(session, "title", input_tokens=3, model="small", estimated_cost_usd=0.1)
    db.publish_continuation(session, "child", [{"role": "user", "content": "summary"}])
    db.record_auxiliary_usage("child", "summary", input_tokens=4, model="small")
    assert totals(raw)[0] == 10
    assert [(r["task"], r["input_tokens"]) for r in db.auxiliary_usage_by_task("child")] == [
        ("summary", 4),
        ("title", 3),
    ]
    assert [(r["task"], r["input_tokens"]) for r in db.usage_totals(session, by="task")] == [
        ("", 10),
        ("title", 3),
    ]
    assert db.usage_totals("child", lineage=True)["input_tokens"] == 17
    assert db.usage_totals("child")["input_tokens"] == 4
    for task in ("", None, 7):
        with pytest.raises(InvalidArgumentError):
            db.record_auxiliary_usage(session, task, input_tokens=1)  # type: ignore[arg-type]


def test_every_grouping_sums_to_the_same_total(db: SessionDB, raw: RawSql) -> None:
    for number, name in enumerate(("a", "b", "c"), start=1):
        db.create_session(name, "cli")
        db.update_token_counts(name, number, number * 10, reasoning_tokens=number, model=f"m{number % 2}")
        db.record_auxiliary_usage(name, "title", input_tokens=100, cache_read_tokens=7)
    whole = db.usage_totals()
    assert (whole["input_tokens"], whole["output_tokens"], whole["total_tokens"]) == (306, 60, 306 + 60 + 21)
    for by in ("model", "provider", "task", "session", "day"):
        parts = db.usage_totals(by=by)
        assert sum(part["total_tokens"] for part in parts) == whole["total_tokens"]
        assert [part[by] for part in parts] == sorted(part[by] for part in parts)
    assert db.usage_totals(task="")["input_tokens"] == 6


@pytest.mark.parametrize("value", [-1, True, 1.0, "1", 2**63, float("nan"), [1]])
@pytest.mark.parametrize("name", COUNTERS)
def test_a_counter_that_is_no_count_is_refused(
    db: SessionDB, session: str, raw: RawSql, name: str, value: Any
) -> None:
    before = snapshot(raw)
    calls: list[Callable[..., Any]] = [
        db.update_token_counts, lambda s, **kw: db.record_auxiliary_usage(s, "title", **kw),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(InvalidArgumentError) as refused:
            call(session, **{name: value})
        assert refused.value.argument == name
    assert snapshot(raw) == before


@pytest.mark.parametrize("value", [-0.01, float("nan"), float("inf"), True, "1", 1e300])
@pytest.mark.parametrize("name", ["estimated_cost_usd", "actual_cost_usd"])
def test_money_that_is_no_amount_is_refused(db: SessionDB, session: str, name: str, value: Any) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        db.update_token_counts(session, 1, **{name: value})
    assert refused.value.argument == name
    assert db.usage_totals()["input_tokens"] == 0


def test_texts_are_cleaned_and_limited(db: SessionDB, session: str, raw: RawSql) -> None:
    db.update_token_counts(session, 1, model="a\0b", billing_provider="\ud800")
    assert ledger(raw) == [("a\N{REPLACEMENT CHARACTER}b", "\N{REPLACEMENT CHARACTER}", "", 1, 0)]
    for name in ("model", "billing_provider", "billing_base_url", "billing_mode"):
        with pytest.raises(InvalidArgumentError):
            db.update_token_counts(session, 1, **{name: "x" * 257})  # type: ignore[arg-type]
    db.update_token_counts(session, 1, cost_status="long" * 2000)


def test_totals_beyond_32_bits_are_exact_and_beyond_64_refused(
    db: SessionDB, session: str, raw: RawSql
) -> None:
    for _ in range(2):
        db.update_token_counts(session, 2**31)
    assert totals(raw)[0] == 2**32
    before = snapshot(raw)
    with pytest.raises(InvalidArgumentError):
        db.update_token_counts(session, 2**63 - 1)
    assert snapshot(raw) == before


def test_processes_counting_at_once_lose_nothing(
    db: SessionDB, session: str, store_url: str, raw: RawSql
) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=count, args=(store_url, 10)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert totals(raw) == (120, 80, 0, 0, 0, 40)
    assert ledger(raw) == [("m", "", "", 120, 80)]
    assert db.usage_totals(by="day")[0]["estimated_cost_usd"] == 20.0


def test_a_failure_at_any_statement_counts_nothing(db: SessionDB, session: str, raw: RawSql) -> None:
    before = snapshot(raw), ledger(raw)
    for number in range(4):
        with failing_statement(db.engine, number), pytest.raises(StoreUnavailableError, match="injected"):
            db.update_token_counts(session, 5, model="m")
        assert (snapshot(raw), ledger(raw)) == before
    db.update_token_counts(session, 5, model="m")
    assert totals(raw)[0] == 5


def test_a_call_is_four_statements(db: SessionDB, session: str, statements: QueryRecorder) -> None:
    db.update_token_counts(session, 1, model="m")
    statements.texts.clear()
    db.update_token_counts(session, 1, model="m")
    assert len(statements.texts) == 4


def test_usage_goes_with_its_session(db: SessionDB, session: str, raw: RawSql) -> None:
    db.update_token_counts(session, 1, model="m")
    raw("DELETE FROM sessions")
    assert ledger(raw) == raw("SELECT * FROM session_daily_usage") == []


def test_an_unknown_grouping_is_refused(db: SessionDB) -> None:
    with pytest.raises(InvalidArgumentError):
        db.usage_totals(by="colour")  # type: ignore[call-overload]
    with pytest.raises(InvalidArgumentError):
        db.usage_totals(by="day", task="")


def test_sums_above_what_a_column_holds_are_sums(db: SessionDB, raw: RawSql) -> None:
    most = 2**63 - 1
    for name in ("a", "b"):
        db.create_session(name, "cli")
        db.update_token_counts(name, most, 7, model="m")
        db.record_auxiliary_usage(name, "title", input_tokens=most, output_tokens=1)
    whole = db.usage_totals()
    assert (whole["input_tokens"], whole["output_tokens"]) == (4 * most, 16)
    assert whole["total_tokens"] == 4 * most + 16
    # One row holds no more; what it lacks is told.
    assert raw.column("SELECT input_tokens FROM session_daily_usage") == [most, most]
    assert {each["table"] for each in db.verify()} == {"session_daily_usage"}
    with pytest.raises(InvalidArgumentError):
        db.update_token_counts("a", 1)
    assert db.usage_totals("a", task="title")["input_tokens"] == most
