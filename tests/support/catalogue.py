"""What a database says about its own tables, read past the package."""

from __future__ import annotations

import re

from tests.support.raw import RawSql

_POSTGRESQL_DEFINITIONS = """
    SELECT 'column ' || found.relname || '.' || part.attname,
        format_type(part.atttypid, part.atttypmod) || ' ' || part.attnotnull || ' ' || part.attidentity::text || ' '
            || coalesce(pg_get_expr(preset.adbin, preset.adrelid), '-')
    FROM pg_class found
    JOIN pg_attribute part ON part.attrelid = found.oid AND part.attnum > 0 AND NOT part.attisdropped
    LEFT JOIN pg_attrdef preset ON preset.adrelid = found.oid AND preset.adnum = part.attnum
    WHERE found.relnamespace = current_schema()::regnamespace AND found.relkind = 'r'
    UNION ALL
    SELECT 'constraint ' || conname, pg_get_constraintdef(oid) FROM pg_constraint
    WHERE connamespace = current_schema()::regnamespace
    UNION ALL
    SELECT 'index ' || indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema()
"""


def tables(sql: RawSql, backend: str) -> set[str]:
    """The names of all tables of the current schema, SQLite's own left out."""
    if backend == "sqlite":
        return set(
            sql.column("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        )
    return set(sql.column("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"))


def definitions(sql: RawSql, backend: str) -> dict[str, str]:
    """Every table, column, constraint and index with its definition in the database's own words."""
    if backend == "sqlite":
        found = sql(
            "SELECT type || ' ' || name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
        )
        return {name: _in_one_order(text) for name, text in found}
    return dict(sql(_POSTGRESQL_DEFINITIONS))


def _in_one_order(statement: str) -> str:
    """A CREATE statement with its constraints sorted: their order means nothing."""
    lines = [re.sub(r"\s+", " ", line).strip().rstrip(",") for line in statement.splitlines()]
    return "\n".join(
        [line for line in lines if not line.startswith("CONSTRAINT")]
        + sorted(line for line in lines if line.startswith("CONSTRAINT"))
    )
