"""``sessions delete``, ``prune`` and ``archive-stale`` (issue 6, item 6)."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hermes_state import SessionDB
from hermes_state.cli.main import app
from tests.cli.conftest import Run
from tests.support.raw import RawSql


@pytest.fixture
def aged(db: SessionDB, raw: RawSql) -> SessionDB:
    """Two old conversations, one of them open, and a new one."""
    for name in ("old", "open", "new"):
        db.create_session(name, "cli")
    then = time.time() - 200 * 86_400
    raw("UPDATE sessions SET started_at = ? WHERE id <> 'new'", then)
    raw("UPDATE sessions SET ended_at = ? WHERE id = 'old'", then)
    db.create_session("worker", "cli", parent_session_id="new", model_config={"_delegate_from": "new"})
    return db


def ids(raw: RawSql) -> list[str]:
    return sorted(raw.column("SELECT id FROM sessions"))


def test_a_dry_run_names_what_would_go_and_deletes_nothing(aged: SessionDB, run: Run, raw: RawSql) -> None:
    found = run("sessions", "delete", "ne", "--dry-run", "--json")
    assert json.loads(found.stdout) == {"dry_run": True, "sessions": ["new", "worker"]}
    found = run("sessions", "prune", "--dry-run")
    assert "old" in found.stdout
    assert "1 sessions would go" in found.stdout
    assert "1 sessions as old were never ended" in found.stderr
    assert ids(raw) == ["new", "old", "open", "worker"]


def test_yes_deletes_without_asking(aged: SessionDB, run: Run, raw: RawSql, tmp_path: Path) -> None:
    (tmp_path / "new.jsonl").write_text("x")
    found = run("sessions", "delete", "new", "--yes", "--sessions-dir", tmp_path)
    assert "2 sessions deleted" in found.stdout
    assert not (tmp_path / "new.jsonl").exists()
    assert json.loads(run("sessions", "prune", "--yes", "--json").stdout) == {
        "dry_run": False,
        "sessions": ["old"],
    }
    assert ids(raw) == ["open"]
    assert "0 sessions deleted" in run("sessions", "prune", "--source", "%", "-y").stdout


@pytest.mark.parametrize(("answer", "code", "left"), [("n\n", 1, 4), ("", 1, 4), ("y\n", 0, 3)])
def test_without_yes_it_asks(
    aged: SessionDB, store_url: str, raw: RawSql, answer: str, code: int, left: int
) -> None:
    result = CliRunner().invoke(app, ["--url", store_url, "sessions", "prune"], input=answer)
    assert result.exit_code == code
    assert "Delete 1 sessions for good?" in result.stderr
    assert len(ids(raw)) == left


def test_stale_conversations_are_hidden(aged: SessionDB, run: Run, raw: RawSql) -> None:
    assert json.loads(run("sessions", "archive-stale", "--json").stdout) == {"archived": 2}
    assert sorted(raw.column("SELECT id FROM sessions WHERE archived")) == ["old", "open"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("delete", "nobody", "--yes"), 1),
        (("delete", "old", "nobody", "--yes"), 1),
        (("delete",), 2),
        (("delete", "old", "--json"), 2),
        (("prune", "--json"), 2),
        (("prune", "--older-than-days", "-1", "--yes"), 2),
        (("prune", "--older-than-days", "nan", "--yes"), 2),
    ],
)
def test_what_cannot_be_meant_deletes_nothing(
    aged: SessionDB, run: Run, raw: RawSql, arguments: tuple[str, ...], code: int
) -> None:
    assert run("sessions", *arguments, code=code).stdout == ""
    assert len(ids(raw)) == 4
