"""Backups of a whole store, and putting one back (issue 4, item 6; field reports K7, K8)."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import URL

from hermes_state import upgrades
from hermes_state.dialects import operations_for, postgresql_programs, sqlite_files
from hermes_state.dialects.sqlite_files import Progress
from hermes_state.engine import build_engine, resolve_url
from hermes_state.errors import (
    InvalidArgumentError,
    NotADatabaseError,
    SchemaAheadError,
    SchemaBehindError,
    SchemaError,
    StoreError,
    StoreUnavailableError,
)
from hermes_state.repositories.base import require_count
from hermes_state.settings import Settings

__all__ = ["Backup", "Progress", "backup_store", "restore_store"]

_STAMP = "%Y%m%dT%H%M%S.%fZ"
_STAMPED = r"-\d{8}T\d{6}\.\d{6}Z"


@dataclass(frozen=True)
class Backup:
    """A finished backup: its file, the file's bytes, and the older backups that it replaced."""

    path: Path
    size_bytes: int
    removed: tuple[Path, ...] = ()


def backup_store(
    url: str | URL,
    into: str | os.PathLike[str],
    *,
    keep: int | None = None,
    progress: Progress | None = None,
) -> Backup:
    """Copies the store at ``url`` as it is at one moment, while others go on working with it.

    ``into`` is a folder, in which the backup gets a name of its own with the time (UTC), or the file to write; a file
    that is there is replaced once the new one is complete, if it is a backup or empty, is not in use and has no log beside
    it (else ``InvalidArgumentError``). Only a copy that passed its check gets the name: SQLite's
    integrity check, or ``pg_restore`` reading the archive that ``pg_dump`` made. ``keep`` (at least 1): how many backups
    of this store stay in the folder, the newest ones. ``progress`` is called with the pages that remain and the pages in
    all (SQLite only). Raises ``StoreCorruptError``, ``NotADatabaseError``, ``StoreUnavailableError``,
    ``StoreFullError``; earlier backups are untouched then.
    """
    if keep is not None:
        require_count("keep", keep, least=1)
    source, settings = resolve_url(None, url, Settings()), Settings()
    with _engine(source, settings, read_only=True) as engine:
        _require_store(engine)
        is_file = operations_for(engine).is_embedded
        suffix = ".db" if is_file else ".dump"
        name = _name_of(source)
        path, is_in_folder = _target(Path(into), name, suffix)
        _require_unused(path)
        _require_replaceable(path, settings)
        if keep is not None and not is_in_folder:
            raise InvalidArgumentError("keep", "it counts the backups of a folder; name a folder")
        with _partial(path) as partial:
            if is_file:
                sqlite_files.copy(engine, build_engine(_file_url(partial), settings, pool=False), progress)
            else:
                postgresql_programs.dump(source, partial)
    removed = _rotate(path.parent, name, suffix, keep) if keep is not None else ()
    return Backup(path, path.stat().st_size, removed)


def restore_store(
    url: str | URL, backup: str | os.PathLike[str], *, progress: Progress | None = None
) -> Backup | None:
    """Makes the store at ``url`` what ``backup`` holds, in one transaction; returns the copy made of what was there.

    That copy stands beside a SQLite file, or beside the backup of a server; ``None`` when there was no store before.
    Refused with ``StoreBusyError`` while anybody else has the store open, and with ``StoreCorruptError``,
    ``NotADatabaseError`` or ``SchemaAheadError`` for a backup that is no sound store of this release or an older one. An
    interrupted restore leaves the store as it was. A store that is too damaged to be read is refused: move its file and
    its ``-wal`` and ``-shm`` away first. An older schema is upgraded when the store is next opened.
    """
    target, settings = resolve_url(None, url, Settings()), Settings()
    source = Path(backup)
    if not source.is_file():
        raise StoreUnavailableError(f"there is no backup at {source}")
    with _engine(target, settings, read_only=False) as engine:
        is_file = operations_for(engine).is_embedded
        if not is_file:
            return _restore_server(engine, target, source)
        with _engine(_file_url(source), settings, read_only=True) as stored:
            _require_known_schema(stored)
            sqlite_files.check(stored)
            with sqlite_files.alone(engine) as connection:
                saved = _before(target, connection, settings, Path(str(target.database)).parent)
                sqlite_files.overwrite(connection, stored, progress)
    return saved


def _restore_server(engine: sa.Engine, target: URL, source: Path) -> Backup | None:
    postgresql_programs.check(source)
    version = postgresql_programs.revision(source)
    if version > upgrades.HEAD:
        raise SchemaAheadError(version, upgrades.HEAD)
    postgresql_programs.require_alone(engine)
    saved = None
    if upgrades.current(engine) is not None:
        path = source.parent / f"{_name_of(target)}.before-restore{_now()}.dump"
        with _partial(path) as partial:
            postgresql_programs.dump(target, partial)
        saved = Backup(path, path.stat().st_size)
    postgresql_programs.load(target, source)
    return saved


def _before(
    target: URL, connection: sqlite_files.Connection, settings: Settings, folder: Path
) -> Backup | None:
    if sqlite_files.is_empty(connection):
        return None
    path = folder / f"{_name_of(target)}.before-restore{_now()}.db"
    with _partial(path) as partial:
        sqlite_files.copy_connection(connection, build_engine(_file_url(partial), settings, pool=False), None)
    return Backup(path, path.stat().st_size)


@contextmanager
def _engine(url: URL, settings: Settings, *, read_only: bool) -> Iterator[sa.Engine]:
    engine = build_engine(url, settings, read_only=read_only, pool=False)
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def _partial(path: Path) -> Iterator[Path]:
    """A file that becomes ``path`` when the block ends well; a failed one leaves nothing behind."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        _to_disk(partial)
        partial.replace(path)
        _to_disk(path.parent)
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(f"{partial}{suffix}").unlink(missing_ok=True)


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _require_store(engine: sa.Engine) -> None:
    if upgrades.current(engine) is None:
        raise NotADatabaseError("there is no store in it")


def _require_known_schema(engine: sa.Engine) -> None:
    _require_store(engine)
    with engine.connect() as conn:
        try:
            upgrades.check_schema(conn)
        except SchemaBehindError:
            return  # the next open upgrades it


def _name_of(url: URL) -> str:
    return re.sub(r"[^\w.-]", "_", Path(str(url.database)).stem)


def _target(into: Path, name: str, suffix: str) -> tuple[Path, bool]:
    if into.is_dir() or not (into.suffix or into.exists()):
        return into / f"{name}{_now()}{suffix}", True
    return into, False


def _require_unused(path: Path) -> None:
    """A program that has the file open would go on writing into the one that is gone, beside the log of another."""
    if path.exists() and not path.is_file():
        raise InvalidArgumentError("into", f"{path} is a device or a pipe; name a file or a folder")
    left = [f"{path}{suffix}" for suffix in ("-wal", "-journal") if Path(f"{path}{suffix}").exists()]
    if left:
        raise InvalidArgumentError(
            "into",
            f"{left[0]} lies beside it: {path} is a store in use, or one whose program was killed; name another file",
        )


def _require_replaceable(path: Path, settings: Settings) -> None:
    """Only a backup, or an empty file, gives way: anything else may be the only copy of what it holds."""
    if not path.exists() or not path.stat().st_size:
        return
    try:
        if postgresql_programs.is_archive(path):
            postgresql_programs.check(path)
            return
        with _engine(_file_url(path), settings, read_only=True) as engine:
            _require_store(engine)
    except (StoreError, SchemaError) as error:
        raise InvalidArgumentError("into", f"{path} is there and is no backup; name another file") from error


def _now() -> str:
    return dt.datetime.now(dt.UTC).strftime(f"-{_STAMP}")


def _rotate(folder: Path, name: str, suffix: str, keep: int) -> tuple[Path, ...]:
    pattern = re.compile(re.escape(name) + _STAMPED + re.escape(suffix))
    found = sorted(path for path in folder.iterdir() if pattern.fullmatch(path.name))
    for path in found[:-keep]:
        path.unlink(missing_ok=True)
    return tuple(found[:-keep])


def _file_url(path: Path) -> URL:
    return URL.create("sqlite", database=str(path.absolute()))
