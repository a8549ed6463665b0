"""Broken sources, unfit targets, kills: a typed error, the source untouched, the target whole or marked (issue 4)."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from hermes_state import (
    HermesStateError,
    InvalidArgumentError,
    NotADatabaseError,
    SchemaAheadError,
    SchemaMismatchError,
    SessionDB,
    StoreBusyError,
    StoreCorruptError,
    StoreFullError,
    StoreIncompleteError,
    StoreUnavailableError,
)
from hermes_state.transfer.adoption import adopt_store
from hermes_state.transfer.completeness import LostTargetError, OperationRunningError, OtherOperationError
from hermes_state.transfer.filling import TargetNotEmptyError
from tests.support.older_stores import OldStore
from tests.support.raw import RawSql

KILLED_HALFWAY = """
import os, signal, sys
from hermes_state.transfer.adoption import adopt_store
def die(phase, done, total):
    if phase == sys.argv[3] and done >= total / 2:
        os.kill(os.getpid(), signal.SIGKILL)
adopt_store(sys.argv[1], sys.argv[2], progress=die)
"""


@pytest.fixture
def old(tmp_path: Path) -> Iterator[OldStore]:
    store = OldStore(tmp_path / "old.db")
    store.session()
    store.messages(("s", "user", f"text {number}", None) for number in range(5_000))
    yield store
    store.close()


def closed(old: OldStore) -> Path:
    """The file alone, its -wal folded in."""
    old.conn.execute("PRAGMA journal_mode = DELETE")
    old.close()
    return old.path


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2 :] = b"\xaa" * (len(content) - len(content) // 2)
    path.write_bytes(content)


def scribble(path: Path) -> None:
    path.write_text("just text" * 200)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def foreign(path: Path) -> None:
    path.unlink()
    conn = sqlite3.connect(path)
    conn.execute("CREATE TABLE notes (a)")
    conn.close()


def alter(statement: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        conn = sqlite3.connect(path)
        conn.execute(statement)
        conn.commit()
        conn.close()

    return change


def zero_the_version(path: Path) -> None:
    """Damages the page on which ``schema_version`` stands, and no other."""
    conn = sqlite3.connect(path)
    ((page,),) = conn.execute("SELECT rootpage FROM sqlite_master WHERE name = 'schema_version'")
    ((size,),) = conn.execute("PRAGMA page_size")
    conn.close()
    content = bytearray(path.read_bytes())
    content[(page - 1) * size : page * size] = bytes(size)
    path.write_bytes(content)


UNFIT: list[tuple[Callable[[Path], None], type[HermesStateError], str]] = [
    (truncate, StoreCorruptError, "."),
    (zero, NotADatabaseError, "."),
    (damage, StoreCorruptError, "."),
    (scribble, NotADatabaseError, "."),
    (empty, SchemaMismatchError, "missing table sessions"),
    (foreign, SchemaMismatchError, "missing table sessions"),
    (Path.unlink, StoreUnavailableError, "there is no store"),
    (alter("UPDATE schema_version SET version = 32"), SchemaAheadError, "32"),
    (alter("UPDATE schema_version SET version = 16"), SchemaMismatchError, "version 16"),
    (alter("UPDATE schema_version SET version = 32.5"), SchemaAheadError, "32"),
    (alter("UPDATE schema_version SET version = x'3939'"), SchemaAheadError, "99"),
    (alter("UPDATE schema_version SET version = 9e999"), SchemaAheadError, "31"),
    (alter("INSERT INTO schema_version VALUES (32)"), SchemaAheadError, "32"),
    (alter("UPDATE schema_version SET version = 0"), SchemaMismatchError, "version 0"),
    (alter("UPDATE schema_version SET version = -9e999"), SchemaMismatchError, "version -1"),
    (
        alter("ALTER TABLE schema_version RENAME version TO revision"),
        SchemaMismatchError,
        "schema_version.version",
    ),
    (zero_the_version, StoreCorruptError, "."),
    (alter("ALTER TABLE messages DROP COLUMN compacted"), SchemaMismatchError, "messages.compacted"),
    (alter("DROP TABLE state_meta"), SchemaMismatchError, "state_meta"),
    (
        alter("CREATE TABLE alembic_version (version_num TEXT)"),
        SchemaMismatchError,
        "a store of this package",
    ),
]


@pytest.mark.parametrize(
    ("spoil", "error", "words"), UNFIT, ids=[str(number) for number in range(len(UNFIT))]
)
def test_a_source_that_is_no_sound_older_store_is_refused(
    old: OldStore,
    store_url: str,
    raw: RawSql,
    spoil: Callable[[Path], None],
    error: type[HermesStateError],
    words: str,
) -> None:
    path = closed(old)
    spoil(path)
    before = path.read_bytes() if path.exists() else None
    with pytest.raises(error, match=words):
        adopt_store(path, store_url)
    assert (path.read_bytes() if path.exists() else None) == before
    if error is not StoreCorruptError or spoil is zero_the_version:  # which may show in the middle only
        assert raw("SELECT * FROM state_meta") == []


@pytest.mark.parametrize(
    "statement",
    ["DROP TABLE schema_version", "UPDATE schema_version SET version = 'new'", "DELETE FROM schema_version"],
)
def test_the_columns_decide_where_no_version_is_stated(old: OldStore, store_url: str, statement: str) -> None:
    old.conn.execute(statement)
    report = adopt_store(old.path, store_url)
    assert (report.version, report.messages) == (None, 5_000)


def test_a_store_with_conversations_is_not_filled(old: OldStore, store_url: str, raw: RawSql) -> None:
    with SessionDB(url=store_url) as db:
        db.create_session("mine", "cli")
        with pytest.raises(TargetNotEmptyError, match="give an empty database"):
            adopt_store(old.path, store_url)
        assert db.get_session("mine") is not None
    assert raw.column("SELECT id FROM sessions") == ["mine"]


def test_the_older_store_is_no_target(old: OldStore, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="older store itself"):
        adopt_store(old.path, old.path)
    second = tmp_path / "second.db"
    shutil.copy(closed(old), second)
    before = second.read_bytes()
    with pytest.raises(SchemaMismatchError, match="left untouched"):
        adopt_store(old.path, second)
    assert second.read_bytes() == before
    with pytest.raises(InvalidArgumentError, match="SQLite file"):
        adopt_store("postgresql://nowhere/x", tmp_path / "new.db")
    with pytest.raises(InvalidArgumentError, match="memory"):
        adopt_store(old.path, ":memory:")


@pytest.mark.parametrize("phase", ["messages", "finishing"])
def test_a_killed_adoption_leaves_a_marked_store_and_goes_on(
    old: OldStore, store_url: str, raw: RawSql, phase: str
) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED_HALFWAY, old.path, store_url, phase], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert raw.value("SELECT count(*) FROM messages") > 0
    ways: list[dict[str, Any]] = [{}, {"read_only": True}, {"migrate": False}]
    for options in ways:
        with pytest.raises(StoreIncompleteError, match=r"adopt` from .*old\.db has not finished") as refused:
            SessionDB(url=store_url, **options)
        assert refused.value.operation == "adopt"
    assert adopt_store(old.path, store_url).messages == 5_000
    with SessionDB(url=store_url) as db:
        assert len(db.get_messages("s")) == 5_000
    assert raw("SELECT * FROM state_meta") == []


def test_an_adoption_that_failed_can_be_run_again_at_once(old: OldStore, store_url: str, raw: RawSql) -> None:
    def fail(phase: str, done: int, _total: int) -> None:
        if phase == "messages" and done > 2_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        adopt_store(old.path, store_url, progress=fail)
    with pytest.raises(StoreIncompleteError):
        SessionDB(url=store_url)
    adopt_store(old.path, store_url)
    assert raw.value("SELECT count(*) FROM messages") == 5_000


def test_two_adoptions_into_one_store_do_not_mix(old: OldStore, store_url: str, raw: RawSql) -> None:
    refused: list[BaseException] = []

    def second(phase: str, _done: int, _total: int) -> None:
        if phase == "messages" and not refused:
            with pytest.raises(OperationRunningError) as error:
                adopt_store(old.path, store_url)
            refused.append(error.value)

    assert adopt_store(old.path, store_url, progress=second).messages == 5_000
    assert len(refused) == 1
    assert raw.value("SELECT count(*) FROM messages") == 5_000


def test_an_adoption_whose_store_was_taken_over_stops(old: OldStore, store_url: str, raw: RawSql) -> None:
    def take_over(phase: str, done: int, _total: int) -> None:
        if phase == "messages" and done == 2_000:
            raw("UPDATE hermes_state_incomplete SET value = 'somebody' WHERE key = 'holder'")

    with pytest.raises(LostTargetError):
        adopt_store(old.path, store_url, progress=take_over)
    assert raw.value("SELECT count(*) FROM messages") == 2_000


def test_a_store_that_somebody_else_wrote_into_meanwhile_is_not_opened(
    old: OldStore, store_url: str, raw: RawSql
) -> None:
    def write(phase: str, done: int, _total: int) -> None:
        if phase == "messages" and done == 2_000:
            raw("INSERT INTO sessions (id) VALUES ('intruder')")

    with pytest.raises(LostTargetError):
        adopt_store(old.path, store_url, progress=write)
    with pytest.raises(StoreIncompleteError):
        SessionDB(url=store_url)


def test_what_another_source_left_is_thrown_away_only_when_asked(
    old: OldStore, store_url: str, raw: RawSql, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-c", KILLED_HALFWAY, old.path, store_url, "messages"], check=False)
    other = OldStore(tmp_path / "other.db")
    other.session("other")
    with pytest.raises(OtherOperationError, match=r"adopt` from .*old\.db"):
        adopt_store(other.path, store_url)
    assert raw.value("SELECT count(*) FROM messages") > 0
    adopt_store(other.path, store_url, restart=True)
    other.close()
    assert raw.column("SELECT id FROM sessions") == ["other"]
    with SessionDB(url=store_url) as db:
        assert db.get_session("other") is not None


def test_a_full_disk_in_the_middle_is_typed_and_the_next_run_succeeds(old: OldStore, tmp_path: Path) -> None:
    target = tmp_path / "new.db"

    def fill_up(connection: Any, _record: object) -> None:
        connection.execute("PRAGMA max_page_count = 150")

    sa.event.listen(sa.engine.Engine, "connect", fill_up)
    try:
        with pytest.raises(StoreFullError):
            adopt_store(old.path, target)
    finally:
        sa.event.remove(sa.engine.Engine, "connect", fill_up)
    with pytest.raises(StoreIncompleteError):
        SessionDB(target)
    assert adopt_store(old.path, target).messages == 5_000
    with SessionDB(target) as db:
        assert len(db.get_messages("s")) == 5_000


def test_a_damage_in_the_middle_leaves_the_target_marked(old: OldStore, store_url: str) -> None:
    path = closed(old)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 8 * 4096] = bytes(8 * 4096)
    path.write_bytes(content)
    with pytest.raises(StoreCorruptError):
        adopt_store(path, store_url)
    assert path.read_bytes() == content


def test_a_source_that_somebody_has_locked_is_busy(
    old: OldStore, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_STATE_BUSY_TIMEOUT_SECONDS", "0.1")
    old.conn.execute("PRAGMA journal_mode = DELETE")
    old.conn.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreBusyError):
        adopt_store(old.path, store_url)
    old.conn.execute("COMMIT")
    assert adopt_store(old.path, store_url).messages == 5_000


def test_a_source_without_a_wal_is_read_while_its_program_has_it_open(old: OldStore, store_url: str) -> None:
    old.conn.execute("PRAGMA journal_mode = DELETE")
    before = old.path.read_bytes()
    assert adopt_store(old.path, store_url).messages == 5_000
    assert old.path.read_bytes() == before
    assert sorted(path.name for path in old.path.parent.glob("old.db*")) == ["old.db"]
