"""Dialect SQL stands in this package only: the same few functions for each database."""

from __future__ import annotations

import sqlalchemy as sa

from hermes_state.dialects.base import DialectOperations, DriverStatement
from hermes_state.dialects.bulk import BulkOperations
from hermes_state.dialects.bulk_postgresql import PostgresqlBulk
from hermes_state.dialects.bulk_sqlite import SqliteBulk
from hermes_state.dialects.postgresql import PostgresqlOperations
from hermes_state.dialects.search import SearchOperations
from hermes_state.dialects.search_postgresql import PostgresqlSearch
from hermes_state.dialects.search_sqlite import SqliteSearch
from hermes_state.dialects.sqlite import SqliteOperations

__all__ = [
    "BulkOperations",
    "DialectOperations",
    "DriverStatement",
    "SearchOperations",
    "bulk_for",
    "operations_for",
]


def operations_for(engine: sa.Engine) -> DialectOperations:
    """The operations of the engine's database."""
    if engine.dialect.name == "sqlite":
        return SqliteOperations(engine.dialect, SqliteSearch())
    return PostgresqlOperations(engine.dialect, PostgresqlSearch())


def bulk_for(engine: sa.Engine) -> BulkOperations:
    """How whole tables are moved out of the engine's database and into it."""
    return SqliteBulk() if engine.dialect.name == "sqlite" else PostgresqlBulk()
