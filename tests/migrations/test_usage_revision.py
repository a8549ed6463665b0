"""Revision 0006: the ledgers of usage, and what sessions had counted before (issue 6, item 3)."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from hermes_state import upgrades
from hermes_state.errors import DowngradeRefusedError
from tests.support.raw import RawSql


def test_what_sessions_counted_before_is_taken_over(migrated: sa.Engine, sql: RawSql) -> None:
    upgrades.downgrade(migrated, "0005")
    sql(
        "INSERT INTO sessions (id, model, started_at, last_active_at, input_tokens, output_tokens, estimated_cost_usd) "
        "VALUES ('used', 'm', 1700000000, 1700000100, 7, 3, 0.5)"
    )
    sql("INSERT INTO sessions (id, started_at) VALUES ('unused', 1700000000)")
    sql("INSERT INTO sessions (id, started_at, api_call_count) VALUES ('far away', 1e300, 1)")
    upgrades.upgrade(migrated)
    assert sql(
        "SELECT session_id, model, task, input_tokens, output_tokens, estimated_cost_usd, first_seen, last_seen "
        "FROM session_model_usage WHERE session_id = 'used'"
    ) == [("used", "m", "", 7, 3, 0.5, 1700000000.0, 1700000100.0)]
    assert sql("SELECT session_id, day, input_tokens FROM session_daily_usage ORDER BY session_id") == [
        ("far away", "", 0),
        ("used", "2023-11-14", 7),
    ]


def test_a_downgrade_refuses_to_lose_the_breakdown(migrated: sa.Engine, sql: RawSql) -> None:
    sql("INSERT INTO sessions (id) VALUES ('s')")
    sql("INSERT INTO session_model_usage (session_id, model) VALUES ('s', 'm')")
    with pytest.raises(DowngradeRefusedError, match="1 rows of session_model_usage"):
        upgrades.downgrade(migrated, "0005")
    upgrades.downgrade(migrated, "0005", force=True)
    assert sql("SELECT id FROM sessions") == [("s",)]


def test_a_row_needs_only_its_session(migrated: sa.Engine, sql: RawSql) -> None:
    assert migrated.dialect.name in ("sqlite", "postgresql")
    sql("INSERT INTO sessions (id) VALUES ('s')")
    for table in ("session_model_usage", "session_daily_usage"):
        sql(f"INSERT INTO {table} (session_id) VALUES ('s')")
        assert sql(f"SELECT input_tokens, estimated_cost_usd FROM {table}") == [(0, None)]
