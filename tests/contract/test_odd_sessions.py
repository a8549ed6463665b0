"""A row whose values another program made up breaks no list, no sum and no sweep (issue 6, bad input; weak points W10, W26)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_state import SessionDB
from hermes_state.models import SessionRow
from hermes_state.repositories.base import table_of
from tests.support.raw import RawSql

pytestmark = pytest.mark.parametrize("backend", ["sqlite"])
VALUES = ["text", b"\xff\0bytes", -1, 1e308, float("inf"), "", "1'); --", "\0", "x" * 3_000, "{"]
KEYS = {"id", "parent_session_id", "root_session_id", "kind"}

READS: list[Callable[[SessionDB], Any]] = [
    lambda db: db.list_sessions_rich(),
    lambda db: db.list_sessions_rich(order_by_last_active=True, include_children=True, include_archived=True, include_hidden=True),
    lambda db: db.list_sessions_page(limit=1, cursor=db.list_sessions_page(limit=1)["next_cursor"]),
    lambda db: db.list_sessions(),
    lambda db: db.session_count(min_message_count=1, cwd_prefix="/w", search_query="t", id_query="o"),
    lambda db: db.session_count_by_source(),
    lambda db: db.search_sessions(),
    lambda db: db.search_sessions_by_id("o"),
    lambda db: db.distinct_session_cwds(),
    lambda db: db.session_lifecycle_statuses(["odd", "good"]),
    lambda db: (db.get_session("odd"), db.get_session_title("odd"), db.resolve_session_id("od")),
    lambda db: (db.get_session_by_title("T"), db.resolve_session_by_title("T"), db.get_next_title_in_lineage("T")),
    lambda db: [db.usage_totals(by=by) for by in ("model", "day", "session", "task")],
    lambda db: db.usage_totals("odd", lineage=True),
    lambda db: db.verify(),
    lambda db: db.list_prune_candidates(0),
    lambda db: db.list_prune_candidates(
        model="m", min_messages=1, max_cost_usd=5, title_query="T", cwd_prefix="/w", end_reason="done", started_before=5e9
    ),
    lambda db: (db.list_archive_candidates(0), db.count_idle_open_sessions(0), db.count_empty_sessions()),
    lambda db: db.statistics(),
    lambda db: db.get_session_delete_targets("odd"),
    lambda db: db.export_session("odd"),
]  # fmt: skip
WRITES: list[Callable[[SessionDB], Any]] = [
    lambda db: db.update_token_counts("odd", 1, 1, model="m", estimated_cost_usd=0.1),
    lambda db: db.update_token_counts("odd", 1, 1, absolute=True, estimated_cost_usd=0.1),
    lambda db: db.record_auxiliary_usage("odd", "title", input_tokens=1),
    lambda db: (db.set_auto_title("odd", "New"), db.set_session_title("odd", "New")),
    lambda db: (db.set_session_archived("odd", True), db.set_session_pinned("odd", False)),
    lambda db: (db.touch_session_activity("odd"), db.set_session_last_read("odd")),
    lambda db: db.verify(repair=True),
    lambda db: db.archive_stale_sessions(0),
    lambda db: db.maybe_auto_prune_and_vacuum(90, 0),
    lambda db: db.prune_sessions(source="nobody"),
    lambda db: db.delete_empty_sessions(),
    lambda db: db.delete_session("odd"),
]


def put(raw: RawSql, row: dict[str, Any]) -> None:
    """Stores a session past every check, with a message."""
    raw("PRAGMA ignore_check_constraints = ON")
    raw("PRAGMA foreign_keys = OFF")
    raw(f"INSERT INTO sessions ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", *row.values())
    raw("INSERT INTO messages (session_id, role, content) VALUES (?, 'user', 'x')", row["id"])


@pytest.fixture
def good(db: SessionDB) -> SessionDB:
    db.create_session("good", "cli", cwd="/w", model="m")
    db.append_message("good", "user", "hello")
    db.update_token_counts("good", 1, 1, model="m")
    db.set_session_title("good", "T")
    return db


def assert_all_work(db: SessionDB, tmp_path: Path) -> None:
    for verb in (*READS, *WRITES):
        verb(db)
    report = db.maybe_auto_prune_and_vacuum(90, 0, vacuum=False, sessions_dir=tmp_path)
    assert report["error"] is None
    assert "good" in [session["id"] for session in db.list_sessions_rich(include_archived=True)]
    assert db.message_count("good") == 1


@pytest.mark.parametrize("value", VALUES)
def test_every_column_of_one_session_is_odd(good: SessionDB, raw: RawSql, value: Any, tmp_path: Path) -> None:
    columns = [column.name for column in table_of(SessionRow).c if column.name not in KEYS]
    put(raw, {"id": "odd", **dict.fromkeys(columns, value)})
    assert_all_work(good, tmp_path)
    assert good.get_session("odd") is None


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("column", sorted(KEYS))
def test_an_id_or_a_link_is_odd(
    good: SessionDB, raw: RawSql, column: str, value: Any, tmp_path: Path
) -> None:
    put(raw, {"id": "odd", "started_at": 5, "ended_at": 6, column: value})
    assert_all_work(good, tmp_path)
