"""A SQLite database as a file: copying, replacing and shrinking it, through SQLite only (field reports K1, K5 to K8)."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from hermes_state.driver_errors import translate
from hermes_state.errors import StoreBusyError, StoreCorruptError

Connection = sqlite3.Connection
Progress = Callable[[int, int], None]
_PAGES_A_STEP = 2_000
_INCREMENTAL = 2


def copy(source: sa.Engine, target: sa.Engine, progress: Progress | None) -> None:
    """Copies the database as it is now into the new, empty one of ``target``, and checks the copy."""
    with _driver(source) as connection:
        copy_connection(connection, target, progress)


def copy_connection(source: Connection, target: sa.Engine, progress: Progress | None) -> None:
    """As ``copy``, through a connection that is open already."""
    try:
        with _driver(target) as copied:
            # One snapshot for all steps: without it the copy starts again whenever somebody commits.
            source.execute("BEGIN")
            try:
                source.execute("SELECT count(*) FROM sqlite_master").fetchone()
                source.backup(copied, pages=_PAGES_A_STEP, progress=_told(progress))
            finally:
                source.execute("ROLLBACK")
            _require_sound(copied)
    finally:
        target.dispose()


def check(engine: sa.Engine) -> None:
    """Raises ``StoreCorruptError`` unless SQLite finds the whole database sound."""
    with _driver(engine) as connection:
        _require_sound(connection)


@contextmanager
def alone(engine: sa.Engine) -> Iterator[Connection]:
    """A connection that locks everybody else out until the block ends; ``StoreBusyError`` while somebody is there.

    Leaving the WAL is what SQLite allows only to the last connection: it moves the log into the file and removes it.
    """
    with _driver(engine) as connection:
        mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
        try:
            _lock_others_out(connection)
            yield connection
        finally:
            connection.execute("PRAGMA locking_mode = NORMAL")
            # Also when somebody came between the two steps: the file must not stay in a mode nobody chose.
            connection.execute(f"PRAGMA journal_mode = {'WAL' if mode == 'wal' else 'DELETE'}").fetchone()


def _lock_others_out(connection: Connection) -> None:
    patience = connection.execute("PRAGMA busy_timeout").fetchone()[0]
    connection.execute("PRAGMA busy_timeout = 1000")
    try:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("COMMIT")
    except sqlite3.OperationalError as error:
        found = translate(error)
        if isinstance(found, StoreBusyError):
            raise StoreBusyError("another process, or a part of this one, has the store open") from error
        raise
    finally:
        connection.execute(f"PRAGMA busy_timeout = {patience}")


def vacuum(engine: sa.Engine) -> str:
    """Gives free pages back to the file system; says how: ``rewritten``, ``incremental`` or ``kept``.

    The whole file is rewritten when nobody else has it open, which also prepares it for the incremental form. Otherwise
    free pages are given back in short transactions, where the file is prepared for that, else they are kept for new rows.
    The file is never swapped for another one: a program that has it open, and idle, would go on writing into the old one.
    """
    try:
        with alone(engine) as connection:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("VACUUM")
            return "rewritten"
    except StoreBusyError:
        with _driver(engine) as connection:
            return _vacuum_in_steps(connection)


def _vacuum_in_steps(connection: Connection) -> str:
    if connection.execute("PRAGMA auto_vacuum").fetchone() != (_INCREMENTAL,):
        return "kept"
    left = _free_pages(connection)
    while left:
        connection.execute(f"PRAGMA incremental_vacuum({_PAGES_A_STEP})").fetchall()
        before, left = left, _free_pages(connection)
        if left >= before:  # others free pages as fast
            break
    return "incremental"


def _free_pages(connection: Connection) -> int:
    return int(connection.execute("PRAGMA freelist_count").fetchone()[0])


def is_empty(connection: Connection) -> bool:
    """Whether the database holds no table at all."""
    return not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()


def overwrite(target: Connection, source: sa.Engine, progress: Progress | None) -> None:
    """Replaces the database of ``target``, in one transaction, by that of ``source``."""
    with _driver(source) as connection:
        connection.backup(target, pages=_PAGES_A_STEP, progress=_told(progress))
    _require_sound(target)


@contextmanager
def _driver(engine: sa.Engine) -> Iterator[Connection]:
    """The driver's connection; its errors come out typed."""
    proxy = engine.raw_connection()
    try:
        connection = proxy.driver_connection
        assert isinstance(connection, sqlite3.Connection)
        yield connection
    except sqlite3.Error as error:
        raise translate(error) or error from error
    finally:
        proxy.close()


def _require_sound(connection: Connection) -> None:
    found = [row[0] for row in connection.execute("PRAGMA integrity_check(5)")]
    if found != ["ok"]:
        raise StoreCorruptError("; ".join(found))


def _told(progress: Progress | None) -> Callable[[int, int, int], None] | None:
    if progress is None:
        return None
    return lambda _status, remaining, total: progress(remaining, total)


def is_database(path: Path) -> bool:
    """Whether there is a SQLite database, asked of SQLite itself: a descriptor of ours, closed, would drop this process's locks."""
    if not path.is_file() or path.stat().st_size == 0:
        return False
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as conn:
            conn.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        return error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_NOTADB
    return True
