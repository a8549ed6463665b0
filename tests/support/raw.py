"""Readers and writers that know nothing of the package: the oracle of a test is never the code under test."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

import psycopg
import psycopg.types.json
from sqlalchemy.engine import make_url

from tests.support.databases import libpq_url


def sqlite_file(url: str) -> str:
    """The path in a SQLite URL."""
    path = make_url(url).database
    assert path is not None
    return path


class RawSql:
    """Statements over the bare driver, each committed at once. ``?`` stands for a parameter on both databases."""

    def __init__(self, url: str) -> None:
        self._is_sqlite = make_url(url).get_backend_name() == "sqlite"
        self.conn: Any
        if self._is_sqlite:
            self.conn = sqlite3.connect(sqlite_file(url), isolation_level=None, timeout=30)
            self.conn.execute("PRAGMA foreign_keys = ON")
        else:
            self.conn = psycopg.connect(libpq_url(url), autocommit=True)
            psycopg.types.json.set_json_loads(_json_as_text, context=self.conn)

    def __call__(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Runs the statement; returns all rows as tuples (none for a statement without a result). JSON is text."""
        if not self._is_sqlite:
            statement = statement.replace("%", "%%").replace("?", "%s")
        cursor = self.conn.execute(statement, parameters)
        return [] if cursor.description is None else [tuple(row) for row in cursor.fetchall()]

    def value(self, statement: str, *parameters: Any) -> Any:
        """The only value of the only row."""
        ((found,),) = self(statement, *parameters)
        return found

    def column(self, statement: str, *parameters: Any) -> list[Any]:
        """The first value of every row."""
        return [row[0] for row in self(statement, *parameters)]

    def close(self) -> None:
        """Gives the connection back."""
        self.conn.close()

    def json(self, statement: str, *parameters: Any) -> list[Any]:
        """The first value of every row, decoded from JSON; SQL NULL stays ``None``."""
        return [None if text is None else json.loads(text) for text in self.column(statement, *parameters)]


def _json_as_text(data: str | bytes) -> str:
    return data if isinstance(data, str) else bytes(data).decode()
