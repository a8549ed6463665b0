"""Moving whole tables: reading them in one order, filling them fast, and putting keys and counters right afterwards.

Both classes have the same functions, each in its database's own SQL (DESIGN.md section 2).
"""

from __future__ import annotations

import abc
from collections.abc import Generator, Iterable, Sequence
from typing import Any

import sqlalchemy as sa

Row = tuple[Any, ...]
Dangling = tuple[tuple[str, ...], bool]


class BulkOperations(abc.ABC):
    """What a copy needs from a database beyond portable SQL."""

    checks_json: bool
    """Whether a JSON column takes nothing but JSON."""

    @abc.abstractmethod
    def scan(
        self, conn: sa.Connection, table: sa.Table, columns: Sequence[sa.Column[Any]]
    ) -> Generator[tuple[Any, Row]]:
        """All rows in one fixed order, each after its place in it (a JSON value), in constant memory.

        True and false come as 1 and 0. Text that is not UTF-8 comes with U+FFFD in it, as ``Undecodable``.
        """

    @abc.abstractmethod
    def dangling(self, conn: sa.Connection, tables: Iterable[sa.Table]) -> dict[str, dict[Any, Dangling]]:
        """The rows that refer to rows that are not there, by table and place: which columns, and whether they may be NULL."""

    @abc.abstractmethod
    def last_id(self, conn: sa.Connection, table: sa.Table) -> int:
        """The highest id that was ever given out; 0 for none, or for a table that numbers nothing."""

    @abc.abstractmethod
    def lock(self, conn: sa.Connection) -> None:
        """Waits until no other process is deciding about this store; holds until the transaction ends."""

    @abc.abstractmethod
    def prepare(self, conn: sa.Connection) -> None:
        """Sets the connection up for filling: no time limits, no check of references row by row. No transaction is open."""

    @abc.abstractmethod
    def settle(self, conn: sa.Connection) -> None:
        """From now on, a commit returns when it is durable, and everything before it is. No transaction is open."""

    @abc.abstractmethod
    def loosen(self, conn: sa.Connection, tables: Iterable[sa.Table]) -> dict[str, str]:
        """Takes away what slows filling down or forbids its order; returns the statements that put it back."""

    @abc.abstractmethod
    def insert(
        self, conn: sa.Connection, table: sa.Table, columns: Sequence[sa.Column[Any]], rows: Sequence[Row]
    ) -> None:
        """Inserts the rows."""

    @abc.abstractmethod
    def tighten(self, conn: sa.Connection, loosened: dict[str, str]) -> None:
        """Puts back what ``loosen`` took, derived data included, and raises where a reference leads nowhere."""

    @abc.abstractmethod
    def set_last_id(self, conn: sa.Connection, table: sa.Table, last_id: int) -> None:
        """Has the table give out ids above ``last_id``."""

    @abc.abstractmethod
    def analyze(self, conn: sa.Connection) -> None:
        """Tells the planner what the tables hold."""


class Undecodable(str):
    """Text that another program stored in an encoding of its own, with U+FFFD for what is not UTF-8."""

    __slots__ = ()


def numbered(table: sa.Table) -> sa.Column[Any] | None:
    """The column of ids that the database gives out, if the table has one."""
    return next((column for column in table.columns if column.identity is not None), None)


def filled(table: sa.Table) -> list[sa.Column[Any]]:
    """The columns that hold data of their own; the others the database works out."""
    return [column for column in table.columns if column.computed is None]
