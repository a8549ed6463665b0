"""Dialect SQL stands in this package only: the same few functions for each database."""

from __future__ import annotations

import sqlalchemy as sa

from hermes_state.dialects.base import DialectOperations, DriverStatement
from hermes_state.dialects.postgresql import PostgresqlOperations
from hermes_state.dialects.sqlite import SqliteOperations

__all__ = ["DialectOperations", "DriverStatement", "operations_for"]


def operations_for(engine: sa.Engine) -> DialectOperations:
    """The operations of the engine's database."""
    if engine.dialect.name == "sqlite":
        return SqliteOperations(engine.dialect)
    return PostgresqlOperations(engine.dialect)
