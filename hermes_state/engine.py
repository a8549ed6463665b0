"""Engines per dialect: where a store is, how its connections are set up, and how transactions begin.

SQLite: the driver's own BEGIN is off. A write transaction starts with BEGIN IMMEDIATE, because a read snapshot
cannot be upgraded once another writer has committed; a connection with the execution option
``hermes_state_read_only`` starts with a deferred BEGIN and never waits for writers (DESIGN.md, decision 5).
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import stat
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import tenacity
from sqlalchemy.engine import URL, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry, NullPool, PoolProxiedConnection, QueuePool

from hermes_state.driver_errors import translate
from hermes_state.errors import (
    InvalidArgumentError,
    NotADatabaseError,
    StoreError,
    StoreReadOnlyError,
    StoreUnavailableError,
    UndecodableTextError,
    redact,
)
from hermes_state.search_occurrences import text_holds
from hermes_state.settings import Settings, default_url

logger = logging.getLogger(__name__)

READ_ONLY_OPTION = "hermes_state_read_only"
MINIMUM_SQLITE = (3, 38, 0)  # the first release with the -> operator that the strip uses
_FIRST_WAIT_MS = 5
IDLE_SECONDS_BEFORE_PING = 1.0
_POSTGRESQL_DRIVERS = {"postgres", "postgresql", "postgresql+psycopg"}

# Serialises the creation of files: SQLite's POSIX locks of this process would be dropped if the descriptor
# that makes a file were closed while another thread already uses that file (field report K1).
_creation_lock = threading.Lock()


def resolve_url(db_path: str | os.PathLike[str] | None, url: str | URL | None, settings: Settings) -> URL:
    """The one target of a store: ``url``, else the file ``db_path``, else the default of the settings.

    ``db_path`` may hold a URL as well. Raises ``InvalidArgumentError`` for both at once, for text that is no URL and
    for databases other than SQLite and PostgreSQL; there is no fall-back to another database (CONTRACT.md section 6).
    """
    if db_path is not None and url is not None:
        raise InvalidArgumentError("url", "give either db_path or url, not both")
    if db_path is not None and "://" not in str(os.fspath(db_path)):
        return _sqlite_url(str(os.fspath(db_path)))
    return _normalised(url if url is not None else str(db_path or default_url(settings)))


def redacted(url: URL) -> str:
    """``url`` as text without password, and without secrets among its query values."""
    return redact(url.render_as_string(hide_password=True))


def sqlite_path(url: URL) -> Path | None:
    """The file of a SQLite URL; ``None`` for a database in memory."""
    return None if url.database in (None, "", ":memory:") else Path(str(url.database))


def require_sqlite_file(url: URL) -> None:
    """Refuses a SQLite URL whose file is not there, with ``StoreUnavailableError``: a mistyped path is no new store."""
    path = sqlite_path(url) if url.get_backend_name() == "sqlite" else None
    if path is not None and not os.path.lexists(path):
        raise _absent(path)


def build_engine(url: URL, settings: Settings, *, read_only: bool = False, pool: bool = True) -> sa.Engine:
    """An engine with this package's connection settings; SQLite files that are missing are created with mode 0600.

    Read-only, none is created. ``pool=False`` opens a connection for each use (migrations). Nothing is connected yet on PostgreSQL.
    Errors: ``NotADatabaseError`` for a directory, ``StoreReadOnlyError`` or ``StoreUnavailableError`` for a file
    that cannot be made.
    """
    build = _sqlite_engine if url.get_backend_name() == "sqlite" else _postgresql_engine
    engine = build(url, settings, read_only=read_only, pool=pool)
    sa.event.listen(engine, "handle_error", _typed_error)
    _engines.add(engine)
    return engine


def _drop_inherited_connections() -> None:
    """In a forked child: a connection cannot be shared between processes.

    SQLite's must be closed before the child opens the file, since its locks are accounted by process; closing a
    socket of PostgreSQL's would end the parent's session.
    """
    for engine in list(_engines):
        engine.dispose(close=engine.dialect.name == "sqlite")


_engines: weakref.WeakSet[sa.Engine] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_inherited_connections)


def reading(engine: sa.Engine) -> sa.Engine:
    """The same connections for transactions that only read: all statements of one see the same moment."""
    options: dict[str, Any] = {READ_ONLY_OPTION: True}
    if engine.dialect.name == "postgresql":
        options["isolation_level"] = "REPEATABLE READ"  # SQLite's snapshots do so by themselves
    return engine.execution_options(**options)


def _typed_error(context: sa.ExceptionContext) -> BaseException | None:
    """Every driver error leaves SQLAlchemy as one of ours, with the driver's own as its cause."""
    return translate(context.sqlalchemy_exception or context.original_exception)


def _normalised(url: str | URL) -> URL:
    try:
        parsed = make_url(url)
    except (sa.exc.ArgumentError, ValueError) as error:
        raise InvalidArgumentError("url", "it is not a database URL") from error
    if parsed.drivername in _POSTGRESQL_DRIVERS:
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername in ("sqlite", "sqlite+pysqlite"):
        return _sqlite_url(parsed.database or ":memory:")
    raise InvalidArgumentError(
        "url", f"database {parsed.drivername!r} is not supported; use sqlite:/// or postgresql+psycopg://"
    )


def _sqlite_url(path: str) -> URL:
    if path != ":memory:":
        # A later chdir, or another environment, must not move the store (field report S4).
        path = os.path.abspath(os.path.expanduser(path))
    if "\0" in path:
        raise InvalidArgumentError("db_path", "a path cannot hold NUL")
    return URL.create("sqlite", database=path)


def _sqlite_engine(url: URL, settings: Settings, *, read_only: bool, pool: bool) -> sa.Engine:
    if sqlite3.sqlite_version_info < MINIMUM_SQLITE:
        raise StoreUnavailableError(f"SQLite {sqlite3.sqlite_version} is too old, 3.38 or newer is needed")
    path = sqlite_path(url)
    if path is not None:
        _prepare_sqlite_file(path, read_only=read_only)
    options: dict[str, Any] = {"poolclass": QueuePool, "pool_size": settings.pool_size, "max_overflow": 10}
    if path is None:
        # The data lives and dies with the one connection.
        options |= {"pool_size": 1, "max_overflow": 0}
    elif not pool:
        options = {"poolclass": NullPool}
    engine = sa.create_engine(
        "sqlite://",
        creator=lambda: _connect_sqlite(path, read_only),
        hide_parameters=True,
        pool_reset_on_return=None if pool else "rollback",
        **options,
    )
    _listen_sqlite(engine, settings, read_only=read_only)
    return engine


def _prepare_sqlite_file(path: Path, *, read_only: bool) -> None:
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise NotADatabaseError(f"{path} is a directory or a device")
        if not read_only and found.st_size == 0:
            os.chmod(path, 0o600)  # by path: nothing but SQLite may open the file
    except FileNotFoundError:
        if read_only:
            raise _absent(path) from None
        _create_sqlite_file(path)
    except OSError as error:
        raise _refused(path, error) from error


def _create_sqlite_file(path: Path) -> None:
    with _creation_lock:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            logger.debug("somebody else created %s", path)
        except OSError as error:
            raise _refused(path, error) from error


def _absent(path: Path) -> StoreError:
    return StoreUnavailableError(f"there is no store at {path}; check the path, or make one with upgrade")


def _refused(path: Path, error: OSError) -> StoreError:
    is_forbidden = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
    kind = StoreReadOnlyError if is_forbidden else StoreUnavailableError
    return kind(f"{path} cannot be created or opened: {error.strerror}")


def _connect_sqlite(path: Path | None, read_only: bool) -> sqlite3.Connection:
    if path is None:
        return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    # mode=rw: a file removed behind our back is an error, never a fresh empty store.
    target = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}"
    return sqlite3.connect(
        target, uri=True, isolation_level=None, check_same_thread=False, timeout=_FIRST_WAIT_MS / 1000
    )


def _listen_sqlite(engine: sa.Engine, settings: Settings, *, read_only: bool) -> None:
    budget = settings.busy_timeout_seconds
    is_tolerant = threading.Event()

    @sa.event.listens_for(engine, "connect")
    def _set_up(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        # Reads and commits wait inside SQLite; only BEGIN IMMEDIATE waits with jitter, see _begin. First of all: the other
        # pragmas read the schema, which another process may be making at this moment.
        cursor.execute(f"PRAGMA busy_timeout = {int(budget * 1000)}")
        cursor.execute("PRAGMA foreign_keys = ON")
        connection.create_function("hermes_state_holds", 3, text_holds, deterministic=True)
        if not read_only:
            cursor.execute(f"PRAGMA synchronous = {settings.synchronous}")
            # Builds that overwrite what is deleted would write every stripped checkpoint once more (docs/adr/0010).
            cursor.execute("PRAGMA secure_delete = FAST")
        cursor.close()

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        driver = connection.connection.driver_connection
        assert driver is not None
        if is_tolerant.is_set():
            driver.text_factory = _tolerant_text
        if read_only or connection.get_execution_options().get(READ_ONLY_OPTION):
            driver.execute("BEGIN")
            return
        try:
            if not connection.info.get("journal_is_chosen"):
                # Only a write may choose: a store that is merely checked stays as it is.
                _patiently(budget, lambda: _choose_journal(driver))
                connection.info["journal_is_chosen"] = True
            _begin_immediate(driver, budget)
        except sqlite3.Error as error:
            # Raised inside an event, where SQLAlchemy does not look for driver errors.
            raise translate(error) or error from error

    @sa.event.listens_for(engine, "handle_error")
    def _become_tolerant(context: sa.ExceptionContext) -> None:
        if isinstance(
            translate(context.sqlalchemy_exception or context.original_exception), UndecodableTextError
        ):
            is_tolerant.set()


def _tolerant_text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _choose_journal(driver: Any) -> None:
    """WAL for a new database; whatever an existing one was set to stays (field report K4)."""
    if driver.execute("PRAGMA page_count").fetchone()[0]:
        return
    mode = driver.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode not in ("wal", "memory"):
        logger.warning(
            "this file system does not take SQLite's WAL; the store works in journal mode %s", mode
        )


def _begin_immediate(driver: Any, budget: float) -> None:
    # SQLite's own busy handler sleeps in fixed steps, which makes writers march in convoy (field report I1).
    driver.execute(f"PRAGMA busy_timeout = {_FIRST_WAIT_MS}")
    try:
        _patiently(budget, lambda: driver.execute("BEGIN IMMEDIATE"))
    finally:
        driver.execute(f"PRAGMA busy_timeout = {int(budget * 1000)}")


def _patiently(budget: float, step: Any) -> None:
    """Runs ``step`` until SQLite is not busy, with random pauses, for ``budget`` seconds at most."""
    try:
        step()
    except sqlite3.OperationalError as error:
        if not _is_busy(error):
            raise
        tenacity.Retrying(
            retry=tenacity.retry_if_exception(_is_busy),
            stop=tenacity.stop_after_delay(budget),
            wait=tenacity.wait_random(0.001, 0.02) + tenacity.wait_random_exponential(0.001, max=0.1),
            reraise=True,
        )(step)


def _is_busy(error: BaseException) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _postgresql_engine(url: URL, settings: Settings, *, read_only: bool, pool: bool) -> sa.Engine:
    connect_args: dict[str, Any] = {
        "connect_timeout": max(1, round(settings.connect_timeout_seconds)),
        "application_name": "hermes_state",
        "options": _session_options(url, settings, read_only=read_only),
    }
    bare, secrets = _without_query(url)
    options: dict[str, Any] = {"poolclass": NullPool}
    if pool:
        options = {
            "pool_size": settings.pool_size,
            "max_overflow": 10,
            "pool_recycle": 1800,
        }
    try:
        engine = sa.create_engine(
            bare,
            connect_args=connect_args | secrets,
            hide_parameters=True,
            json_deserializer=_json_text,
            **options,
        )
    except ModuleNotFoundError as error:
        raise StoreUnavailableError("psycopg is missing: pip install 'hermes-state[postgres]'") from error
    _listen_postgresql(engine)
    return engine


def _listen_postgresql(engine: sa.Engine) -> None:
    """Pings a pooled connection that lay idle; ``pool_pre_ping`` would pay that round trip in every transaction.

    One that ended a moment ago is met by its first statement: a typed, transient error, and the next call works (S1).
    """

    @sa.event.listens_for(engine, "checkin")
    def _note(_connection: DBAPIConnection | None, record: ConnectionPoolEntry) -> None:
        record.info["idle_since"] = time.monotonic()

    @sa.event.listens_for(engine, "checkout")
    def _ping(
        connection: DBAPIConnection, record: ConnectionPoolEntry, _proxy: PoolProxiedConnection
    ) -> None:
        now = time.monotonic()
        if now - record.info.get("idle_since", now) < IDLE_SECONDS_BEFORE_PING:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise sa.exc.DisconnectionError from error  # the pool opens another one


def _without_query(url: URL) -> tuple[URL, dict[str, str]]:
    """``url`` without what may hide a secret in its query, and that as arguments of the driver: an engine shows its URL."""
    moved = {
        k: v for k, v in url.query.items() if isinstance(v, str) and k not in ("options", "host", "port")
    }
    return url.difference_update_query([*moved, "options"]), moved


def _session_options(url: URL, settings: Settings, *, read_only: bool) -> str:
    given = url.query.get("options", "")
    words = [given] if isinstance(given, str) else list(given)
    words.append(f"-c statement_timeout={int(settings.statement_timeout_seconds * 1000)}")
    words.append(f"-c lock_timeout={int(settings.busy_timeout_seconds * 1000)}")
    if read_only:
        words.append("-c default_transaction_read_only=on")
    return " ".join(word for word in words if word)


def _json_text(data: bytes | str) -> str:
    # Both databases hand JSON columns out as text; payloads.py is the one decoder.
    return data if isinstance(data, str) else bytes(data).decode()
