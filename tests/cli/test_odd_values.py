"""What another program stored is shown, not stumbled over, and steers no terminal (issue 6, bad input)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hermes_state import SessionDB
from hermes_state.models import SessionRow
from hermes_state.repositories.base import table_of
from tests.cli.conftest import Run
from tests.support.raw import RawSql

KEYS = {"id", "parent_session_id", "root_session_id", "kind"}
COMMANDS = [
    "sessions list --all", "sessions list --all --json", "sessions show odd", "sessions show odd --json", "sessions title odd",
    "sessions title odd --json", "usage", "usage --json", "usage --by day", "usage --by session --json", "stats", "stats --json",
    "sessions prune --dry-run --older-than-days 0", "sessions archive-stale --dry-run", "sessions delete odd --dry-run",
    "sessions archive odd --json", "sessions delete odd --yes",
]  # fmt: skip


def refused(constant: str) -> Any:
    raise AssertionError(f"{constant} is no JSON")


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize(
    "value", ["text", b"\xff\0bytes", -1, 1e308, float("inf"), "", "\0", "x" * 3_000, "\x1b[31m\u202e"]
)
def test_every_command_shows_a_store_with_odd_values(
    db: SessionDB, raw: RawSql, run: Run, value: Any, tmp_path: Path
) -> None:
    db.create_session("good", "cli")
    db.update_token_counts("good", 1, 1, model="m", actual_cost_usd=0.5)
    raw("PRAGMA ignore_check_constraints = ON")
    columns = [column.name for column in table_of(SessionRow).c if column.name not in KEYS]
    row = {"id": "odd", **dict.fromkeys(columns, value)}
    raw(f"INSERT INTO sessions ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", *row.values())
    raw("INSERT INTO messages (session_id, role, content) VALUES ('odd', 'user', 'x')")
    for table, key in (("session_model_usage", "model"), ("session_daily_usage", "day")):
        raw(
            f"INSERT INTO {table} (session_id, {key}, input_tokens, actual_cost_usd, first_seen, last_seen) "
            "VALUES ('odd', ?, ?, ?, ?, ?)",
            *[value] * 5,
        )
    for command in (*COMMANDS[:12], f"report --html {tmp_path / 'report.html'}", *COMMANDS[12:]):
        result = run(*command.split())
        if "--json" in command:
            json.loads(result.stdout, parse_constant=refused)
        else:
            assert not {"\x1b", "\u202e"} & {*result.stdout}, command


def test_a_source_steers_no_terminal(db: SessionDB, run: Run) -> None:
    db.create_session("s", "\x1b[31m\u202ered")
    for command in ("stats", "sessions list", "sessions show s"):
        text = run(*command.split()).stdout
        assert "red" in text
        assert not {"\x1b", "\u202e"} & {*text}
