"""``sessions title`` and ``usage`` (issue 6, item 6)."""

from __future__ import annotations

import json

import pytest

from hermes_state import SessionDB
from tests.cli.conftest import Run


@pytest.fixture
def named(db: SessionDB) -> SessionDB:
    """Two sessions, one of them named, with usage of two models."""
    for name in ("first", "second"):
        db.create_session(name, "cli")
    db.set_session_title("first", "topic")
    db.update_token_counts("first", 1_000, 200, model="big\x1b[31m", estimated_cost_usd=2.5, api_call_count=1)
    db.update_token_counts("second", 10, 2, model="small")
    db.record_auxiliary_usage("second", "title", input_tokens=5, model="small")
    return db


def test_a_title_is_printed_given_and_taken_away(named: SessionDB, run: Run) -> None:
    assert run("sessions", "title", "first").stdout == "topic\n"
    assert run("sessions", "title", "sec", "  other\u202e ").stdout == "other\n"
    assert named.get_session_title("second") == "other"
    assert json.loads(run("sessions", "title", "second", "--clear", "--json").stdout) == {
        "session_id": "second", "title": None,
    }  # fmt: skip
    assert run("sessions", "title", "second").stdout == ""


def test_a_refused_title_is_one_line_and_exit_code_1(named: SessionDB, run: Run) -> None:
    assert run("sessions", "title", "second", "topic", code=1).stderr.startswith("TitleConflictError: ")
    assert "too long" in run("sessions", "title", "second", "x" * 101, code=1).stderr
    assert "UnknownSessionError" in run("sessions", "title", "nobody", "x", code=1).stderr
    run("sessions", "title", "second", "x", "--clear", code=2)
    assert named.get_session_title("second") is None


def test_usage_prints_a_line_for_each_group_and_a_total(named: SessionDB, run: Run) -> None:
    assert named.usage_totals()["input_tokens"] == 1_015
    text = run("usage").stdout
    assert "\x1b" not in text
    assert [line.split()[0] for line in text.splitlines()[1:]] == [
        "big\N{REPLACEMENT CHARACTER}[31m",
        "small",
        "total",
    ]
    assert "1,015" in text
    for by in ("model", "provider", "task", "day", "session"):
        found = json.loads(run("usage", "--by", by, "--json").stdout)
        assert (
            sum(group["total_tokens"] for group in found["groups"]) == found["total"]["total_tokens"] == 1_217
        )
    assert json.loads(run("usage", "--session", "second", "--json").stdout)["total"]["input_tokens"] == 15


def test_usage_of_nothing_prints_nothing_on_stdout(db: SessionDB, run: Run) -> None:
    assert run("usage").stdout == ""
    db.create_session("s", "cli")
    assert json.loads(run("usage", "--json").stdout)["groups"] == []
    run("usage", "--session", "nobody", code=1)
