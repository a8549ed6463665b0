from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import Result

from hermes_state.upgrades import HEAD
from tests.cli.conftest import SAMPLES, Run
from tests.support.raw import RawSql


@pytest.fixture
def empty_url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if backend == "sqlite":
        yield f"sqlite:///{tmp_path / 'new.db'}"
    else:
        yield request.getfixturevalue("fresh_postgres_url")


@pytest.fixture
def on_empty(cli: Run, empty_url: str) -> Run:
    def run(*arguments: object, code: int = 0) -> Result:
        return cli("--url", empty_url, *arguments, code=code)

    return run


def test_upgrade_makes_the_tables_and_prints_the_revision(on_empty: Run, empty_url: str) -> None:
    assert on_empty("upgrade").stdout == f"{HEAD}\n"
    reader = RawSql(empty_url)
    assert reader.column("SELECT version_num FROM alembic_version") == [HEAD]
    assert reader.value("SELECT count(*) FROM sessions") == 0
    reader.close()
    assert on_empty("upgrade").stdout == f"{HEAD}\n"


def test_current_tells_an_empty_database_from_an_upgraded_one(on_empty: Run) -> None:
    on_empty("upgrade")
    assert on_empty("current").stdout == f"{HEAD}\n"
    on_empty("downgrade", "base")
    assert on_empty("current").stdout == "none\n"


def test_current_creates_no_file(cli: Run, tmp_path: Path) -> None:
    result = cli("--db", tmp_path / "absent.db", "current", code=1)
    assert result.stderr.startswith("StoreUnavailableError: ")
    assert list(tmp_path.iterdir()) == []


def test_check_is_silent_on_stdout_when_all_is_well(run: Run) -> None:
    result = run("check")
    assert result.stdout == ""
    assert "as expected" in result.stderr


def test_check_prints_each_difference_and_ends_with_one(run: Run, raw: RawSql) -> None:
    raw("DROP INDEX ix_sessions__source")
    result = run("check", code=1)
    assert "ix_sessions__source" in result.stdout
    assert "1 difference" in result.stderr


def test_check_of_an_older_schema_is_a_typed_error(on_empty: Run) -> None:
    on_empty("upgrade")
    on_empty("downgrade", "base")
    assert on_empty("check", code=1).stderr.startswith("SchemaBehindError: ")


def test_a_schema_from_the_future_is_refused_by_every_command(run: Run, raw: RawSql) -> None:
    raw("UPDATE alembic_version SET version_num = '9999'")
    for arguments in (("upgrade",), ("downgrade", "base"), ("check",), ("sessions", "list")):
        assert run(*arguments, code=1).stderr.startswith("SchemaAheadError: ")


def test_downgrade_refuses_to_lose_rows_unless_forced(run: Run, raw: RawSql) -> None:
    run("record", *SAMPLES.glob("*.jsonl"))
    refused = run("downgrade", "base", code=1)
    assert refused.stderr.startswith("DowngradeRefusedError: ")
    assert "--force" in refused.stderr
    assert raw.value("SELECT count(*) FROM messages") == 38
    assert run("downgrade", "base", "--force").stdout == "none\n"


def test_an_unknown_revision_is_a_typed_error(on_empty: Run) -> None:
    assert on_empty("upgrade", "7777", code=1).stderr.startswith("InvalidArgumentError: ")


@pytest.mark.parametrize(
    ("dialect", "only_there"), [("sqlite", "randomblob"), ("postgresql", "gen_random_uuid")]
)
def test_sql_prints_the_statements_and_touches_no_database(
    cli: Run, tmp_path: Path, dialect: str, only_there: str
) -> None:
    result = cli("--db", tmp_path / "absent.db", "sql", "--dialect", dialect)
    assert "CREATE TABLE messages" in result.stdout
    assert only_there in result.stdout
    assert result.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_the_sql_for_sqlite_runs(cli: Run, tmp_path: Path) -> None:
    path = tmp_path / "by_hand.db"
    with sqlite3.connect(path) as conn:
        conn.executescript(cli("sql").stdout)
    conn.close()
    assert cli("--db", path, "current").stdout == f"{HEAD}\n"
    cli("--db", path, "check")


@pytest.mark.postgres
def test_the_sql_for_postgresql_runs(cli: Run, fresh_postgres_url: str) -> None:
    reader = RawSql(fresh_postgres_url)
    reader.conn.execute(cli("sql", "--dialect", "postgresql").stdout)
    reader.close()
    assert cli("--url", fresh_postgres_url, "current").stdout == f"{HEAD}\n"
    cli("--url", fresh_postgres_url, "check")


@pytest.mark.postgres
def test_a_server_database_is_not_upgraded_by_recording(cli: Run, fresh_postgres_url: str) -> None:
    result = cli("--url", fresh_postgres_url, "record", SAMPLES / "release-notes.jsonl", code=1)
    assert result.stderr.startswith("SchemaBehindError: ")
    assert "hermes-state upgrade" in result.stderr
    assert cli("--url", fresh_postgres_url, "current").stdout == "none\n"
