"""An adoption that was killed goes on, and ends as one that never was (issue 4, item 1 and "Bad input")."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state import HermesStateError, SessionDB, StoreIncompleteError, upgrades
from hermes_state.transfer import adoption
from hermes_state.transfer.adoption import AdoptReport, Conversion, adopt_store
from hermes_state.transfer.completeness import SourceChangedError
from hermes_state.transfer.filling import Filling
from tests.contract.test_copying import assert_equal
from tests.support.builders import checkpoint
from tests.support.older_stores import OldStore
from tests.support.raw import RawSql

ROOT = Path(__file__).parents[2]
KILLED = """
import os, signal, sys
from hermes_state.dialects.bulk_postgresql import PostgresqlBulk
from hermes_state.dialects.bulk_sqlite import SqliteBulk
from hermes_state.transfer import adoption
from hermes_state.transfer.completeness import IncompleteMark
from hermes_state.transfer.filling import Filling

source, target, name, left = sys.argv[1:3] + [sys.argv[3], int(sys.argv[4])]
adoption._ROWS_A_PART, adoption._SESSIONS_A_PART = 7, 3

def deadly(found):
    def call(*arguments, **options):
        global left
        left -= 1
        result = found(*arguments, **options)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return call

for kind in (SqliteBulk, PostgresqlBulk, Filling, IncompleteMark, adoption._Adoption):
    if name in vars(kind):
        setattr(kind, name, deadly(getattr(kind, name)))
adoption.adopt_store(source, target)
"""


class HistoryStore(OldStore):
    """Sessions below each other, checkpoints, usage, notes, and rows of which every rule has something to say."""

    def fill(self) -> None:
        for number in range(8):
            parent = f"s{number - 1}" if number % 3 else None
            self.session(f"s{number}", title="Title", system_prompt=f"prompt {number % 2}", parent_session_id=parent,
                         input_tokens=number)  # fmt: skip
        self.usage(session_id="s1", model="m", input_tokens=5)
        self.conn.execute("INSERT INTO state_meta VALUES ('note', 'value')")
        for number in range(60):
            self.turn(number)

    def turn(self, number: int) -> None:
        """One message more."""
        items = json.dumps([checkpoint(str(number))]) if number % 4 == 1 else None
        self.message(f"s{number % 8}", ("user", "assistant")[number % 2], f"text {number}\0" if number % 9 == 0 else "text",
                     codex_reasoning_items=items, message_uid=f"uid-{number % 40}",
                     token_count="seven" if number % 10 == 0 else None)  # fmt: skip


@pytest.fixture
def old(tmp_path: Path) -> Iterator[HistoryStore]:
    store = HistoryStore(tmp_path / "old.db", 31)
    store.fill()
    yield store
    store.close()


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption, "_ROWS_A_PART", 7)
    monkeypatch.setattr(adoption, "_SESSIONS_A_PART", 3)


def kill(old: OldStore, store_url: str, name: str, after: int) -> None:
    """Adopts, and is killed behind the n-th call of a function."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, old.path, store_url, name, str(after)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr


def interrupt(old: OldStore, store_url: str, phase: str, after: int) -> None:
    """Adopts, and fails where so much of the phase is done."""

    def fail(now: str, done: int, _total: int) -> None:
        if now == phase and done >= after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        adopt_store(old.path, store_url, progress=fail)


def assert_as_uninterrupted(old: OldStore, store_url: str, report: AdoptReport, tmp_path: Path) -> None:
    """Every row of every table, every conversion and every count is that of one run."""
    fresh = f"sqlite:///{tmp_path / 'fresh.db'}"
    expected = adopt_store(old.path, fresh)
    assert_equal([fresh, store_url])
    assert report.conversions == expected.conversions
    assert report.conversion_counts == expected.conversion_counts
    for name in ("sessions", "messages", "notes", "stripped_messages", "stripped_bytes", "left_tables"):
        assert getattr(report, name) == getattr(expected, name), name
    ids = []
    for url in (fresh, store_url):
        with SessionDB(url=url) as db:
            assert upgrades.check(db.engine) == []
            ids.append(db.append_message("s1", "user", "next"))
    assert ids[0] == ids[1]


POINTS = [
    ("loosen", 1), ("_set_mark", 1), ("load", 1), ("load", 2), ("load", 7), ("load", 9), ("load", 11), ("load", 17),
    ("insert", 12), ("put", 20), ("put", 31), ("_count", 1), ("_copy_notes", 1), ("tighten", 1), ("set_last_id", 1), ("analyze", 1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "after"), POINTS)
def test_an_adoption_that_was_killed_ends_as_if_it_never_was(
    old: HistoryStore, store_url: str, tmp_path: Path, name: str, after: int
) -> None:
    kill(old, store_url, name, after)
    if name not in ("loosen", "_set_mark"):
        with pytest.raises(StoreIncompleteError, match=r"adopt` from .*old\.db has not finished"):
            SessionDB(url=store_url)
    report = adopt_store(old.path, store_url)
    assert_as_uninterrupted(old, store_url, report, tmp_path)


def test_one_that_is_killed_again_and_again_ends_too(
    old: HistoryStore, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, after in (("load", 8), ("_write_sessions", 2), ("load", 9), ("_count", 1), ("_copy_usage", 1)):
        kill(old, store_url, name, after)
    monkeypatch.setattr(adoption, "_ROWS_A_PART", 5)  # another release may cut otherwise
    report = adopt_store(old.path, store_url)
    assert report.resumed_after == 60
    assert_as_uninterrupted(old, store_url, report, tmp_path)


def test_what_was_written_is_not_written_again(
    old: HistoryStore, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(old, store_url, "messages", 35)
    written = []
    load = Filling.load

    def counted(self: Filling, table: Any, names: Any, rows: Any) -> None:
        written.extend([table.name] * len(rows))
        load(self, table, names, rows)

    monkeypatch.setattr(Filling, "load", counted)
    assert adopt_store(old.path, store_url).resumed_after == 35
    assert written.count("messages") == 60 - 35


def test_every_conversion_is_told_by_the_run_that_ends(old: HistoryStore, store_url: str) -> None:
    interrupt(old, store_url, "messages", 35)
    told: list[Conversion] = []
    report = adopt_store(old.path, store_url, on_conversion=told.append)
    assert told == report.conversions
    assert {found.column for found in told} >= {"content", "token_count", "message_uid", "title"}


@pytest.mark.parametrize("after", [14, 60])
def test_messages_and_sessions_that_came_since_are_taken_too(
    old: HistoryStore, store_url: str, tmp_path: Path, after: int
) -> None:
    interrupt(old, store_url, "messages", after)
    old.session("s8", title="Title", parent_session_id="s2")
    old.conn.execute("UPDATE sessions SET title = 'another', ended_at = started_at + 5 WHERE id = 's0'")
    old.conn.execute("UPDATE state_meta SET value = 'new'")
    for number in range(60, 75):
        old.turn(number)
    report = adopt_store(old.path, store_url)
    assert (report.messages, report.resumed_after) == (75, after)
    assert_as_uninterrupted(old, store_url, report, tmp_path)


CHANGES = {
    "another text": "UPDATE messages SET content = 'changed' WHERE id = 3",
    "one message less": "DELETE FROM messages WHERE id = 3",
    "one message taken back": "UPDATE messages SET active = 0 WHERE id = 3",
    "all messages gone": "DELETE FROM messages",
    "another session": "UPDATE messages SET session_id = 's7' WHERE id = 3",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_source_that_changed_where_it_was_copied_is_refused_until_all_starts_over(
    old: HistoryStore, store_url: str, raw: RawSql, tmp_path: Path, change: str
) -> None:
    interrupt(old, store_url, "messages", 35)
    old.conn.execute("PRAGMA foreign_keys = OFF")
    old.conn.execute(CHANGES[change])
    for _ in range(2):
        with pytest.raises(SourceChangedError, match="start over with --restart"):
            adopt_store(old.path, store_url)
        with pytest.raises(StoreIncompleteError):
            SessionDB(url=store_url)
        assert raw.value("SELECT count(*) FROM messages") == 35
    report = adopt_store(old.path, store_url, restart=True)
    assert report.resumed_after == 0
    assert_as_uninterrupted(old, store_url, report, tmp_path)


def test_another_option_is_no_going_on(old: HistoryStore, store_url: str) -> None:
    interrupt(old, store_url, "messages", 35)
    with pytest.raises(SourceChangedError, match="an option of this run"):
        adopt_store(old.path, store_url, keep_checkpoints=True)
    assert adopt_store(old.path, store_url).resumed_after == 35


def test_no_message_follows_behind_checkpoints_that_were_put_back(
    old: HistoryStore, store_url: str, raw: RawSql, tmp_path: Path
) -> None:
    interrupt(old, store_url, "finishing", 1)
    old.message("s1", "assistant", "newest", codex_reasoning_items=json.dumps([checkpoint("newest")]))
    with pytest.raises(SourceChangedError):
        adopt_store(old.path, store_url)
    assert raw.value("SELECT count(*) FROM messages") == 60
    report = adopt_store(old.path, store_url, restart=True)
    assert_as_uninterrupted(old, store_url, report, tmp_path)


def test_what_somebody_else_wrote_into_the_unfinished_store_does_not_stay(
    old: HistoryStore, store_url: str, raw: RawSql, tmp_path: Path
) -> None:
    interrupt(old, store_url, "messages", 35)
    raw("INSERT INTO sessions (id) VALUES ('intruder')")
    raw(
        "INSERT INTO messages (id, session_id, role, message_uid, timestamp) VALUES (40, 's1', 'user', 'x', 1)"
    )
    report = adopt_store(old.path, store_url)
    assert report.resumed_after == 0
    assert_as_uninterrupted(old, store_url, report, tmp_path)


def test_a_run_that_passes_by_what_is_written_says_that_it_lives(
    old: HistoryStore, store_url: str, raw: RawSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(old, store_url, "messages", 35)
    monkeypatch.setattr("hermes_state.transfer.filling._SILENT_SECONDS", 0.0)
    seen = []

    def look(phase: str, done: int, _total: int) -> None:
        if phase == "messages" and done <= 35:
            seen.append(raw.value("SELECT value FROM hermes_state_incomplete WHERE key = 'seen_at'"))

    adopt_store(old.path, store_url, progress=look)
    assert len(set(seen)) == 5


def test_a_full_disk_is_gone_on_from(
    old: HistoryStore, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, left = Filling.load, [14]

    def full(self: Filling, table: Any, names: Any, rows: Any) -> None:
        load(self, table, names, rows)
        left[0] -= 1
        if not left[0]:
            raise HermesStateError("no space")

    monkeypatch.setattr(Filling, "load", full)
    with pytest.raises(HermesStateError, match="no space"):
        adopt_store(old.path, store_url)
    report = adopt_store(old.path, store_url)
    assert 0 < report.resumed_after < 60
    assert_as_uninterrupted(old, store_url, report, tmp_path)
