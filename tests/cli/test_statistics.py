"""``stats`` and ``report``: a store at a glance (issue 4, item 5)."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest

from hermes_state import InvalidArgumentError, SessionDB
from tests.cli.conftest import Run
from tests.support.builders import checkpoint, user
from tests.support.raw import RawSql

HOSTILE = '<script>alert(1)</script>"&\x1b[31m\u202e'


def test_a_page_that_cannot_be_written_leaves_the_one_before(
    run: Run, filled: SessionDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled.create_session("one more", "cli")
    page = tmp_path / "store.html"
    page.write_text("the page of yesterday")

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    done = run("report", "--html", page, code=1)
    assert done.stderr.splitlines()[-1] == f"TransferFileError: {page}: No space left on device"
    assert page.read_text() == "the page of yesterday"
    assert [path for path in tmp_path.iterdir() if "html" in path.name] == [page]


@pytest.fixture
def filled(db: SessionDB, raw: RawSql) -> SessionDB:
    """Two sessions, one of them old, ended and hostile in its names; usage of two models; a shadowed checkpoint."""
    db.create_session("big", "cli")
    db.append_messages_batch("big", [user("x" * 5_000), user("y")])
    for name in ("old", "new"):
        raw(
            "INSERT INTO messages (session_id, role, codex_reasoning_items) VALUES ('big', 'assistant', ?)",
            json.dumps([{**checkpoint(name), "data": "z" * 1_000}]),
        )
    db.create_session(HOSTILE.replace("\x1b", ""), "telegram")
    raw(
        "UPDATE sessions SET ended_at = ?, started_at = ?, title = ? WHERE source = 'telegram'",
        2.0,
        1.0,
        HOSTILE,
    )
    db.update_token_counts("big", 10, 5, model=HOSTILE, estimated_cost_usd=1.5)
    db.update_token_counts("big", 1, 1, model="small", actual_cost_usd=0.25)
    raw(
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('big', 'user', 'far away', 1e300)"
    )
    return db


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]


def test_the_statistics_add_up(filled: SessionDB) -> None:
    found = filled.statistics(retention_days=1)
    assert found["messages"] == {"active": 5, "compacted": 0, "rewound": 0}
    assert found["sessions_by_source"] == {"cli": 1, "telegram": 1}
    assert found["biggest_sessions"][0]["session_id"] == "big"
    assert found["biggest_sessions"][0]["messages"] == 5
    assert found["biggest_sessions"][0]["text_bytes"] > 7_000
    today = time.strftime("%Y-%m-%d", time.gmtime())
    assert found["days"][-1]["day"] in ("", today)
    assert sum(day["messages"] for day in found["days"]) == 5
    assert found["checkpoints"]["shadowed_rows"] == 1
    assert 1_000 < found["checkpoints"]["shadowed_bytes"] < 1_200
    assert 1_000 < found["checkpoints"]["live_bytes"] < 1_200
    assert [record["model"] for record in found["usage_by_model"]] == sorted(
        record["model"] for record in found["usage_by_model"]
    )
    assert found["retention"] == {"days": 1, "sessions": 1, "messages": 0}
    assert filled.statistics(days=0, biggest=0)["biggest_sessions"] == []


def test_retention_counts_what_pruning_would_delete(filled: SessionDB, raw: RawSql) -> None:
    raw("UPDATE sessions SET started_at = 1, last_active_at = 1, ended_at = 2 WHERE id = 'big'")
    raw("INSERT INTO messages (session_id, role, active) VALUES ('big', 'user', ?)", False)
    raw("INSERT INTO sessions (id, started_at, parent_session_id) VALUES ('open', 1, 'big')")
    assert filled.statistics()["retention"] == {"days": 90, "sessions": 1, "messages": 0}
    raw("UPDATE sessions SET ended_at = 2 WHERE id = 'open'")
    assert filled.statistics()["retention"] == {"days": 90, "sessions": 3, "messages": 6}
    assert filled.prune_sessions() == 3


@pytest.mark.parametrize("name", ["days", "biggest", "retention_days"])
def test_a_number_below_zero_is_refused(db: SessionDB, name: str) -> None:
    with pytest.raises(InvalidArgumentError):
        db.statistics(**{name: -1})


def test_stats_prints_only_data_on_stdout(filled: SessionDB, run: Run) -> None:
    assert (
        json.loads(run("stats", "--json").stdout)["sessions_by_source"]
        == filled.statistics()["sessions_by_source"]
    )
    text = run("stats").stdout
    assert "1.5000" in text
    assert "\x1b" not in text


def test_stats_of_an_empty_store_says_so(run: Run) -> None:
    assert "sessions: none" in run("stats").stdout


def test_the_page_loads_nothing_and_runs_nothing(filled: SessionDB, run: Run, tmp_path: Path) -> None:
    assert filled.message_count("big") == 5
    path = tmp_path / "report.html"
    assert run("report", "--html", path).stdout.strip() == str(path)
    text = path.read_text(encoding="utf-8")
    page = _Page()
    page.feed(text)
    assert "script" not in page.tags
    assert page.links == []
    assert page.tags.count("svg") >= 4
    assert not re.search(r"https?://(?!www\.w3\.org/)", text)
    assert "&lt;script&gt;alert(1)" in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "prefers-color-scheme: dark" in text
    assert "hermes-state reclaim" in text


def test_drawing_leaves_the_imports_of_the_process_alone(run: Run, filled: SessionDB, tmp_path: Path) -> None:
    assert filled.message_count("big") == 5
    before = list(sys.meta_path)
    run("report", "--html", tmp_path / "report.html")
    assert sys.meta_path == before


def test_the_page_of_an_empty_store_is_a_page(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    run("report", "--html", path)
    assert path.read_text(encoding="utf-8").endswith("</html>\n")


def test_without_the_plotting_library_the_error_says_what_to_install(
    filled: SessionDB, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert filled.message_count("big") == 5
    monkeypatch.setitem(sys.modules, "pygal", None)
    result = run("report", "--html", tmp_path / "report.html", code=1)
    assert "hermes-state[report]" in result.stderr
    assert not (tmp_path / "report.html").exists()
