"""Building the index: interrupted, beside writers, and over rows that were there before it (issue 5, items 3 and 5)."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_state import SessionDB, StoreError, upgrades
from tests.conftest import OpenDb
from tests.support.builders import user
from tests.support.raw import RawSql
from tests.support.search_index import assert_in_step, damage, forget_all
from tests.support.searching import found, say
from tests.support.statements import failing_statement

TEXT = "a zebra \u8bb0\u5fc6\u65ad\u88c2 youer"
QUERIES = ["zebra", '"a zebra"', "\u8bb0", "\u8bb0\u5fc6\u65ad", "you*"]
BEFORE_SEARCH = "0007"


def assert_finds(db: SessionDB, rows: list[int]) -> None:
    for query in QUERIES:
        assert found(db, query) == rows, query


def rebuild(db: SessionDB) -> None:
    db.rebuild_search_index()


def switch_on(db: SessionDB) -> None:
    db.set_trigram_index(True)


def switch_off(db: SessionDB) -> None:
    db.set_trigram_index(False)


@pytest.mark.parametrize("work", [rebuild, switch_on, switch_off], ids=lambda work: work.__name__)
def test_an_interrupted_build_loses_no_hit_and_is_taken_up_again(
    search_db: SessionDB, raw: RawSql, work: Callable[[SessionDB], None]
) -> None:
    rows = say(search_db, *(TEXT for _ in range(20)))
    for number in range(30):
        try:
            with failing_statement(search_db.engine, number):
                work(search_db)
        except StoreError:
            rows += say(search_db, TEXT)
            assert_finds(search_db, rows)
            assert search_db.search_index_state()["state"] in ("on", "degraded", "building")
        else:
            break
    work(search_db)
    assert_finds(search_db, rows)
    assert search_db.search_index_state()["state"] == "on"
    assert_in_step(raw)


@pytest.mark.parametrize("work", [rebuild, switch_on, switch_off], ids=lambda work: work.__name__)
def test_a_build_beside_writers_misses_none_of_their_rows(
    search_db: SessionDB, open_db: OpenDb, raw: RawSql, work: Callable[[SessionDB], None]
) -> None:
    search_db.create_session("s", "cli")
    search_db.append_messages_batch("s", [user(TEXT) for _ in range(300)])
    writer, errors = open_db(), list[Exception]()
    writer.create_session("t", "cli")

    def write() -> None:
        try:
            for number in range(30):
                kept = writer.append_message("t", "user", TEXT)
                taken_back = writer.append_message("t", "user", TEXT)
                writer.delete_messages("t", [taken_back])
                writer.set_user_message_content("t", kept, f"{TEXT} {number}")
        except Exception as error:  # noqa: BLE001 - the thread has nobody else to tell
            errors.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    work(search_db)
    thread.join(60)
    assert errors == []
    rows = raw.column("SELECT id FROM messages ORDER BY id")
    assert len(rows) == 330
    for db in (search_db, writer):
        assert_finds(db, rows)
        assert db.search_index_state()["state"] == "on"
    assert_in_step(raw)


def test_a_rebuild_of_an_index_that_lacks_rows_brings_them_back(
    search_db: SessionDB, raw: RawSql, backend: str
) -> None:
    rows = say(search_db, TEXT, TEXT)
    search_db.rewind_to_message("s", rows[1])
    forget_all(raw, backend)
    search_db.rebuild_search_index()
    assert_finds(search_db, rows[:1])
    assert found(search_db, "zebra", include_inactive=True) == rows
    assert_in_step(raw)


def test_a_store_that_is_opened_broken_opens(
    search_db: SessionDB, open_db: OpenDb, raw: RawSql, backend: str
) -> None:
    rows = say(search_db, TEXT)
    damage(raw, backend, "missing")
    for options in ({}, {"read_only": True}, {"search_index": "off"}):
        db = open_db(**options)
        assert_finds(db, rows)
        assert db.get_messages("s")[0]["content"] == TEXT


def test_rows_of_an_older_schema_are_found_after_the_upgrade(
    search_db: SessionDB, store_url: str, raw: RawSql, backend: str
) -> None:
    """The newest schema goes back to the one before the search and forward again; the rows stay."""
    rows = say(search_db, TEXT, *(f"row {n}" for n in range(5)), TEXT)
    search_db.archive_and_compact("s", [user("summary")])
    before = raw("SELECT id, content, active, compacted FROM messages ORDER BY id")
    upgrades.downgrade(search_db.engine, BEFORE_SEARCH)
    raw("INSERT INTO messages (session_id, role, content) VALUES ('s', 'user', ?)", TEXT)
    (late,) = raw.column("SELECT max(id) FROM messages")
    upgrades.upgrade(search_db.engine)
    assert raw("SELECT id, content, active, compacted FROM messages ORDER BY id")[:-1] == before
    with SessionDB(url=store_url) as db:
        assert_finds(db, [rows[0], rows[-1], late])
        assert db.search_index_state()["state"] == "on"
        db.rebuild_search_index()
        assert_finds(db, [rows[0], rows[-1], late])
    assert_in_step(raw)


def test_a_copied_file_is_searched_where_it_lies(tmp_path: Path) -> None:
    """The backup verbs of SQLite take the index along."""

    with SessionDB(tmp_path / "a.db") as db:
        rows = say(db, TEXT)
        source, target = sqlite3.connect(tmp_path / "a.db"), sqlite3.connect(tmp_path / "b.db")
        source.backup(target)
        source.close()
        target.close()
    with SessionDB(tmp_path / "b.db") as copy:
        assert_finds(copy, rows)
        assert copy.search_index_state()["state"] == "on"
