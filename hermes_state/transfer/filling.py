"""Filling a store from another one: claimed by one process, marked as incomplete until the end (field report R3)."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

import sqlalchemy as sa

from hermes_state import upgrades
from hermes_state.dialects import bulk_for
from hermes_state.dialects.bulk import Row
from hermes_state.errors import HermesStateError
from hermes_state.models import metadata
from hermes_state.transfer.completeness import IncompleteMark, running

_SILENT_SECONDS = 60.0


class TargetNotEmptyError(HermesStateError, ValueError):
    """The target holds rows already; nothing was written."""

    def __init__(self, tables: list[str]) -> None:
        self.tables = tables
        super().__init__(f"the target holds rows in {', '.join(tables)}; give an empty database")


class Filling:
    """A store that ``operation`` fills from ``source``. ``conn`` is its only connection, without an open transaction."""

    def __init__(self, conn: sa.Connection, operation: str, source: str) -> None:
        self._conn = conn
        self._operation = operation
        self._source = source
        self._tables = metadata.sorted_tables
        self.bulk = bulk_for(conn.engine)
        self.mark: IncompleteMark
        self.notes: dict[str, str] = {}
        """What an earlier run noted, when it is resumed."""
        self.resumed = False
        self._said_at = time.monotonic()

    @contextmanager
    def claimed(self, *, restart: bool, resumes: bool) -> Iterator[Self]:
        """Marks the store as ours and incomplete for the block.

        After a failure the store stays marked, and the next run may begin at once: it goes on where this one was
        (``resumes``), or throws away what was written. ``restart`` does the latter, also to what another operation or
        source began. Raises ``TargetNotEmptyError``, ``OperationRunningError``, ``OtherOperationError`` and the schema errors.
        """
        with running(self._operation) as holder:
            self.mark = IncompleteMark(self._conn, holder)
            self.bulk.prepare(self._conn)
            if not self._begun_before(restart=restart, resumes=resumes):
                upgrades.upgrade(self._conn.engine)
                if not self._begun_before(restart=restart, resumes=resumes):
                    self._begin()
            try:
                yield self
            except BaseException:
                self._release()
                raise

    @contextmanager
    def completing(self) -> Iterator[sa.Connection]:
        """The last transaction: keys and indices are put back, then comes the block, then the mark goes."""
        self.bulk.settle(self._conn)
        with self._conn.begin():
            self.mark.put("phase", "completing", time.time())
            self.bulk.tighten(self._conn, json.loads(self.notes["loosened"]))
            yield self._conn
            self.bulk.analyze(self._conn)
            self.mark.remove()

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """A part of the work; ``LostTargetError`` when somebody else took the store over."""
        with self._conn.begin():
            self.mark.put("phase", "filling", time.time())
            yield self._conn
        self._said_at = time.monotonic()

    def keep(self, **notes: object) -> None:
        """Notes, in the running transaction, what a later run needs to know (JSON values)."""
        for key, value in notes.items():
            self.mark.put(key, value, time.time())

    def stay(self) -> None:
        """Says now and then, while nothing is written, that this run is alive."""
        if time.monotonic() - self._said_at > _SILENT_SECONDS:
            with self.transaction():
                pass

    def load(self, table: sa.Table, names: Sequence[str], rows: Sequence[Row]) -> None:
        """Inserts rows in the running transaction, values in the order of ``names``."""
        if rows:
            self.bulk.insert(self._conn, table, [table.c[name] for name in names], rows)

    def _begun_before(self, *, restart: bool, resumes: bool) -> bool:
        with self._conn.begin():
            self.bulk.lock(self._conn)
            notes = self.mark.notes()
            if not notes:
                return False
            operation = notes.get("operation", self._operation) if restart else self._operation
            self.mark.take_over(notes, operation, None if restart else self._source, time.time())
            if resumes and not restart:
                self.notes, self.resumed = {"loosened": "{}"} | notes, True
                return True
            before = json.loads(notes.get("loosened", "{}"))
            loosened = before | self.bulk.loosen(self._conn, self._tables)
            for table in reversed(self._tables):
                self._conn.execute(sa.delete(table))
            self.mark.remove()
            self._set_mark(loosened)
        return True

    def _begin(self) -> None:
        with self._conn.begin():
            self.bulk.lock(self._conn)
            upgrades.check_schema(self._conn)
            taken = [
                table.name
                for table in self._tables
                if self._conn.execute(sa.select(sa.literal(1)).select_from(table).limit(1)).first()
            ]
            if taken:
                raise TargetNotEmptyError(taken)
            self._set_mark(self.bulk.loosen(self._conn, self._tables))

    def _set_mark(self, loosened: dict[str, str]) -> None:
        self.mark.create(self._operation, self._source, time.time())
        self.mark.put("loosened", loosened, time.time())
        self.notes = {"loosened": json.dumps(loosened)}

    def _release(self) -> None:
        """Lets the next run go on; when that fails too, the end of this process does."""
        with contextlib.suppress(HermesStateError), self._conn.begin():
            self.mark.release(time.time())
