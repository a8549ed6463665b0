"""What the repositories need from a database beyond portable SQL, and statements compiled once.

Hot statements are written as Core constructs, compiled once per store, and executed as driver SQL: that
skips 25 to 30 µs of SQLAlchemy's per-execution work and leaves the text portable (DESIGN.md, decision 2).
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain, islice
from operator import itemgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import Insert as PostgresqlInsert
from sqlalchemy.dialects.sqlite import Insert as SqliteInsert

from hermes_state.codec import MESSAGE_COLUMNS, PLACE, USUAL_COLUMNS
from hermes_state.dialects.search import SearchOperations
from hermes_state.reports import Size

# Rows of one INSERT: 25 columns stay below SQLite's 32,766 parameters and PostgreSQL's 65,535.
ROWS_PER_INSERT = 1_300


# The text of an INSERT of more rows is 100 KB long and not kept.
_ROWS_OF_KEPT_TEXTS = 64
# A turn binds 12 values a row, not 25.
_usual_values = itemgetter(*(PLACE[name] for name in USUAL_COLUMNS))
_rare_values = itemgetter(*(place for name, place in PLACE.items() if name not in USUAL_COLUMNS))
_RARE_COUNT = len(MESSAGE_COLUMNS) - len(USUAL_COLUMNS)


class DriverStatement:
    """A Core statement compiled once for one dialect and executed as driver SQL.

    Values are handed to the driver as they are and come back as it gives them: no type processing.
    """

    def __init__(self, stmt: sa.Executable, dialect: sa.Dialect) -> None:
        compiled = stmt.compile(dialect=dialect)  # type: ignore[attr-defined]
        self._sql: str = compiled.string
        self._order: Sequence[str] | None = compiled.positiontup
        self._fixed: dict[str, Any] = compiled.params

    def execute(self, conn: sa.Connection, **values: Any) -> sa.CursorResult[Any]:
        """Executes with ``values`` by parameter name; a name left out keeps the value of the construct."""
        return conn.exec_driver_sql(self._sql, self._bound(values))

    def execute_many(self, conn: sa.Connection, rows: Sequence[dict[str, Any]]) -> None:
        """Executes once for each dict of ``rows``, as one statement of the driver."""
        conn.exec_driver_sql(self._sql, [self._bound(row) for row in rows])

    def _bound(self, values: dict[str, Any]) -> Any:
        merged = {**self._fixed, **values}
        return merged if self._order is None else tuple(merged[name] for name in self._order)


class DialectOperations(abc.ABC):
    """One object per store. The subclasses hold the same few functions, each in its database's own SQL."""

    placeholder: str
    is_embedded: bool
    """Whether the database is a file of this process, which opens and migrates it itself."""

    def __init__(self, dialect: sa.Dialect, search: SearchOperations) -> None:
        self.search = search
        self._dialect = dialect
        self._compiled: dict[Hashable, DriverStatement] = {}
        self._insert_texts: dict[tuple[int, int], str] = {}

    def compiled(self, key: Hashable, build: Callable[[], sa.Executable]) -> DriverStatement:
        """The compiled form of ``build()``, made at the first call with this ``key``."""
        stmt = self._compiled.get(key)
        if stmt is None:
            stmt = self._compiled[key] = DriverStatement(build(), self._dialect)
        return stmt

    def insert_messages(self, conn: sa.Connection, rows: Sequence[list[Any]]) -> dict[str, int]:
        """Inserts ``rows`` (in ``MESSAGE_COLUMNS`` order) one after the other, one statement for each 1,300; returns the new ids by ``message_uid``.

        A row whose uid the session already holds is skipped and missing from the result.
        """
        ids: dict[str, int] = {}
        remaining = iter(rows)
        while page := list(islice(remaining, ROWS_PER_INSERT)):
            columns, filled = MESSAGE_COLUMNS, page
            if all(_rare_values(row).count(None) == _RARE_COUNT for row in page):
                columns, filled = USUAL_COLUMNS, [_usual_values(row) for row in page]
            values = tuple(chain.from_iterable(filled))
            found = conn.exec_driver_sql(self._insert_text(columns, len(page)), values).all()
            ids.update({uid: row_id for row_id, uid in found})
        return ids

    def _insert_text(self, columns: tuple[str, ...], count: int) -> str:
        text = self._insert_texts.get((len(columns), count))
        if text is None:
            row = f"({', '.join([self.placeholder] * len(columns))})"
            text = (
                f"INSERT INTO messages ({', '.join(columns)}) VALUES {', '.join([row] * count)} "
                "ON CONFLICT (session_id, message_uid) DO NOTHING RETURNING id, message_uid"
            )
            if count <= _ROWS_OF_KEPT_TEXTS or count == ROWS_PER_INSERT:
                self._insert_texts[len(columns), count] = text
        return text

    @abc.abstractmethod
    def strip_shadowed_checkpoints(
        self, conn: sa.Connection, session_id: str, newest: int | None = None
    ) -> None:
        """Removes the checkpoints of every active assistant row older than the newest active carrier.

        One UPDATE; rows are found through the partial carrier index (CONTRACT.md section 4). ``newest``: the id of that
        carrier where the caller has just inserted it; else the database looks for it.
        """

    @abc.abstractmethod
    def newest_carrier(self, conn: sa.Connection, session_id: str) -> int | None:
        """The id of the newest active row of the session that holds a checkpoint; ``None`` without one."""

    @property
    @abc.abstractmethod
    def looks_like_carrier(self) -> sa.ColumnElement[bool]:
        """The predicate of the carrier index: every carrier fulfils it, and rows that only name one."""

    @abc.abstractmethod
    def text_bytes(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
        """The bytes of a text or JSON column's text in UTF-8."""

    @abc.abstractmethod
    def damages(self, conn: sa.Connection) -> list[str]:
        """What the database's own check finds; nothing where it has none to run."""

    @abc.abstractmethod
    def ascii_lower(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[str]:
        """The text with A to Z in lower case; all other letters as they are, whatever the locale."""

    @abc.abstractmethod
    def day_of(self, epoch: sa.ColumnElement[Any]) -> sa.ColumnElement[str]:
        """The day of UTC, ``YYYY-MM-DD``; NULL for what no calendar reaches."""

    @abc.abstractmethod
    def sizes(self, conn: sa.Connection) -> list[Size]:
        """Every table and index of the database with its bytes, biggest first; nothing where SQLite cannot tell."""

    @abc.abstractmethod
    def free_share(self, conn: sa.Connection) -> float:
        """Which part of the database is free pages, from 0 to 1; 0 where the server gives them out by itself."""

    @abc.abstractmethod
    def vacuum(self, engine: sa.Engine) -> str:
        """Gives space that deleted and stripped rows left back, as far as others allow; says how in one word."""

    @abc.abstractmethod
    def is_any_of(
        self, column: sa.ColumnElement[Any], parameter: str, values: Iterable[Any] | None = None
    ) -> sa.ColumnElement[bool]:
        """``column`` equals a value of the list bound as ``parameter``, one parameter whatever the list's length.

        The list is bound as ``list_value`` gives it (field report L11: bind limits), at the execution or here as ``values``.
        """

    @abc.abstractmethod
    def list_value(self, values: Iterable[Any]) -> Any:
        """``values`` in the form that ``is_any_of`` takes."""

    @abc.abstractmethod
    def list_length(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
        """The number of items of a JSON column that holds a list; NULL for anything else, malformed text too."""

    @abc.abstractmethod
    def clock(self) -> sa.ColumnElement[float]:
        """Now, in epoch seconds, by the one clock that all writers of the database share (DESIGN.md, decision 3)."""

    @abc.abstractmethod
    def insert(self, table: sa.Table) -> SqliteInsert | PostgresqlInsert:
        """The dialect's INSERT construct, which knows ON CONFLICT."""
