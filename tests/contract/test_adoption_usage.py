"""What sessions used comes along, by model and by day (issue 4, item 1)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state.transfer.adoption import adopt_store
from tests.support.older_stores import START, OldStore
from tests.support.raw import RawSql

MODELS = "SELECT session_id, model, billing_provider, task, input_tokens, actual_cost_usd, first_seen, last_seen FROM session_model_usage ORDER BY 1, 2, 4"
DAYS = "SELECT session_id, day, input_tokens, first_seen FROM session_daily_usage ORDER BY 1, 2"


@pytest.fixture
def old(tmp_path: Path) -> Iterator[OldStore]:
    store = OldStore(tmp_path / "old.db", 31)
    yield store
    store.close()


def test_the_ledgers_arrive_and_sessions_without_rows_get_one_of_their_totals(
    old: OldStore, store_url: str, raw: RawSql
) -> None:
    old.session(input_tokens=9, model="m")
    old.session("bare", input_tokens=4, model="m", billing_provider="p", actual_cost_usd=0.5)
    old.session("nothing", model="m")
    old.message("bare", timestamp=START + 7)
    old.usage(
        model="m1", task="title", input_tokens=5, actual_cost_usd=0.25, first_seen=START, last_seen=START + 1
    )
    old.usage(model="m2", input_tokens=4, first_seen=START + 2, last_seen=START + 3)
    old.usage("session_daily_usage", input_tokens=9)
    report = adopt_store(old.path, store_url)
    assert report.conversion_counts == {}
    assert report.left_tables == {}
    assert raw(MODELS) == [
        ("bare", "m", "p", "", 4, 0.5, START, START + 7),
        ("s", "m1", "", "title", 5, 0.25, START, START + 1),
        ("s", "m2", "", "", 4, None, START + 2, START + 3),
    ]
    assert raw(DAYS) == [("bare", "2026-05-28", 4, START), ("s", "2026-06-01", 9, 1780272000.0)]


def test_a_store_without_ledgers_gets_them_made_of_its_totals(
    store_url: str, raw: RawSql, tmp_path: Path
) -> None:
    old = OldStore(tmp_path / "v17.db", 17)
    for number in range(1_100):
        old.session(f"s{number:04}", input_tokens=1)
    adopt_store(old.path, store_url)
    old.close()
    for table in ("session_model_usage", "session_daily_usage"):
        assert raw(f"SELECT count(*), sum(input_tokens) FROM {table}") == [(1_100, 1_100)]


def test_values_of_a_ledger_are_converted_and_reported(old: OldStore, store_url: str, raw: RawSql) -> None:
    old.session()
    old.conn.execute("PRAGMA foreign_keys = OFF")
    old.usage(
        model="x" * 600, input_tokens=-1, actual_cost_usd=math.inf, first_seen=math.inf, last_seen=START
    )
    old.usage(model=None, input_tokens=1, first_seen=START, last_seen=START)
    old.usage(model="", input_tokens=2, first_seen=START, last_seen=START)
    old.usage(session_id="gone", input_tokens=3)
    report = adopt_store(old.path, store_url)
    assert raw(MODELS) == [
        ("s", "", "", "", 1, None, START, START),
        ("s", "x" * 256, "", "", 0, None, START, START),
    ]
    assert [(found.column, found.rule.partition(":")[2]) for found in report.conversions] == [
        ("model", ""), ("input_tokens", " became 0"), ("actual_cost_usd", ""), ("first_seen", ""),
        ("session_id", " left out"), ("session_id", " left out"),
    ]  # fmt: skip


def test_a_column_of_a_ledger_that_has_no_place_is_reported(old: OldStore, store_url: str) -> None:
    old.session()
    old.conn.execute("ALTER TABLE session_daily_usage ADD COLUMN image_count INTEGER DEFAULT 0")
    old.usage("session_daily_usage", input_tokens=1, image_count=7)
    old.usage("session_daily_usage", day="2026-06-02", input_tokens=1)
    report = adopt_store(old.path, store_url)
    assert [(found.table, found.id, found.column, found.value) for found in report.conversions] == [
        ("session_daily_usage", "s/2026-06-01", "image_count", "7")
    ]
