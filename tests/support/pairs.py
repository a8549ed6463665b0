"""Two empty stores on every combination of databases."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support import databases

PAIRS = [
    pytest.param("sqlite-sqlite"),
    pytest.param("sqlite-postgresql", marks=pytest.mark.postgres),
    pytest.param("postgresql-sqlite", marks=pytest.mark.postgres),
    pytest.param("postgresql-postgresql", marks=pytest.mark.postgres),
]


@contextmanager
def store_urls(pair: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[list[str]]:
    """The URLs of two empty stores at the newest schema; the databases live as long as the block."""
    with ExitStack() as stack:
        urls = []
        for number, backend in enumerate(pair.split("-")):
            if backend == "sqlite":
                path = folder / f"{number}.db"
                shutil.copy(request.getfixturevalue("_sqlite_template"), path)
                urls.append(f"sqlite:///{path}")
            else:
                template = request.getfixturevalue("_postgres_template").rpartition("/")[2]
                server = request.getfixturevalue("postgres_url")
                urls.append(stack.enter_context(databases.database(server, template)))
        yield urls
