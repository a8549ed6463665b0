"""The search index seen past the package: its rows, whether it is in step, and ways to break it."""

from __future__ import annotations

import hashlib
from typing import Any

from tests.support.raw import RawSql

# In the order of how FTS5 takes them: errors at every use, no hits and failing writes, errors at every use, errors at reading only.
DAMAGES = ["structure", "zeroed", "emptied", "leaves", "missing"]
NOTICED_BY_READING = ["structure", "leaves", "missing"]
_PLACE = "FROM information_schema.columns WHERE data_type = 'tsvector' AND table_schema = current_schema()"
_TABLES = f"SELECT table_name {_PLACE}"
_COLUMNS = f"SELECT column_name {_PLACE}"


def is_sqlite(raw: RawSql) -> bool:
    return raw._is_sqlite


def vectors(raw: RawSql) -> list[str]:
    """The tables with a tsvector."""
    return sorted(set(raw.column(_TABLES)))


def indices(raw: RawSql) -> list[str]:
    """The virtual tables of FTS5."""
    return raw.column(
        "SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL TABLE%fts5%' ORDER BY name"
    )


def index_rows(raw: RawSql) -> list[tuple[Any, ...]]:
    """Every stored block of the index on SQLite; place and writer of every row of it on PostgreSQL."""
    if not is_sqlite(raw):
        found = [
            (table, *row)
            for table in vectors(raw)
            for row in raw(f"SELECT ctid::text, xmin::text FROM {table}")
        ]
        return sorted(found)
    blocks = [
        (name, *row) for name in indices(raw) for row in raw(f"SELECT id, block FROM {name}_data ORDER BY id")
    ]
    return [(name, number, hashlib.sha256(block).digest()) for name, number, block in blocks]


def assert_in_step(raw: RawSql) -> None:
    """The index holds the rows of the store and nothing else, as the database itself sees it."""
    if is_sqlite(raw):
        assert indices(raw)
        for name in indices(raw):
            raw(f"INSERT INTO {name}({name}, rank) VALUES ('integrity-check', 1)")
        return
    for table in vectors(raw):
        (key,) = raw.column(
            "SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] "
            f"WHERE i.indisprimary AND i.indrelid = '{table}'::regclass"
        )
        assert raw(f"SELECT {key} FROM {table} EXCEPT SELECT id FROM messages") == []


_ON_SQLITE = {
    "structure": "UPDATE {0}_data SET block = x'ffffffffffffffff' WHERE id = 10",
    "zeroed": "UPDATE {0}_data SET block = zeroblob(length(block)) WHERE id = 10",
    "emptied": "DELETE FROM {0}_data",
    "leaves": "DELETE FROM {0}_data WHERE id > 10",
    "missing": "DROP TABLE {0}",
}
_ON_POSTGRESQL = {
    "structure": "ALTER TABLE {0} DROP COLUMN {1} CASCADE",
    "zeroed": "ALTER TABLE {0} ADD CONSTRAINT refuses CHECK (false) NOT VALID",
    "emptied": "ALTER TABLE {0} DROP CONSTRAINT {0}_pkey",
    "leaves": "ALTER TABLE {0} RENAME COLUMN {1} TO gone",
    "missing": "DROP TABLE {0} CASCADE",
}


def damage(raw: RawSql, backend: str, how: str) -> None:
    """Breaks every index of the search."""
    if backend == "sqlite":
        for name in indices(raw):
            raw(_ON_SQLITE[how].format(name))
        return
    for table in vectors(raw):
        (column,) = raw.column(f"{_COLUMNS} AND table_name = '{table}'")
        raw(_ON_POSTGRESQL[how].format(table, column))


def forget_all(raw: RawSql, backend: str) -> None:
    """Takes every row out of every index, which stays whole."""
    if backend == "sqlite":
        for name in indices(raw):
            raw(f"INSERT INTO {name}({name}) VALUES ('delete-all')")
        return
    for table in vectors(raw):
        raw(f"DELETE FROM {table}")
