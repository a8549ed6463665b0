"""A whole store into another database: killed, interrupted, on a full disk or from a damaged file (issue 4, item 2; field report R3)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from hermes_state import (
    SessionDB,
    StoreCorruptError,
    StoreFullError,
    StoreIncompleteError,
    upgrades,
)
from hermes_state.transfer import copying
from hermes_state.transfer.completeness import LostTargetError, OtherOperationError
from hermes_state.transfer.copying import copy_store
from hermes_state.transfer.filling import Filling
from tests.contract.test_copying import assert_equal, fill, interrupt
from tests.support.pairs import PAIRS, store_urls
from tests.support.raw import RawSql, sqlite_file

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=PAIRS)
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[str]]:
    """The URLs of two empty stores."""
    with store_urls(request.param, request, tmp_path) as found:
        yield found


KILLED = """
import os, signal, sys
from hermes_state.dialects.bulk_postgresql import PostgresqlBulk
from hermes_state.dialects.bulk_sqlite import SqliteBulk
from hermes_state.transfer import copying
from hermes_state.transfer.filling import Filling

source, target, name, left = sys.argv[1:3] + [sys.argv[3], int(sys.argv[4])]
copying.BATCH_ROWS = 3

def deadly(found):
    def call(*arguments, **options):
        global left
        left -= 1
        result = found(*arguments, **options)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return call

for kind in (SqliteBulk, PostgresqlBulk, Filling, copying._Copy):
    if hasattr(kind, name):
        setattr(kind, name, deadly(getattr(kind, name)))
copying.copy_store(source, target)
"""


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("loosen", 1), ("_set_mark", 1), ("insert", 1), ("insert", 2), ("insert", 7), ("_insert", 9), ("_insert", 14),
        ("_digest", 3), ("_digest", 6), ("tighten", 1), ("set_last_id", 6), ("analyze", 1),
    ],
)  # fmt: skip
def test_a_copy_that_was_killed_is_marked_and_goes_on(urls: list[str], name: str, after: int) -> None:
    fill(urls[0], 20)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *urls, name, str(after)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    has_begun = (name, after) not in (("loosen", 1), ("_set_mark", 1))
    if has_begun:
        with pytest.raises(StoreIncompleteError, match="hermes-state copy"):
            SessionDB(url=urls[1])
    report = copy_store(urls[0], urls[1])
    assert report.resumed is has_begun
    assert_equal(urls)
    with SessionDB(url=urls[1]) as db:
        assert upgrades.check(db.engine) == []


def test_a_source_that_changed_before_the_second_run_is_copied_as_it_is_then(
    urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "BATCH_ROWS", 5)
    fill(urls[0])
    interrupt(urls, after=6)
    raw = RawSql(urls[0])
    raw("UPDATE messages SET content = 'changed' WHERE id = (SELECT min(id) FROM messages)")
    raw("DELETE FROM messages WHERE id = (SELECT max(id) FROM messages WHERE id < 9)")
    raw("UPDATE sessions SET input_tokens = 99 WHERE id = 'a'")
    raw.close()
    with SessionDB(url=urls[0]) as db:
        db.append_message("other", "user", "new")
    assert copy_store(urls[0], urls[1]).resumed
    assert_equal(urls)


def test_nothing_opens_the_target_before_it_is_complete(
    urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(urls[0])
    interrupt(urls, after=3)
    for options in ({}, {"read_only": True}, {"migrate": False}, {"migrate": True}):
        with pytest.raises(StoreIncompleteError) as caught:
            SessionDB(url=urls[1], **options)  # type: ignore[arg-type]
        assert caught.value.operation == "copy"
        assert caught.value.source.startswith(urls[0].split(":")[0])
    with pytest.raises(StoreIncompleteError):
        copy_store(urls[1], urls[0])
    copy_store(urls[0], urls[1])
    SessionDB(url=urls[1]).close()


def test_a_run_that_lost_its_target_writes_nothing_more(
    urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "BATCH_ROWS", 5)
    fill(urls[0])
    raw = RawSql(urls[1])

    def take(*_progress: object) -> None:
        raw("UPDATE hermes_state_incomplete SET value = '' WHERE key = 'holder'")

    with pytest.raises(LostTargetError):
        copy_store(urls[0], urls[1], on_progress=take)
    raw.close()
    copy_store(urls[0], urls[1])
    assert_equal(urls)


def test_the_unfinished_copy_of_another_store_is_refused_unless_started_over(
    urls: list[str], tmp_path: Path
) -> None:
    fill(urls[0])
    interrupt(urls, after=3)
    other = f"sqlite:///{tmp_path / 'other.db'}"
    with SessionDB(url=other) as db:
        db.create_session("only", "cli")
    with pytest.raises(OtherOperationError):
        copy_store(other, urls[1])
    assert copy_store(other, urls[1], restart=True).resumed is False
    assert_equal([other, urls[1]])


def test_a_copy_of_a_copied_file_knows_its_own_unfinished_target(tmp_path: Path) -> None:
    source, target = tmp_path / "a.db", tmp_path / "b.db"
    fill(f"sqlite:///{source}")
    interrupt([str(source), str(target)], after=4)
    moved = tmp_path / "moved.db"
    shutil.move(target, moved)
    copy_store(source, moved)
    assert_equal([f"sqlite:///{source}", f"sqlite:///{moved}"])
    assert sqlite_file(f"sqlite:///{moved}") == str(moved)


def test_a_run_that_could_not_even_say_that_it_failed_does_not_block_the_next_one(
    urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(urls[0])

    def unable(_self: object) -> None:
        raise StoreFullError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(Filling, "_release", unable)
        interrupt(urls, after=3, error=StoreFullError)
    copy_store(urls[0], urls[1])
    assert_equal(urls)


def test_a_full_disk_in_the_middle_is_typed_and_the_copy_goes_on_later(tmp_path: Path) -> None:
    source, target = (f"sqlite:///{tmp_path / name}" for name in ("a.db", "b.db"))
    fill(source, 3000)

    def fill_up(connection: Any, _record: object) -> None:
        connection.execute("PRAGMA max_page_count = 100")

    sa.event.listen(sa.engine.Engine, "connect", fill_up)
    try:
        with pytest.raises(StoreFullError):
            copy_store(source, target)
    finally:
        sa.event.remove(sa.engine.Engine, "connect", fill_up)
    with pytest.raises(StoreIncompleteError):
        SessionDB(url=target)
    copy_store(source, target)
    assert_equal([source, target])


def test_a_damaged_source_is_typed_and_leaves_the_target_incomplete(tmp_path: Path) -> None:
    source, target = tmp_path / "a.db", f"sqlite:///{tmp_path / 'b.db'}"
    fill(f"sqlite:///{source}", 3000)
    raw = RawSql(f"sqlite:///{source}")
    raw("PRAGMA wal_checkpoint(TRUNCATE)")
    raw.close()
    data = bytearray(source.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 8 * 4096] = bytes(8 * 4096)
    source.write_bytes(data)
    with pytest.raises(StoreCorruptError):
        copy_store(source, target)
    assert source.read_bytes() == bytes(data)
