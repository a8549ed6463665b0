"""Backups of a whole store and their way back (issue 4, item 6; field reports K1, K7, K8)."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from hermes_state import (
    HermesStateError,
    InvalidArgumentError,
    NotADatabaseError,
    SchemaAheadError,
    SessionDB,
    StoreBusyError,
    StoreCorruptError,
    StoreUnavailableError,
)
from hermes_state.dialects import sqlite_files
from hermes_state.transfer.backups import backup_store, restore_store
from tests.support.builders import carrier, user
from tests.support.raw import RawSql, sqlite_file

EVERYTHING = "SELECT id, session_id, message_uid, content, timestamp, active FROM messages ORDER BY id"
KILLED_HALFWAY = """
import os, signal, sys
from hermes_state.transfer.backups import restore_store
def die(remaining, total):
    if remaining < total / 2:
        os.kill(os.getpid(), signal.SIGKILL)
restore_store(sys.argv[1], sys.argv[2], progress=die)
"""


def fill(url: str, texts: list[str], padding: int = 0) -> None:
    with SessionDB(url=url) as db:
        db.ensure_session("s", "cli")
        db.append_messages_batch("s", [user(text + "x" * padding) for text in texts] + [carrier("c")])


def rows(url: str) -> list[tuple[object, ...]]:
    with closing(RawSql(url)) as raw:
        return raw(EVERYTHING)


@contextmanager
def held_open(url: str) -> Iterator[None]:
    """A program that has read from the store and keeps its connection."""
    with closing(RawSql(url)) as raw:
        raw("SELECT count(*) FROM messages")
        yield


def files_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_backup_brings_back_what_there_was(store_url: str, tmp_path: Path) -> None:
    fill(store_url, ["a", "b"])
    before = rows(store_url)
    done = backup_store(store_url, tmp_path / "backups")
    assert done.size_bytes == done.path.stat().st_size
    assert done.path.stat().st_mode & 0o777 == 0o600
    assert files_of(tmp_path / "backups") == [done.path.name]
    fill(store_url, ["lost by the restore"])
    changed = rows(store_url)
    saved = restore_store(store_url, done.path)
    assert rows(store_url) == before
    assert saved is not None
    restore_store(store_url, saved.path)
    assert rows(store_url) == changed
    with SessionDB(url=store_url) as db:
        assert db.append_message("s", "user", "goes on") > max(int(str(row[0])) for row in changed)


def test_a_backup_is_of_one_moment_while_others_write(store_url: str, tmp_path: Path) -> None:
    fill(store_url, ["first"], padding=2_000_000)
    stop = threading.Event()

    def write() -> None:
        with SessionDB(url=store_url) as db:
            while not stop.is_set():
                db.append_messages_batch("s", [user("one"), user("two")])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        done = backup_store(store_url, tmp_path / "backups")
    finally:
        stop.set()
        writer.join()
    restore_store(store_url, done.path)
    with closing(RawSql(store_url)) as raw:
        ((stored, counted),) = raw("SELECT count(*), max(message_count) FROM messages, sessions")
    assert stored == counted
    assert stored % 2 == 0


def test_only_the_newest_backups_of_this_store_are_kept(store_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    (folder / "state-mine.db").write_text("not a backup of ours")
    made = [backup_store(store_url, folder, keep=2) for _ in range(4)]
    assert [len(done.removed) for done in made] == [0, 0, 1, 1]
    assert files_of(folder) == sorted([made[2].path.name, made[3].path.name, "state-mine.db"])


def test_a_named_file_is_replaced_once_the_new_one_is_complete(store_url: str, tmp_path: Path) -> None:
    for name in ("copy.bin", "copy"):
        path = tmp_path / name
        path.touch()
        assert backup_store(store_url, path).path == path
        before = rows(store_url)
        fill(store_url, ["a"])
        assert backup_store(store_url, path).path == path
        fill(store_url, ["b"])
        restore_store(store_url, path)
        assert len(rows(store_url)) == len(before) + 2


def test_what_is_no_backup_is_not_replaced(store_url: str, tmp_path: Path) -> None:
    text, other, archive = tmp_path / "notes", tmp_path / "other.db", tmp_path / "cut.dump"
    text.write_text("the only copy of it")
    archive.write_bytes(b"PGDMP and nothing behind it")
    with closing(sqlite3.connect(other)) as conn:
        conn.execute("CREATE TABLE mine (value)")
    for path in (text, other, archive):
        held = path.read_bytes()
        with pytest.raises(InvalidArgumentError, match="is no backup"):
            backup_store(store_url, path)
        assert path.read_bytes() == held
    assert files_of(tmp_path).count("notes") == 1
    assert not [name for name in files_of(tmp_path) if "partial" in name]


def test_a_backup_never_takes_the_place_of_a_store_in_use(store_url: str, tmp_path: Path) -> None:
    fill(store_url, ["a"])
    used = f"sqlite:///{tmp_path / 'used.db'}"
    with SessionDB(url=used) as db:
        db.create_session("mine", "cli")
        with pytest.raises(InvalidArgumentError, match="in use"):
            backup_store(store_url, tmp_path / "used.db")
        with pytest.raises(InvalidArgumentError, match="in use"):
            backup_store(used, tmp_path / "used.db")
        db.append_message("mine", "user", "later")
    assert [row[1] for row in rows(used)] == ["mine"]


def test_a_backup_into_what_is_no_file_is_refused(store_url: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.db"
    os.mkfifo(pipe)
    with pytest.raises(InvalidArgumentError, match="pipe"):
        backup_store(store_url, pipe)
    assert pipe.is_fifo()


def test_a_file_that_somebody_opens_while_it_is_locked_keeps_its_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def beaten(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA journal_mode = DELETE")
        raise StoreBusyError("somebody came between")

    monkeypatch.setattr(sqlite_files, "_lock_others_out", beaten)
    store_url = f"sqlite:///{tmp_path / 'state.db'}"
    with SessionDB(url=store_url) as db:
        db.create_session("s", "cli")
    with closing(RawSql(store_url)) as raw:
        raw("PRAGMA wal_checkpoint(TRUNCATE)")
    engine = sa.create_engine(store_url)
    assert sqlite_files.vacuum(engine) in {"kept", "incremental"}
    engine.dispose()
    with closing(RawSql(store_url)) as raw:
        assert raw("PRAGMA journal_mode") == [("wal",)]


@pytest.mark.parametrize("keep", [0, -1, True, 1.5, "2"])
def test_an_unusable_number_to_keep_is_refused(store_url: str, tmp_path: Path, keep: object) -> None:
    with pytest.raises(InvalidArgumentError):
        backup_store(store_url, tmp_path, keep=keep)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="folder"):
        backup_store(store_url, tmp_path / "one.db", keep=1)


def test_a_store_in_use_is_not_overwritten(store_url: str, tmp_path: Path) -> None:
    fill(store_url, ["a"])
    done = backup_store(store_url, tmp_path / "backups")
    fill(store_url, ["b"])
    before = rows(store_url)
    with held_open(store_url), pytest.raises(StoreBusyError):
        restore_store(store_url, done.path)
    with SessionDB(url=store_url) as db:
        db.message_count()
        with pytest.raises(StoreBusyError):
            restore_store(store_url, done.path)
    assert rows(store_url) == before
    restore_store(store_url, done.path)
    assert len(rows(store_url)) == 2


def test_what_is_no_backup_changes_nothing(store_url: str, tmp_path: Path) -> None:
    fill(store_url, ["a"])
    before, names = rows(store_url), files_of(tmp_path)
    bad = tmp_path / "bad.db"
    for content in (b"", b"hello", b"\0" * 8192, b"SQLite format 3\0" + b"\0" * 100):
        bad.write_bytes(content)
        with pytest.raises(HermesStateError):
            restore_store(store_url, bad)
    bad.unlink()
    for path in (bad, tmp_path):
        with pytest.raises(StoreUnavailableError):
            restore_store(store_url, path)
    assert rows(store_url) == before
    assert files_of(tmp_path) == names


def test_a_database_without_a_store_is_not_backed_up(
    backend: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if backend == "sqlite":
        (tmp_path / "zeroed.db").touch()
        url = f"sqlite:///{tmp_path / 'zeroed.db'}"
    else:
        url = request.getfixturevalue("fresh_postgres_url")
    with pytest.raises(NotADatabaseError):
        backup_store(url, tmp_path / "backups")
    assert not (tmp_path / "backups").exists()


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_damaged_store_leaves_the_earlier_backup(store_url: str, tmp_path: Path) -> None:
    fill(store_url, ["a"] * 50, padding=4000)
    path = tmp_path / "backup.db"
    backup_store(store_url, path)
    good = path.read_bytes()
    database = Path(sqlite_file(store_url))
    content = bytearray(database.read_bytes())
    content[40_960:61_440] = b"\xff" * 20_480
    database.write_bytes(content)
    with pytest.raises(StoreCorruptError):
        backup_store(store_url, path)
    assert path.read_bytes() == good
    with pytest.raises(StoreCorruptError):
        restore_store(store_url, path)
    assert (
        database.read_bytes()[100:] == bytes(content)[100:]
    )  # the header counts changes of the journal mode
    database.unlink()
    assert restore_store(store_url, path) is None
    assert len(rows(store_url)) == 51


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_log_of_a_killed_writer_does_not_outlive_a_restore(store_url: str, tmp_path: Path) -> None:
    fill(store_url, ["a"])
    done = backup_store(store_url, tmp_path / "backups")
    database = sqlite_file(store_url)
    child = os.fork()
    if child == 0:
        connection = sqlite3.connect(database, isolation_level=None)
        connection.execute("INSERT INTO messages (session_id, role, content) VALUES ('s', 'user', 'late')")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert Path(f"{database}-wal").stat().st_size > 0
    restore_store(store_url, done.path)
    assert not Path(f"{database}-wal").exists()
    assert [row[3] for row in rows(store_url)] == ["a", "answer c"]
    with closing(RawSql(store_url)) as raw:
        assert raw("PRAGMA integrity_check") == [("ok",)]
        assert raw("PRAGMA journal_mode") == [("wal",)]


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_restore_that_is_killed_leaves_the_store_as_it_was(store_url: str, tmp_path: Path) -> None:
    fill(store_url, [f"{n}" for n in range(3_000)], padding=5_000)
    done = backup_store(store_url, tmp_path / "backups")
    fill(store_url, ["newer"])
    before = rows(store_url)
    killed = subprocess.run([sys.executable, "-c", KILLED_HALFWAY, store_url, done.path], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert rows(store_url) == before
    restore_store(store_url, done.path)
    assert len(rows(store_url)) == 3_001


def test_a_backup_of_a_newer_release_is_refused(store_url: str, tmp_path: Path) -> None:
    with closing(RawSql(store_url)) as raw:
        (current,) = raw.column("SELECT version_num FROM alembic_version")
        raw("UPDATE alembic_version SET version_num = '9999'")
        done = backup_store(store_url, tmp_path / "backups")
        raw("UPDATE alembic_version SET version_num = ?", current)
    with pytest.raises(SchemaAheadError):
        restore_store(store_url, done.path)
    assert rows(store_url) == []


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_journal_mode_that_the_user_set_stays(store_url: str, tmp_path: Path) -> None:
    done = backup_store(store_url, tmp_path / "backups")
    with closing(RawSql(store_url)) as raw:
        raw("PRAGMA journal_mode = DELETE")
    restore_store(store_url, done.path)
    with closing(RawSql(store_url)) as raw:
        assert raw("PRAGMA journal_mode") == [("delete",)]


@pytest.mark.postgres
@pytest.mark.parametrize("backend", ["postgresql"])
def test_no_password_reaches_the_command_line_or_an_error(store_url: str, tmp_path: Path) -> None:
    host = store_url.rpartition("@")[2]
    with pytest.raises(HermesStateError) as refused:
        backup_store(f"postgresql://hermes_wrong_password:geheim@{host}", tmp_path / "backups")
    assert "geheim" not in str(refused.value)
