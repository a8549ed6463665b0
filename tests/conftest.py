"""Fixtures of the whole suite: a store on either database, and raw SQL beside it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state import SessionDB
from tests.support import databases, postgres
from tests.support.raw import RawSql
from tests.support.statements import QueryRecorder

OpenDb = Callable[..., SessionDB]


@pytest.fixture(scope="session", autouse=True)
def _no_settings_of_the_developer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Neither the variables nor the default store of whoever runs the tests take part."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("HERMES_") and name not in (postgres.URL_VARIABLE, postgres.REQUIRED_VARIABLE):
                patch.delenv(name)
        patch.setenv("HERMES_HOME", str(tmp_path_factory.mktemp("hermes_home")))
        yield


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a PostgreSQL server's ``postgres`` database; without a server the test fails when one is required."""
    try:
        with postgres.running_server() as url:
            yield url
    except postgres.NoServerError as error:
        if postgres.is_required():
            pytest.fail(f"PostgreSQL is required: {error}")
        pytest.skip(str(error))


@pytest.fixture
def fresh_postgres_url(postgres_url: str) -> Iterator[str]:
    """The URL of a new empty database."""
    with databases.database(postgres_url) as url:
        yield url


@pytest.fixture(scope="session")
def _postgres_template(postgres_url: str) -> Iterator[str]:
    with databases.database(postgres_url) as url:
        SessionDB(url=url, migrate=True).close()
        yield url


@pytest.fixture(scope="session")
def _sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "state.db"
    SessionDB(path).close()
    return path


@pytest.fixture(
    params=[pytest.param("sqlite"), pytest.param("postgresql", marks=pytest.mark.postgres)],
)
def backend(request: pytest.FixtureRequest) -> str:
    """The database under test: every test that asks for it runs once on each."""
    return str(request.param)


@pytest.fixture
def store_url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty store at the newest schema."""
    if backend == "sqlite":
        path = tmp_path / "state.db"
        shutil.copy(request.getfixturevalue("_sqlite_template"), path)
        path.chmod(0o600)
        yield f"sqlite:///{path}"
        return
    template = request.getfixturevalue("_postgres_template").rpartition("/")[2]
    with databases.database(request.getfixturevalue("postgres_url"), template) as url:
        yield url


@pytest.fixture
def open_db(store_url: str) -> Iterator[OpenDb]:
    """Opens further store objects on the store; each must have given its connections back at the end."""
    opened: list[SessionDB] = []

    def open_one(**options: Any) -> SessionDB:
        opened.append(SessionDB(**{"url": store_url, **options}))
        return opened[-1]

    yield open_one
    checked_out = [_checked_out(store) for store in opened]
    for store in opened:
        store.close()
    assert checked_out == [0] * len(opened), "a verb kept its connection"


@pytest.fixture
def db(open_db: OpenDb) -> SessionDB:
    """An open, empty store."""
    return open_db()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On PostgreSQL the switch of the trigrams changes nothing (ADR 0012): its tests there would be the same ones twice."""
    twice = [item for item in items if "trigrams-postgresql" in item.nodeid]
    if twice:
        config.hook.pytest_deselected(items=twice)
        items[:] = [item for item in items if "trigrams-postgresql" not in item.nodeid]


@pytest.fixture(params=["words", "trigrams"])
def search_db(request: pytest.FixtureRequest, open_db: OpenDb) -> SessionDB:
    """An open, empty store, on SQLite once without and once with the trigram index."""
    store = open_db()
    store.set_trigram_index(request.param == "trigrams")
    return store


@pytest.fixture(params=["words", "trigrams", "off"])
def any_search_db(request: pytest.FixtureRequest, open_db: OpenDb) -> SessionDB:
    """As ``search_db``, and once without any index: what a search finds is the same."""
    if request.param == "off":
        return open_db(search_index="off")
    store = open_db()
    store.set_trigram_index(request.param == "trigrams")
    return store


@pytest.fixture
def raw(store_url: str) -> Iterator[RawSql]:
    """SQL past the package."""
    reader = RawSql(store_url)
    yield reader
    reader.close()


@pytest.fixture
def statements(db: SessionDB) -> Iterator[QueryRecorder]:
    """What ``db`` sends to its database."""
    recorder = QueryRecorder(db.engine)
    yield recorder
    recorder.close()


def _checked_out(store: SessionDB) -> int:
    count: Callable[[], int] = getattr(store.engine.pool, "checkedout", lambda: 0)
    return count()
