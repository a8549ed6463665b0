"""Opening, read-only stores, and what cannot be opened (CONTRACT.md sections 6 and 7; field reports K, S)."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from hermes_state import (
    HermesStateError,
    InvalidArgumentError,
    NotADatabaseError,
    SchemaAheadError,
    SchemaBehindError,
    SchemaMismatchError,
    SessionDB,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from tests.conftest import OpenDb
from tests.support.builders import contents_of, snapshot, user
from tests.support.raw import RawSql


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_made_and_migrated_on_opening_readable_by_its_owner_only(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        path = tmp_path / "new" / "state.db"
        with SessionDB(path) as db:
            db.create_session("s", "cli")
            modes = {file.name: mode(file) for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == {"state.db": 0o600, "state.db-wal": 0o600, "state.db-shm": 0o600}


def test_a_server_is_only_checked_unless_asked(fresh_postgres_url: str) -> None:
    for migrate in ("auto", False):
        with pytest.raises(SchemaBehindError, match="hermes-state upgrade"):
            SessionDB(url=fresh_postgres_url, migrate=migrate)
    with SessionDB(url=fresh_postgres_url, migrate=True) as db:
        assert db.create_session("s", "cli") == "s"


def test_a_file_is_not_migrated_where_that_is_forbidden(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    with pytest.raises(SchemaBehindError):
        SessionDB(path, migrate=False)
    with pytest.raises(SchemaBehindError):
        SessionDB(path, read_only=True)
    assert path.read_bytes() == b""


def test_a_read_only_store_reads_and_refuses_every_write(open_db: OpenDb, raw: RawSql) -> None:
    writer = open_db()
    writer.create_session("s", "cli")
    writer.append_message("s", "user", "a")
    before = snapshot(raw)
    reader = open_db(read_only=True)
    assert [m["content"] for m in reader.get_messages("s")] == ["a"]
    assert reader.list_sessions()[0]["id"] == "s"
    writes: list[Any] = [
        lambda: reader.create_session("t", "cli"),
        lambda: reader.append_message("s", "user", "b"),
        lambda: reader.set_meta("k", "v"),
        reader.unit_of_work,
    ]
    for write in writes:
        with pytest.raises(StoreReadOnlyError):
            write()
    with reader.engine.connect() as conn, pytest.raises(StoreReadOnlyError):
        conn.exec_driver_sql("DELETE FROM messages")
    assert snapshot(raw) == before


@pytest.mark.parametrize(
    ("revision", "error"), [("0999", SchemaAheadError), ("8f3a2b1c", SchemaMismatchError)]
)
def test_a_schema_that_is_not_ours_to_touch_is_refused(
    store_url: str, raw: RawSql, revision: str, error: type[HermesStateError]
) -> None:
    raw("UPDATE alembic_version SET version_num = ?", revision)
    with pytest.raises(error):
        SessionDB(url=store_url, migrate=True)
    assert raw("SELECT version_num FROM alembic_version") == [(revision,)]


def test_a_missing_column_is_named_before_the_first_query(store_url: str, raw: RawSql) -> None:
    raw("ALTER TABLE sessions DROP COLUMN git_branch")
    with pytest.raises(SchemaMismatchError, match=r"sessions\.git_branch"):
        SessionDB(url=store_url)


@pytest.mark.parametrize(
    "url", ["mysql://u:geheim@h/d", "postgresql+asyncpg://u:geheim@h/d", "no url", "sqlite+aiosqlite:///x"]
)
def test_an_unknown_database_is_refused_and_no_file_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgumentError) as refusal:
        SessionDB(url=url)
    assert "geheim" not in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_not_there_is_unavailable_and_no_file_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    with pytest.raises(StoreUnavailableError) as refusal:
        SessionDB("postgresql://u:geheim@127.0.0.1:1/d?password=geheim")
    assert "geheim" not in f"{refusal.value} {refusal.value.__cause__}"
    assert refusal.value.transient
    assert list(tmp_path.iterdir()) == []


def test_a_database_that_does_not_exist_is_unavailable(postgres_url: str) -> None:
    with pytest.raises(StoreUnavailableError):
        SessionDB(url=postgres_url.rpartition("/")[0] + "/nobody_made_this")


def test_what_is_no_database_is_refused_and_left_untouched(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database " * 200)
    before = path.read_bytes()
    for opened in (path, tmp_path):
        with pytest.raises(NotADatabaseError):
            SessionDB(opened)
    assert path.read_bytes() == before


def test_a_missing_file_opened_read_only_is_unavailable_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError):
        SessionDB(tmp_path / "none.db", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_path_and_url_at_once_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError):
        SessionDB(tmp_path / "a.db", url="sqlite:///b.db")


def test_the_target_is_fixed_when_the_object_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "first"))
    with SessionDB() as db:
        monkeypatch.setenv("HERMES_HOME", str(tmp_path / "second"))
        monkeypatch.chdir(tmp_path)
        db.create_session("s", "cli")
    assert (tmp_path / "first" / "state.db").exists()
    assert not (tmp_path / "second").exists()


def test_a_path_that_holds_a_url_is_a_url(store_url: str) -> None:
    with SessionDB(store_url) as db:
        assert db.create_session("s", "cli") == "s"


def test_a_store_in_memory_lives_as_long_as_its_object() -> None:
    with SessionDB(":memory:") as db:
        db.create_session("s", "cli")
        assert db.append_message("s", "user", "a") == 1
        assert db.message_count() == 1


def test_an_open_store_is_in_wal_mode_and_enforces_foreign_keys(tmp_path: Path) -> None:
    with SessionDB(tmp_path / "a.db") as db:
        reading = {"hermes_state_read_only": True}
        connections = [db.engine.connect().execution_options(**reading) for _ in range(3)]
        found = [
            (
                c.exec_driver_sql("PRAGMA foreign_keys").scalar(),
                c.exec_driver_sql("PRAGMA journal_mode").scalar(),
            )
            for c in connections
        ]
        for connection in connections:
            connection.close()
    assert found == [(1, "wal")] * 3


def test_a_journal_mode_set_by_its_owner_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    SessionDB(path).close()
    with sqlite3.connect(path) as conn:
        conn.execute("PRAGMA journal_mode = DELETE")
    conn.close()
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        assert db.append_messages_batch("s", [user(), user("b")]) == 2
        with db.engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "delete"


def test_opening_an_up_to_date_file_writes_no_byte(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    SessionDB(path).close()
    before = path.read_bytes()
    SessionDB(path).close()
    assert path.read_bytes() == before


def test_a_removed_file_never_becomes_a_fresh_empty_store(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with SessionDB(folder / "a.db") as db:
        db.create_session("s", "cli")
        db.engine.dispose()
        shutil.rmtree(folder)
        with pytest.raises(StoreUnavailableError):
            db.create_session("t", "cli")
    assert not folder.exists()


def test_a_full_disk_leaves_nothing_partial_and_the_store_works_again(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        with db.engine.connect() as conn:
            pages = conn.exec_driver_sql("PRAGMA page_count").scalar_one()
            conn.exec_driver_sql(f"PRAGMA max_page_count = {pages + 4}")
        with pytest.raises(StoreFullError):
            db.append_messages_batch("s", [user("x" * 50_000), user("y" * 50_000)])
        with db.engine.connect() as conn:
            conn.exec_driver_sql("PRAGMA max_page_count = 1000000")
        assert db.append_messages_batch("s", [user("small")]) == 1
    raw = RawSql(f"sqlite:///{path}")
    assert contents_of(raw) == ["small"]
    raw.close()


def test_ids_are_never_reused(db: SessionDB, session: str, raw: RawSql) -> None:
    first = db.append_message(session, "user", "a")
    raw("DELETE FROM messages")
    assert db.append_message(session, "user", "b") > first
