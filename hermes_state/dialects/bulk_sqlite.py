"""Moving whole tables out of SQLite and into it."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from hermes_state.dialects.bulk import BulkOperations, Dangling, Row, Undecodable, numbered
from hermes_state.driver_errors import translate
from hermes_state.errors import ConstraintViolationError

_CACHE_KIB = 32 * 1024
_TRIGGERS = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND lower(tbl_name) IN :tables"
_INDEXES = """
    SELECT name, sql FROM sqlite_master
    WHERE type = 'index' AND sql NOT LIKE 'CREATE UNIQUE %' AND lower(tbl_name) IN :tables
"""
_FULL_TEXT = "SELECT name FROM sqlite_master WHERE type = 'table' AND lower(sql) LIKE 'create virtual table%using fts5%'"
_TEXTS_OF_SEARCH = """
    SELECT statement FROM message_search_ddl WHERE part = 'fill' AND statement NOT LIKE '%''rebuild''%' ORDER BY place
"""


class SqliteBulk(BulkOperations):
    """SQLite's forms; see the base class for what each does."""

    checks_json = False

    def scan(
        self, conn: sa.Connection, table: sa.Table, columns: Sequence[sa.Column[Any]]
    ) -> Generator[tuple[Any, Row]]:
        """By row id, which is the order on the disk."""
        names = ", ".join(_quoted(column.name) for column in columns)
        text = f"SELECT {names}, rowid FROM {_quoted(table.name)} WHERE rowid > ? ORDER BY rowid"
        driver, after = _driver(conn), -(2**63)
        while True:
            # Past SQLAlchemy, whose rows would take a third of the time.
            try:
                for row in driver.execute(text, (after,)):
                    after = row[-1]
                    yield after, row[:-1]
            except sqlite3.Error as error:
                if type(error) is not sqlite3.OperationalError or hasattr(error, "sqlite_errorcode"):
                    raise translate(error) or error from error
                driver.text_factory = _decoded  # the driver met text that is not UTF-8
            else:
                return

    def dangling(self, conn: sa.Connection, tables: Iterable[sa.Table]) -> dict[str, dict[Any, Dangling]]:
        """What ``foreign_key_check`` finds: SQLite checks references only for programs that ask for it."""
        found: dict[str, dict[Any, Dangling]] = {}
        for table in tables:
            name = _quoted(table.name)
            keys: dict[int, list[str]] = {}
            for number, _, _, column, *_ in conn.exec_driver_sql(f"PRAGMA foreign_key_list({name})"):
                keys.setdefault(number, []).append(column)
            for _, place, _, number in conn.exec_driver_sql(f"PRAGMA foreign_key_check({name})"):
                columns = tuple(keys[number])
                may_be_null = all(table.c[column].nullable for column in columns)
                known = found.setdefault(table.name, {}).get(place)
                if known is not None:
                    columns, may_be_null = known[0] + columns, known[1] and may_be_null
                found[table.name][place] = (columns, may_be_null)
        return found

    def last_id(self, conn: sa.Connection, table: sa.Table) -> int:
        """From SQLite's own table of sequences."""
        if numbered(table) is None:
            return 0
        stmt = "SELECT max(seq) FROM sqlite_sequence WHERE lower(name) = ?"
        return conn.exec_driver_sql(stmt, (table.name,)).scalar() or 0

    def lock(self, conn: sa.Connection) -> None:
        """BEGIN IMMEDIATE has done it."""

    def prepare(self, conn: sa.Connection) -> None:
        """Commits need not wait for the disk: the store counts as incomplete until the last one, which does."""
        driver = _driver(conn)
        driver.execute("PRAGMA foreign_keys = OFF")
        driver.execute("PRAGMA synchronous = NORMAL")
        driver.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")

    def settle(self, conn: sa.Connection) -> None:
        """The sync of one commit covers the whole log."""
        _driver(conn).execute("PRAGMA synchronous = FULL")

    def loosen(self, conn: sa.Connection, tables: Iterable[sa.Table]) -> dict[str, str]:
        """Triggers, which would keep the search index row by row, and indices that keep nothing unique: built once, sorted."""
        names = [table.name for table in tables]
        taken: dict[str, str] = {}
        for kind, listed in (("TRIGGER", _TRIGGERS), ("INDEX", _INDEXES)):
            stmt = sa.text(listed).bindparams(sa.bindparam("tables", expanding=True))
            for name, sql in conn.execute(stmt, {"tables": names}).all():
                taken[f"{kind.lower()}:{name}"] = sql
                conn.exec_driver_sql(f"DROP {kind} {_quoted(name)}")
        return taken

    def insert(
        self, conn: sa.Connection, table: sa.Table, columns: Sequence[sa.Column[Any]], rows: Sequence[Row]
    ) -> None:
        """One statement of the driver for all of them."""
        names = ", ".join(_quoted(column.name) for column in columns)
        marks = ", ".join("?" * len(columns))
        conn.exec_driver_sql(f"INSERT INTO {_quoted(table.name)} ({names}) VALUES ({marks})", list(rows))

    def tighten(self, conn: sa.Connection, loosened: dict[str, str]) -> None:
        """Indices first, the search index last, as the schema says how."""
        for key in sorted(loosened):  # "index:" before "trigger:"
            conn.exec_driver_sql(loosened[key])
        if any(key.startswith("trigger:messages_search_") for key in loosened):
            for statement in conn.exec_driver_sql(_TEXTS_OF_SEARCH).scalars().all():
                conn.exec_driver_sql(statement)
        for (name,) in conn.exec_driver_sql(_FULL_TEXT).all():
            conn.exec_driver_sql(f"INSERT INTO {_quoted(name)} ({_quoted(name)}) VALUES ('rebuild')")
        broken = conn.exec_driver_sql("PRAGMA foreign_key_check").first()
        if broken is not None:
            raise ConstraintViolationError(f"row {broken[1]} of {broken[0]} refers to no row of {broken[2]}")

    def set_last_id(self, conn: sa.Connection, table: sa.Table, last_id: int) -> None:
        """Into SQLite's own table of sequences, never backwards."""
        if numbered(table) is None:
            return
        stmt = "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?"
        if conn.exec_driver_sql(stmt, (last_id, table.name)).rowcount == 0 and last_id:
            conn.exec_driver_sql(
                "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table.name, last_id)
            )

    def analyze(self, conn: sa.Connection) -> None:
        """A sample is enough."""
        conn.exec_driver_sql("PRAGMA analysis_limit = 1000")
        conn.exec_driver_sql("ANALYZE")


def _driver(conn: sa.Connection) -> Any:
    return conn.connection.driver_connection


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return Undecodable(raw.decode("utf-8", "replace"))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
