"""Shadowed checkpoints out of a store that others have filled, and their space back (issue 4, item 4; D1 to D7)."""

from __future__ import annotations

import json
import multiprocessing
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hermes_state import SessionDB, StoreReadOnlyError
from hermes_state.reports import ReclaimReport
from tests.conftest import OpenDb
from tests.support.builders import checkpoint, items_of, reasoning, snapshot
from tests.support.raw import RawSql, sqlite_file

INSERT = (
    "INSERT INTO messages (session_id, role, content, codex_reasoning_items, active, compacted) "
    "VALUES (?, ?, ?, ?, ?, ?)"
)
PADDING = "x" * 50_000


def foreign_row(raw: RawSql, session_id: str, items: Any, **columns: Any) -> None:
    row = {"role": "assistant", "content": "text", "active": True, "compacted": False} | columns
    text = items if isinstance(items, str) else json.dumps(items)
    raw(INSERT, session_id, row["role"], row["content"], text, row["active"], row["compacted"])


def bloated(raw: RawSql, session_id: str, number: int) -> None:
    raw("INSERT INTO sessions (id, source) VALUES (?, 'cli')", session_id)
    for n in range(number):
        foreign_row(raw, session_id, [reasoning(f"r{n}"), {**checkpoint(f"c{n}"), "data": PADDING}])


def test_all_sessions_keep_one_carrier_and_every_other_item(db: SessionDB, raw: RawSql) -> None:
    for name in ("a", "b", "c"):
        bloated(raw, name, {"a": 5, "b": 1, "c": 3}[name])
    report = db.reclaim(vacuum=False)
    assert (report["sessions"], report["rows"], report["vacuum"]) == (2, 6, None)
    assert 6 * len(PADDING) < report["checkpoint_bytes"] < 6 * (len(PADDING) + 200)
    for name, number in (("a", 5), ("b", 1), ("c", 3)):
        found = items_of(raw, name)
        assert found[:-1] == [[reasoning(f"r{n}")] for n in range(number - 1)]
        assert [item["type"] for item in found[-1]] == ["reasoning", "compaction"]
    before = snapshot(raw)
    assert db.reclaim(vacuum=False)["rows"] == 0
    assert snapshot(raw) == before


def test_only_shadowed_active_assistant_rows_change(db: SessionDB, raw: RawSql) -> None:
    raw("INSERT INTO sessions (id, source) VALUES ('s', 'cli')")
    untouched: list[tuple[str, dict[str, Any]]] = [
        ("[checkpoint of a user]", {"role": "user"}),
        ("rewound", {"active": False}),
        ("summarised", {"active": False, "compacted": True}),
    ]
    for content, columns in untouched:
        foreign_row(raw, "s", [checkpoint(content)], content=content, **columns)
    foreign_row(raw, "s", {"type": "compaction"}, content="no list")
    foreign_row(raw, "s", [{"nested": checkpoint("n")}, "compaction", None, 7], content="no checkpoint")
    foreign_row(raw, "s", [checkpoint("old")], content="old")
    foreign_row(raw, "s", [checkpoint("x"), checkpoint("y")], content="newest")
    before = raw("SELECT * FROM messages ORDER BY id")
    report = db.reclaim(vacuum=False)
    assert (report["sessions"], report["rows"]) == (1, 1)
    after = raw("SELECT * FROM messages ORDER BY id")
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    assert len(changed) == 1
    assert raw("SELECT content FROM messages WHERE active AND codex_reasoning_items IS NULL") == [("old",)]


@pytest.mark.parametrize("backend", ["sqlite"])
def test_malformed_items_of_other_programs_stay(db: SessionDB, raw: RawSql) -> None:
    raw("INSERT INTO sessions (id, source) VALUES ('s', 'cli')")
    foreign_row(raw, "s", '[{"type":"compaction"', content="broken")
    foreign_row(raw, "s", [checkpoint("old")])
    foreign_row(raw, "s", [checkpoint("new")])
    assert db.reclaim(vacuum=False)["rows"] == 1
    assert raw.column("SELECT codex_reasoning_items FROM messages")[:2] == ['[{"type":"compaction"', None]


def test_one_session_can_be_named(db: SessionDB, raw: RawSql) -> None:
    bloated(raw, "a", 3)
    bloated(raw, "b", 3)
    assert db.reclaim("a", vacuum=False)["rows"] == 2
    assert items_of(raw, "b")[0][1]["type"] == "compaction"
    for unknown in ("nobody", "", "\0"):
        assert db.reclaim(unknown, vacuum=False)["sessions"] == 0


def test_a_dry_run_says_what_would_go_and_writes_nothing(open_db: OpenDb, raw: RawSql) -> None:
    open_db()
    bloated(raw, "a", 4)
    before = snapshot(raw)
    looked = open_db(read_only=True).reclaim(dry_run=True)
    assert snapshot(raw) == before
    done = open_db().reclaim(vacuum=False)
    assert (looked["sessions"], looked["rows"]) == (done["sessions"], done["rows"]) == (1, 3)
    assert looked["checkpoint_bytes"] == pytest.approx(
        done["checkpoint_bytes"], rel=0.01
    )  # blanks in the JSON
    with pytest.raises(StoreReadOnlyError):
        open_db(read_only=True).reclaim()


def test_parts_are_short_transactions_between_which_others_write(db: SessionDB, raw: RawSql) -> None:
    raw("INSERT INTO sessions (id, source) VALUES ('s', 'cli')")
    for n in range(600):
        foreign_row(raw, "s", [checkpoint(f"c{n}")])
    seen: list[int] = []

    def write(report: ReclaimReport) -> None:
        seen.append(report["rows"])
        foreign_row(raw, "s", [checkpoint(f"late {len(seen)}")])

    report = db.reclaim(vacuum=False, on_part=write)
    assert len(seen) >= 3
    assert report["rows"] == seen[-1] == 599
    assert raw("SELECT count(*) FROM messages WHERE codex_reasoning_items IS NOT NULL") == [(len(seen) + 1,)]


def test_a_run_that_was_interrupted_is_simply_started_again(db: SessionDB, raw: RawSql) -> None:
    bloated(raw, "a", 3)
    bloated(raw, "b", 3)

    def stop(_report: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        db.reclaim(vacuum=False, on_part=stop)
    assert db.reclaim(vacuum=False)["rows"] == 2
    assert db.append_message("a", "user", "goes on") > 0


def test_the_sizes_of_all_tables_are_told(db: SessionDB, raw: RawSql) -> None:
    bloated(raw, "a", 40)
    sizes = {size.name: size for size in db.sizes()}
    assert sizes["messages"].size_bytes > 10_000
    assert sizes["ix_messages__carriers"].table == "messages"
    assert [size.size_bytes for size in db.sizes()] == sorted(
        (s.size_bytes for s in db.sizes()), reverse=True
    )
    report = db.reclaim()
    assert {size.name for size in report["sizes_before"]} == {size.name for size in report["sizes_after"]}


@pytest.mark.parametrize("backend", ["sqlite"])
def test_the_file_shrinks_to_what_is_live_when_nobody_else_has_it(open_db: OpenDb, store_url: str) -> None:
    path = Path(sqlite_file(store_url))
    empty = path.stat().st_size
    with closing(RawSql(store_url)) as raw:
        bloated(raw, "a", 200)
    assert path.stat().st_size > empty + 10_000_000
    db = open_db()
    assert db.reclaim()["vacuum"] == "rewritten"
    assert path.stat().st_size < empty + 200_000
    assert path.stat().st_mode & 0o777 == 0o600
    with closing(RawSql(store_url)) as raw:
        assert raw("PRAGMA integrity_check") == [("ok",)]
        assert raw("PRAGMA journal_mode") == [("wal",)]
    assert db.append_message("a", "user", "goes on") > 200


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_file_that_others_have_open_gives_its_free_pages_back(open_db: OpenDb, store_url: str) -> None:
    db = open_db()
    assert db.reclaim()["vacuum"] == "rewritten"
    empty = Path(sqlite_file(store_url)).stat().st_size
    with closing(RawSql(store_url)) as raw:
        bloated(raw, "a", 100)
        assert db.reclaim()["vacuum"] == "incremental"
        raw("PRAGMA wal_checkpoint(TRUNCATE)")
        assert Path(sqlite_file(store_url)).stat().st_size < empty + 200_000


def _reclaim(url: str) -> None:
    with SessionDB(url=url) as db:
        db.reclaim(vacuum=False)


def test_two_at_once_strip_each_row_once(db: SessionDB, raw: RawSql) -> None:
    bloated(raw, "a", 60)
    processes = [
        multiprocessing.get_context("spawn").Process(target=_reclaim, args=(db.url,)) for _ in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    found = items_of(raw, "a")
    assert found == [[reasoning(f"r{n}")] for n in range(59)] + [found[-1]]
    assert len(found[-1]) == 2
