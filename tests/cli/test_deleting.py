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
    assert json.loads(run("sessions", "archive-stale", "--json").stdout) == {
        "dry_run": False,
        "archived": 2,
        "sessions": ["old", "open"],
    }
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


def test_filters_choose_and_the_dry_run_names_the_same(aged: SessionDB, run: Run, raw: RawSql) -> None:
    aged.create_session("draft", "cli", model="m", cwd="/w/a_b")
    aged.append_message("draft", "user", "x")
    aged.set_session_title("draft", "100% done")
    aged.update_token_counts("draft", 1, 1, actual_cost_usd=0.5, billing_provider="p")
    aged.end_session("draft", "done")
    filters = (
        "--model", "m", "--provider", "p", "--cwd", "/w/a_b", "--title", "0%", "--end-reason", "done", "--min-messages", 1,
        "--max-messages", 1, "--min-cost", 0.5, "--max-cost", 0.5, "--started-after", "2001-01-01", "--started-before", "2101-01-01",
    )  # fmt: skip
    assert json.loads(run("sessions", "prune", *filters, "--dry-run", "--json").stdout)["sessions"] == [
        "draft"
    ]
    hidden = run("sessions", "archive-stale", *filters, "--dry-run")
    assert (hidden.stdout, hidden.stderr) == ("draft\n", "1 sessions would be hidden\n")
    for other in (
        ("--title", "_"),
        ("--max-messages", 0, "--model", "m"),
        ("--cwd", "/w/a"),
        ("--min-cost", 1),
    ):
        assert "0 sessions deleted" in run("sessions", "prune", *other, "-y").stdout
    assert "1 sessions deleted" in run("sessions", "prune", *filters, "-y").stdout
    assert "draft" not in ids(raw)


def test_what_was_taken_up_after_the_look_is_not_said_to_be_deleted(
    aged: SessionDB, run: Run, raw: RawSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = SessionDB.list_prune_candidates

    def look_and_wait(self: SessionDB, *arguments: object, **named: object) -> list[str]:
        found = look(self, *arguments, **named)  # type: ignore[arg-type]
        raw("UPDATE sessions SET pinned = ? WHERE id = 'old'", True)
        raw("UPDATE sessions SET ended_at = 5 WHERE id = 'open'")
        return found

    monkeypatch.setattr(SessionDB, "list_prune_candidates", look_and_wait)
    assert json.loads(run("sessions", "prune", "-y", "--json").stdout)["sessions"] == []
    assert ids(raw) == ["new", "old", "open", "worker"]
