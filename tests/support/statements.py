"""Watching and breaking the statements of an engine."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import sqlalchemy as sa


class QueryRecorder:
    """The statements an engine executed, in order, as text. BEGIN and COMMIT are not among them."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self.texts: list[str] = []
        self.parameters: list[Any] = []
        sa.event.listen(engine, "before_cursor_execute", self._record)

    def _record(self, _conn: Any, _cursor: Any, statement: str, parameters: Any, *_rest: Any) -> None:
        self.texts.append(statement)
        self.parameters.append(parameters)

    def clear(self) -> None:
        """Forgets what was recorded."""
        self.texts.clear()
        self.parameters.clear()

    def matching(self, word: str) -> list[str]:
        """The recorded statements that hold ``word``, whatever its case."""
        return [text for text in self.texts if word.lower() in text.lower()]

    def close(self) -> None:
        """Stops listening."""
        sa.event.remove(self._engine, "before_cursor_execute", self._record)


def driver_error(engine: sa.Engine) -> Exception:
    """What the driver raises when a connection breaks: PostgreSQL's without any code, SQLite's as I/O error."""
    if engine.dialect.name == "sqlite":
        error = sqlite3.OperationalError("injected")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        return error
    return psycopg.OperationalError("injected")


@contextmanager
def failing_statement(engine: sa.Engine, number: int) -> Iterator[None]:
    """Inside the block the ``number``-th statement from now on (from 0) fails in the driver, before it has run."""
    seen = 0

    def maybe_fail(*_arguments: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == number + 1:
            raise driver_error(engine)

    names = ("do_execute", "do_executemany", "do_execute_no_params")
    for name in names:
        sa.event.listen(engine, name, maybe_fail)
    try:
        yield
    finally:
        for name in names:
            sa.event.remove(engine, name, maybe_fail)


@contextmanager
def failing_commit(engine: sa.Engine, *, after_it_took_place: bool = False) -> Iterator[None]:
    """Inside the block a COMMIT fails: before it reached the database, or with its answer lost on the way back."""
    commit = engine.dialect.do_commit

    def fail(connection: Any) -> None:
        if after_it_took_place:
            commit(connection)
        raise driver_error(engine)

    engine.dialect.do_commit = fail  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        del engine.dialect.do_commit
