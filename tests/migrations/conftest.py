"""A database without tables on either backend, and engines to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from hermes_state import upgrades
from hermes_state.engine import build_engine, resolve_url
from hermes_state.settings import Settings
from tests.support.raw import RawSql

Connect = Callable[[str], sa.Engine]


@pytest.fixture
def empty_url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if backend == "sqlite":
        return f"sqlite:///{tmp_path / 'new.db'}"
    return str(request.getfixturevalue("fresh_postgres_url"))


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Engines as a store builds them, given back at the end."""
    engines: list[sa.Engine] = []

    def make(url: str) -> sa.Engine:
        settings = Settings()
        engines.append(build_engine(resolve_url(None, url, settings), settings))
        return engines[-1]

    yield make
    for engine in engines:
        engine.dispose()


@pytest.fixture
def engine(connect: Connect, empty_url: str) -> sa.Engine:
    """An engine to a database without tables."""
    return connect(empty_url)


@pytest.fixture
def migrated(engine: sa.Engine) -> sa.Engine:
    """An engine to a database at the newest revision, without rows."""
    upgrades.upgrade(engine)
    return engine


@pytest.fixture
def sql(engine: sa.Engine, empty_url: str) -> Iterator[RawSql]:
    """SQL past the package, on the same database as ``engine``."""
    with engine.connect():
        pass  # so that the package, and not the raw driver, makes the file
    reader = RawSql(empty_url)
    yield reader
    reader.close()
