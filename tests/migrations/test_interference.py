"""Many upgrades at once, and an upgrade that is killed (field reports Q4, Q9)."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from hermes_state import upgrades
from hermes_state.errors import SchemaBehindError, SchemaMismatchError
from tests.migrations.conftest import Connect
from tests.support import catalogue
from tests.support.raw import RawSql

ROOT = Path(__file__).parents[2]
PROCESSES = 10

PREAMBLE = """
import sys, time
import alembic.command
import sqlalchemy as sa
from hermes_state import upgrades
from hermes_state.engine import build_engine, resolve_url
from hermes_state.settings import Settings

settings = Settings()
target = resolve_url(None, sys.argv[1], settings)
"""
UPGRADE = """
print("ready", flush=True)
sys.stdin.readline()
engine = build_engine(target, settings)
upgrades.upgrade(engine)
with engine.connect() as conn:
    upgrades.check_schema(conn)
print(upgrades.current(engine), flush=True)
engine.dispose()
"""
STOP_HALF_WAY = """
engine = build_engine(target, settings)

@sa.event.listens_for(engine, "after_cursor_execute")
def stop(conn, cursor, statement, *rest):
    if "CREATE TABLE messages" in statement:
        print("half-way", flush=True)
        time.sleep(600)

upgrades.upgrade(engine)
"""


@contextmanager
def children(code: str, url: str, count: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that run ``code``; none outlives the block."""
    command = [sys.executable, "-W", "error", "-c", PREAMBLE + code, url]
    pipe = subprocess.PIPE
    started = [
        subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        for _ in range(count)
    ]
    try:
        yield started
    finally:
        for child in started:
            child.kill()
            child.communicate()


def said(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


@pytest.mark.slow
@pytest.mark.parametrize("downgraded", [False, True], ids=["new", "downgraded"])
def test_ten_processes_upgrade_one_database_at_once(
    engine: sa.Engine, sql: RawSql, empty_url: str, backend: str, downgraded: bool
) -> None:
    if downgraded:
        upgrades.upgrade(engine)
        upgrades.downgrade(engine, "base")
    elif backend == "sqlite":
        sql.close()
        Path(empty_url.removeprefix("sqlite:///")).unlink()
    with children(UPGRADE, empty_url, PROCESSES) as started:
        assert [said(child) for child in started] == ["ready"] * PROCESSES
        for child in started:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        results = [child.communicate(timeout=120) for child in started]
    assert results == [(f"{upgrades.HEAD}\n", "")] * PROCESSES
    reader = RawSql(empty_url)
    assert reader("SELECT version_num FROM alembic_version") == [(upgrades.HEAD,)]
    reader.close()


def test_threads_of_one_process_upgrade_different_files_at_once(connect: Connect, tmp_path: Path) -> None:
    """Alembic's own state is global to the process."""
    engines = [connect(f"sqlite:///{tmp_path / f'{number}.db'}") for number in range(6)]
    failures: list[BaseException] = []

    def run(engine: sa.Engine) -> None:
        try:
            upgrades.upgrade(engine)
        except BaseException as error:  # noqa: BLE001 - handed to the test, whatever it is
            failures.append(error)

    threads = [threading.Thread(target=run, args=(engine,)) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [upgrades.current(engine) for engine in engines] == [upgrades.HEAD] * 6


def test_an_upgrade_killed_half_way_has_done_nothing_and_the_next_one_finishes(
    engine: sa.Engine, sql: RawSql, empty_url: str, backend: str
) -> None:
    with children(STOP_HALF_WAY, empty_url, 1) as (child,):
        assert said(child) == "half-way"
        child.kill()
        child.wait()
    assert catalogue.tables(sql, backend) == set()
    upgrades.upgrade(engine)
    assert upgrades.check(engine) == []


def test_an_upgrade_that_fails_has_done_nothing(engine: sa.Engine, sql: RawSql, backend: str) -> None:
    def fail(*call: object) -> None:
        if "ix_messages__carriers" in str(call[2]):
            message = "the power went out"
            raise OSError(message)

    sa.event.listen(engine, "before_cursor_execute", fail)
    with pytest.raises(OSError, match="the power went out"):
        upgrades.upgrade(engine)
    assert catalogue.tables(sql, backend) == set()
    sa.event.remove(engine, "before_cursor_execute", fail)
    upgrades.upgrade(engine)
    assert upgrades.current(engine) == upgrades.HEAD


@pytest.mark.postgres
@pytest.mark.parametrize("backend", ["postgresql"])
@pytest.mark.parametrize("move", ["upgrade", "downgrade"])
def test_a_look_is_not_misled_by_an_upgrade_that_ends_in_the_middle_of_it(
    migrated: sa.Engine, empty_url: str, connect: Connect, move: str
) -> None:
    """PostgreSQL gives each statement its own snapshot: tables of before, version of after."""
    if move == "upgrade":
        upgrades.downgrade(migrated, "base")
    other = connect(empty_url)
    moves = [lambda: upgrades.upgrade(other) if move == "upgrade" else upgrades.downgrade(other, "base")]

    def interfere(*call: object) -> None:
        if "version_num" in str(call[2]) and moves:
            moves.pop()()

    sa.event.listen(migrated, "before_cursor_execute", interfere)
    expected = None if move == "downgrade" else upgrades.HEAD
    with migrated.connect() as conn:
        if expected is None:
            with pytest.raises(SchemaBehindError):
                upgrades.check_schema(conn)
        else:
            upgrades.check_schema(conn)
    assert upgrades.current(other) == expected


def test_a_version_older_than_its_tables_is_a_typed_mismatch(migrated: sa.Engine, sql: RawSql) -> None:
    sql("UPDATE alembic_version SET version_num = '0001'")
    with pytest.raises(SchemaMismatchError, match="not those of their version"):
        upgrades.upgrade(migrated)
    assert sql("SELECT version_num FROM alembic_version") == [("0001",)]
