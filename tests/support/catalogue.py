"""What a database says about its own tables, read past the package."""

from __future__ import annotations

import re

from tests.support.raw import RawSql

_POSTGRESQL_DEFINITIONS = """
    SELECT 'column ' || found.relname || '.' || part.attname,
        format_type(part.atttypid, part.atttypmod) || ' ' || part.attnotnull || ' ' || part.attidentity::text || ' '
            || coalesce(pg_get_expr(preset.adbin, preset.adrelid), '-') || ' ' || coalesce(sorted.collname, '-')
    FROM pg_class found
    JOIN pg_attribute part ON part.attrelid = found.oid AND part.attnum > 0 AND NOT part.attisdropped
    LEFT JOIN pg_attrdef preset ON preset.adrelid = found.oid AND preset.adnum = part.attnum
    LEFT JOIN pg_collation sorted ON sorted.oid = part.attcollation
    WHERE found.relnamespace = current_schema()::regnamespace AND found.relkind = 'r'
    UNION ALL
    SELECT 'constraint ' || conname, pg_get_constraintdef(oid) FROM pg_constraint
    WHERE connamespace = current_schema()::regnamespace
    UNION ALL
    SELECT 'index ' || indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema()
"""


def tables(sql: RawSql, backend: str) -> set[str]:
    """The names of all tables of the current schema, SQLite's own and those of the search index left out."""
    if backend == "sqlite":
        return {
            name
            for name in sql.column(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
            )
            if not _is_of_search(name)
        }
    found = sql.column("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    return {name for name in found if not _is_of_search(name)}


def _is_of_search(name: str) -> bool:
    return name.startswith(("message_search", "messages_fts", "message_texts", "message_plain", "message_call_texts", "message_unspaced"))  # fmt: skip


def definitions(sql: RawSql, backend: str) -> dict[str, str]:
    """Every table, column, constraint and index with its definition in the database's own words."""
    if backend == "sqlite":
        found = sql(
            "SELECT type || ' ' || name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
        )
        return {name: _in_one_order(text) for name, text in found if not _defines_search(name)}
    return {name: text for name, text in sql(_POSTGRESQL_DEFINITIONS) if not _defines_search(name)}


def _defines_search(name: str) -> bool:
    """The index is no table of the models; the contract suite of the search holds what keeps it."""
    return any(_is_of_search(part.removeprefix("ix_")) or "messages_search_" in part for part in name.split())


def _in_one_order(statement: str) -> str:
    """A CREATE statement with its constraints sorted behind its columns: their order means nothing.

    SQLite writes a column that was added later behind the constraints.
    """
    text = re.sub(r"\s+", " ", statement).strip()
    if not text.startswith("CREATE TABLE"):
        return text
    head, _, body = text.partition("(")
    parts = _split(body.removesuffix(")"))
    return "\n".join([head, *sorted(parts, key=lambda part: part if part.startswith("CONSTRAINT") else "")])


def _split(body: str) -> list[str]:
    """The columns and constraints of a table: split at the commas that stand in no parentheses."""
    parts, depth = [""], 0
    for character in body:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]
