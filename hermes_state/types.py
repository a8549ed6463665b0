"""Column types and SQL defaults whose form differs between SQLite and PostgreSQL, each with its reason.

Nothing here knows a table. The migrations spell the same forms out by hand; the drift test holds the two equal.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import DDLCompiler, SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine


class ExactJson(sa.JSON):
    """JSON kept to the letter: TEXT on SQLite, ``json`` on PostgreSQL (DESIGN.md, decision 3).

    A column that SQLite sees declared as JSON has numeric affinity, so a lone 2**70 comes back as 1.18e21;
    PostgreSQL's ``jsonb`` re-orders keys and rewrites numbers. The Python value is JSON *text* in both
    directions, or ``None`` for SQL NULL: ``json_values.py`` is the one encoder, ``payloads.py`` the one decoder.
    """

    cache_ok = True

    def __init__(self) -> None:
        super().__init__(none_as_null=True)

    def adapt(self, _cls: type[Any], **_kw: Any) -> ExactJson:  # type: ignore[override]
        """Stays what it is: the dialects' own JSON types would encode and decode once more."""
        return ExactJson()

    def bind_processor(self, _dialect: sa.Dialect) -> None:
        """The text goes to the driver as it is."""
        return

    def result_processor(self, _dialect: sa.Dialect, _coltype: object) -> None:
        """The driver's text is the result (``engine.py`` keeps psycopg from decoding it)."""
        return


@compiles(ExactJson, "sqlite")
def _exact_json_on_sqlite(_type: ExactJson, _compiler: DDLCompiler, **_kw: Any) -> str:
    return "TEXT"


@compiles(ExactJson, "postgresql")
def _exact_json_on_postgresql(_type: ExactJson, _compiler: DDLCompiler, **_kw: Any) -> str:
    return "JSON"


def epoch() -> sa.Double[float]:
    """Seconds since 1970 in UTC. Double precision, because a 4-byte REAL of PostgreSQL is 128 s coarse today.

    SQLite declares it DOUBLE, which has REAL affinity.
    """
    return sa.Double()


def row_id() -> TypeEngine[int]:
    """64-bit ids. Only a column declared INTEGER can be SQLite's row id, and only that takes AUTOINCREMENT."""
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def code_point_text() -> TypeEngine[str]:
    """Text that is listed in order or looked up by its beginning, ordered by code point as SQLite orders it.

    A PostgreSQL locale would sort otherwise, and find no range of an index: in en-US ``{`` comes before ``z``.
    """
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


class EpochNow(FunctionElement[float]):
    """The database's clock in epoch seconds, for rows that other programs insert without a time.

    SQLite 3.40 has no sub-second ``unixepoch``; ``julianday`` gives milliseconds. PostgreSQL's ``now()`` stands still
    during a transaction, ``clock_timestamp()`` does not.
    """

    type = sa.Double()
    inherit_cache = True


@compiles(EpochNow, "sqlite")
def _epoch_now_on_sqlite(_element: EpochNow, _compiler: SQLCompiler, **_kw: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(EpochNow, "postgresql")
def _epoch_now_on_postgresql(_element: EpochNow, _compiler: SQLCompiler, **_kw: Any) -> str:
    return "extract(epoch from clock_timestamp())::double precision"


class Equals(FunctionElement[Any]):
    """``Equals(session_id, value)``: rows of one session, to be ordered by ``session_id, id``.

    Ordered by id alone, or with a plain ``=`` that makes ``session_id`` a constant of the order, PostgreSQL may read the whole
    primary key, past every newer row of the other sessions: 12 ms for the last 20 of 16,000 rows with 60,000 newer ones
    beside. A list of one is no constant to its planner, so only the index on (session_id, id) has the order: 0.2 ms.
    """

    # Of Boolean type, SQLite would be asked whether it ``= 1``, and use no index.
    type = sa.types.NULLTYPE
    inherit_cache = True


@compiles(Equals)
def _equals(element: Equals, compiler: SQLCompiler, **kw: Any) -> str:
    column, value = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"{column} = {value}"


@compiles(Equals, "postgresql")
def _equals_on_postgresql(element: Equals, compiler: SQLCompiler, **kw: Any) -> str:
    column, value = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"{column} = ANY (ARRAY[{value}])"


class FreshUid(FunctionElement[str]):
    """32 random hexadecimal digits, for rows that other programs insert without a ``message_uid``."""

    type = sa.Text()
    inherit_cache = True


@compiles(FreshUid, "sqlite")
def _fresh_uid_on_sqlite(_element: FreshUid, _compiler: SQLCompiler, **_kw: Any) -> str:
    return "(lower(hex(randomblob(16))))"


@compiles(FreshUid, "postgresql")
def _fresh_uid_on_postgresql(_element: FreshUid, _compiler: SQLCompiler, **_kw: Any) -> str:
    return "replace(gen_random_uuid()::text, '-', '')"
