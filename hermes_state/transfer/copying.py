"""A whole store into another database, row by row and id by id, resumable, and proved equal (issue 4, item 2).

The source is read in one snapshot and never written. The target counts as incomplete (``StoreIncompleteError``) until the
number and the digest of the rows of every table agree, references are checked and sequences are moved on. After a kill at
any point, the same call goes on after the last batch that was committed.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy.engine import URL

from hermes_state import upgrades
from hermes_state.dialects import BulkOperations, bulk_for
from hermes_state.dialects.bulk import filled
from hermes_state.engine import build_engine, reading, redacted, resolve_url, sqlite_path
from hermes_state.errors import ConstraintViolationError, HermesStateError, InvalidArgumentError
from hermes_state.models import metadata
from hermes_state.settings import Settings
from hermes_state.transfer.conversions import Note, Row, RowConverter
from hermes_state.transfer.digests import TableDigest
from hermes_state.transfer.filling import Filling

OPERATION = "copy"
BATCH_ROWS = 2_000
BATCH_BYTES = 4 * 1024 * 1024

Progress = Callable[[str, str, int, int], None]
"""What is done (``copying`` or ``comparing``), the table, its rows that are done, and all its rows."""


class CopyMismatchError(HermesStateError, RuntimeError):
    """After copying, a table of the target does not hold what the source holds; the target stays incomplete."""

    def __init__(self, table: str, expected: TableDigest, found: TableDigest) -> None:
        self.table = table
        self.expected_rows, self.found_rows = expected.count, found.count
        super().__init__(
            f"table {table}: {found.count} rows with digest {found.hexdigest} arrived of {expected.count} with "
            f"{expected.hexdigest}; somebody else writes to the target: start over with --restart"
        )


class UnfitRowError(HermesStateError, ValueError):
    """A row of the source cannot be stored in the target; the target stays incomplete."""

    def __init__(self, table: str, key: tuple[object, ...], reason: str) -> None:
        self.table = table
        self.key = key
        self.reason = reason
        super().__init__(
            f"table {table}, row {key}: {reason}; mend it in the source, then run the copy again"
        )


@dataclass(frozen=True, slots=True)
class TableReport:
    """One table: rows in source and target, their digest, values that were changed, and rows that were left out."""

    table: str
    rows: int
    digest: str
    changed: int
    left_out: int


@dataclass(slots=True)
class CopyReport:
    """What a copy did. ``notes`` holds the first 1,000 changes of each table."""

    source: str
    target: str
    resumed: bool = False
    seconds: float = 0.0
    tables: list[TableReport] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


def copy_store(
    source: str | os.PathLike[str] | URL,
    target: str | os.PathLike[str] | URL,
    *,
    restart: bool = False,
    on_progress: Progress = lambda _what, _table, _done, _total: None,
) -> CopyReport:
    """Copies every table of the store at ``source`` into the empty or new database at ``target`` (URLs, or paths of SQLite files).

    Ids are kept. Rows of other programs that not every database takes are changed by the rules of
    ``hermes_state.repositories.fitting``, references that lead nowhere become NULL, rows that cannot be without what they refer to (messages of
    a session that was deleted past the store) are left out; the report notes each. ``restart`` throws away what an
    unfinished copy left in the target. Raises the schema errors for a source that is not at this release's schema, ``TargetNotEmptyError``,
    ``OperationRunningError``, ``OtherOperationError``, ``LostTargetError``, ``UnfitRowError``, ``CopyMismatchError`` and the store errors.
    """
    settings = Settings().model_copy(update={"statement_timeout_seconds": 0.0})
    urls = [_url(source, settings), _url(target, settings)]
    _require_two(*urls)
    with _connected(urls[0], settings, read_only=True) as read, read.begin():
        upgrades.check_schema(read)
        with _connected(urls[1], settings) as write:
            report = CopyReport(redacted(urls[0]), redacted(urls[1]))
            with Filling(write, OPERATION, report.source).claimed(restart=restart, resumes=True) as filling:
                report.resumed = filling.resumed
                return _Copy(read, write, filling, report, on_progress).run()


class _Copy:
    """One run."""

    def __init__(
        self,
        read: sa.Connection,
        write: sa.Connection,
        filling: Filling,
        report: CopyReport,
        on_progress: Progress,
    ) -> None:
        self._read = read
        self._write = write
        self._from = bulk_for(read.engine)
        self._filling = filling
        self._into, self._mark = filling.bulk, filling.mark
        self._report = report
        self._on_progress = on_progress
        self._tables = metadata.sorted_tables

    def run(self) -> CopyReport:
        started = time.monotonic()
        dangling = self._from.dangling(self._read, self._tables)
        for table in self._tables:
            stored = self._filling.notes.get(f"position:{table.name}")
            source = _Source(self._read, self._from, table, dangling.get(table.name, {}), self._into)
            self._copy_and_compare(source, None if stored is None else json.loads(stored))
        with self._filling.completing():
            for table in self._tables:
                self._into.set_last_id(self._write, table, self._from.last_id(self._read, table))
        self._report.seconds = time.monotonic() - started
        return self._report

    def _copy_and_compare(self, source: _Source, position: object) -> None:
        expected = self._copy(source, position)
        found = self._digest(source)
        if expected != found and position is not None:
            # Rows that an earlier run has copied were changed in the source since.
            with self._write.begin():
                self._write.execute(sa.delete(source.table))
                self._mark.put(f"position:{source.table.name}", None, time.time())
            expected = self._copy(source, None)
            found = self._digest(source)
        if expected != found:
            raise CopyMismatchError(source.table.name, expected, found)
        converter = source.converter
        self._report.notes += converter.notes
        self._report.tables.append(
            TableReport(source.table.name, found.count, found.hexdigest, converter.count, source.left_out)
        )

    def _copy(self, source: _Source, position: object) -> TableDigest:
        """Writes the rows after ``position``; returns the digest of all."""
        digest = TableDigest()
        is_behind = position is not None
        batch: list[Row] = []
        held = 0
        place = position
        with contextlib.closing(source.rows()) as rows:
            for place, row in rows:
                was_behind, is_behind = is_behind, is_behind and place != position
                if row is None:
                    continue
                size = digest.add(row)
                if was_behind:
                    continue
                batch.append(row)
                held += size
                if len(batch) >= BATCH_ROWS or held >= BATCH_BYTES:
                    self._insert(source, batch, place)
                    batch, held = [], 0
                    self._on_progress("copying", source.table.name, digest.count, source.total)
        if batch:
            self._insert(source, batch, place)
        self._on_progress("copying", source.table.name, digest.count, source.total)
        return digest

    def _insert(self, source: _Source, batch: list[Row], place: object) -> None:
        try:
            with self._write.begin():
                self._mark.put(f"position:{source.table.name}", place, time.time())
                self._into.insert(self._write, source.table, source.columns, batch)
        except ConstraintViolationError as error:
            self._name_unfit_row(source, batch)
            raise error from None

    def _name_unfit_row(self, source: _Source, batch: list[Row]) -> None:
        with self._write.begin() as transaction:
            for row in batch:
                try:
                    self._into.insert(self._write, source.table, source.columns, [row])
                except ConstraintViolationError as error:
                    raise UnfitRowError(
                        source.table.name, source.converter.key_of(row), error.reason
                    ) from error
            transaction.rollback()

    def _digest(self, source: _Source) -> TableDigest:
        """The digest of what the target holds now."""
        digest = TableDigest()
        found = self._into.scan(self._write, source.table, source.columns)
        with self._write.begin(), contextlib.closing(found) as rows:
            for _, row in rows:
                digest.add(row)
                if digest.count % BATCH_ROWS == 0:
                    self._on_progress("comparing", source.table.name, digest.count, source.total)
        return digest


class _Source:
    """One table of the source: its rows as they are to be stored."""

    def __init__(
        self,
        read: sa.Connection,
        bulk: BulkOperations,
        table: sa.Table,
        dangling: dict[object, tuple[tuple[str, ...], bool]],
        into: BulkOperations,
    ) -> None:
        self.table = table
        self.columns = filled(table)
        self.total: int = read.scalar(sa.select(sa.func.count()).select_from(table)) or 0
        self._read = read
        self._bulk = bulk
        self._dangling = dangling
        self._checks_json = into.checks_json and not bulk.checks_json
        self._begin()

    def _begin(self) -> None:
        self.converter = RowConverter(self.table, self.columns, checks_json=self._checks_json)
        self.left_out = 0

    def rows(self) -> Generator[tuple[object, Row | None]]:
        """Every row after its place; ``None`` for one that is left out."""
        self._begin()
        for place, row in self._bulk.scan(self._read, self.table, self.columns):
            converted = self.converter.convert(row)
            if self._dangling and place in self._dangling:
                yield place, self._anchored(place, converted)
            else:
                yield place, converted

    def _anchored(self, place: object, row: Row) -> Row | None:
        columns, may_be_null = self._dangling[place]
        if not may_be_null:
            self.left_out += 1
            self.converter.note(row, columns[0], "the row was left out: what it belongs to does not exist")
            return None
        for name in columns:
            self.converter.note(row, name, "a reference to nothing became NULL")
        return tuple(
            None if column.name in columns else value for column, value in zip(self.columns, row, strict=True)
        )


def _url(place: str | os.PathLike[str] | URL, settings: Settings) -> URL:
    if isinstance(place, URL):
        return resolve_url(None, place, settings)
    return resolve_url(place, None, settings)


def _require_two(source: URL, target: URL) -> None:
    for argument, url in (("source", source), ("target", target)):
        if url.get_backend_name() == "sqlite" and sqlite_path(url) is None:
            raise InvalidArgumentError(argument, "a database in memory is no place to copy from or to")
    paths = [sqlite_path(url) for url in (source, target) if url.get_backend_name() == "sqlite"]
    is_one_file = (
        len(paths) == 2 and all(paths) and os.path.realpath(str(paths[0])) == os.path.realpath(str(paths[1]))
    )
    if source == target or is_one_file:
        raise InvalidArgumentError("target", "source and target are the same store")


@contextmanager
def _connected(url: URL, settings: Settings, *, read_only: bool = False) -> Iterator[sa.Connection]:
    engine = build_engine(url, settings, read_only=read_only, pool=False)
    try:
        with (reading(engine) if read_only else engine).connect() as conn:
            yield conn
    finally:
        engine.dispose()
