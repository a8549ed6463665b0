"""What is recognised when a store is opened, and that looking writes nothing (field reports Q1, Q2, Q8, Q10 to Q12)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from hermes_state import upgrades
from hermes_state.errors import SchemaAheadError, SchemaBehindError, SchemaMismatchError
from hermes_state.models import metadata
from tests.migrations.conftest import Connect
from tests.support import catalogue
from tests.support.raw import RawSql, sqlite_file

MOVES: list[Callable[[sa.Engine], None]] = [
    upgrades.upgrade,
    partial(upgrades.downgrade, revision="base", force=True),
]


def check(engine: sa.Engine) -> None:
    with engine.connect() as conn:
        upgrades.check_schema(conn)


def refused(engine: sa.Engine, sql: RawSql, backend: str) -> SchemaMismatchError:
    """The error that both looking and upgrading give; neither may change anything."""
    before = catalogue.definitions(sql, backend)
    with pytest.raises(SchemaMismatchError) as looking:
        check(engine)
    for move in MOVES:
        with pytest.raises(SchemaMismatchError) as moving:
            move(engine)
        assert str(moving.value) == str(looking.value)
    assert catalogue.definitions(sql, backend) == before
    return looking.value


def test_a_database_at_the_head_passes(migrated: sa.Engine) -> None:
    check(migrated)
    assert upgrades.current(migrated) == upgrades.HEAD


def test_a_new_database_is_behind_and_the_error_names_the_command(engine: sa.Engine) -> None:
    with pytest.raises(SchemaBehindError, match="hermes-state upgrade") as caught:
        check(engine)
    assert (caught.value.have, caught.value.want) == (None, upgrades.HEAD)
    assert upgrades.current(engine) is None


def test_a_downgraded_database_is_behind(migrated: sa.Engine) -> None:
    upgrades.downgrade(migrated, "base")
    with pytest.raises(SchemaBehindError) as caught:
        check(migrated)
    assert caught.value.have is None


def test_an_older_revision_is_behind(migrated: sa.Engine, sql: RawSql) -> None:
    sql("UPDATE alembic_version SET version_num = '0000'")
    with pytest.raises(SchemaBehindError) as caught:
        check(migrated)
    assert caught.value.have == "0000"


def test_a_newer_revision_is_ahead_and_nothing_is_written(
    migrated: sa.Engine, sql: RawSql, backend: str
) -> None:
    sql("UPDATE alembic_version SET version_num = '0999'")
    before = catalogue.definitions(sql, backend)
    for move in (check, *MOVES):
        with pytest.raises(SchemaAheadError) as caught:
            move(migrated)
        assert (caught.value.have, caught.value.want) == ("0999", upgrades.HEAD)
    assert catalogue.definitions(sql, backend) == before
    assert upgrades.current(migrated) == "0999"


def test_an_older_store_is_left_untouched(engine: sa.Engine, sql: RawSql, backend: str) -> None:
    sql("CREATE TABLE schema_version (version INTEGER)")
    sql("INSERT INTO schema_version VALUES (17)")
    sql("CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, started_at REAL NOT NULL)")
    sql("CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT NOT NULL, role TEXT NOT NULL)")
    sql("INSERT INTO sessions VALUES ('s', 'cli', 1.0)")
    error = refused(engine, sql, backend)
    assert "messages, sessions without a version" in error.details
    assert "it was left untouched; `hermes-state adopt FILE --into TARGET`" in str(error)
    with pytest.raises(SchemaMismatchError):
        upgrades.current(engine)
    assert sql("SELECT id, source FROM sessions") == [("s", "cli")]


@pytest.mark.parametrize("statement", ["CREATE TABLE {}(id INTEGER)", "CREATE VIEW {} AS SELECT 1 AS id"])
@pytest.mark.parametrize("name", sorted(metadata.tables))
def test_tables_and_views_of_our_names_are_in_the_way(
    engine: sa.Engine, sql: RawSql, backend: str, name: str, statement: str
) -> None:
    sql(statement.format(name))
    assert f"{name} without a version" in refused(engine, sql, backend).details


@pytest.mark.parametrize("version", ["ae1027a6acf", "0001", "0999", "1"])
def test_the_version_table_of_another_program_is_recognised(
    engine: sa.Engine, sql: RawSql, backend: str, version: str
) -> None:
    sql("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
    sql("INSERT INTO alembic_version VALUES (?)", version)
    sql("CREATE TABLE invoices (id INTEGER)")
    assert version in refused(engine, sql, backend).details


def test_several_heads_of_another_program_are_recognised(
    engine: sa.Engine, sql: RawSql, backend: str
) -> None:
    sql("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
    sql("INSERT INTO alembic_version VALUES ('0001'), ('0002')")
    assert "0001, 0002" in refused(engine, sql, backend).details


def test_a_version_table_of_another_shape_is_recognised(engine: sa.Engine, sql: RawSql, backend: str) -> None:
    sql("CREATE TABLE alembic_version (number INTEGER)")
    assert "alembic_version is not Alembic's" in refused(engine, sql, backend).details


def test_foreign_tables_are_left_alone(engine: sa.Engine, sql: RawSql, backend: str) -> None:
    sql("CREATE TABLE invoices (id INTEGER)")
    sql("INSERT INTO invoices VALUES (1)")
    upgrades.upgrade(engine)
    assert sql("SELECT id FROM invoices") == [(1,)]
    assert catalogue.tables(sql, backend) == {*metadata.tables, "alembic_version", "invoices"}


def test_a_dropped_column_is_named_before_the_first_query(
    migrated: sa.Engine, sql: RawSql, backend: str
) -> None:
    sql("ALTER TABLE messages DROP COLUMN api_content")
    sql("ALTER TABLE sessions DROP COLUMN cwd")
    details = refused(migrated, sql, backend).details
    assert details == "missing column sessions.cwd, column messages.api_content"


def test_a_dropped_table_is_named(migrated: sa.Engine, sql: RawSql, backend: str) -> None:
    sql("DROP TABLE system_prompts")
    assert refused(migrated, sql, backend).details == "missing table system_prompts"


def test_surplus_columns_are_no_fault(migrated: sa.Engine, sql: RawSql) -> None:
    sql("ALTER TABLE sessions ADD COLUMN of_another_program TEXT")
    check(migrated)


def test_looking_takes_two_reading_statements(migrated: sa.Engine) -> None:
    statements: list[str] = []
    sa.event.listen(migrated, "before_cursor_execute", lambda *call: statements.append(call[2].strip()))
    check(migrated)
    assert len(statements) == 2
    upgrades.upgrade(migrated)
    assert len(statements) == 4
    assert all(statement.startswith("SELECT") for statement in statements)


@pytest.mark.parametrize("backend", ["sqlite"])
def test_an_up_to_date_file_opened_twice_keeps_every_byte(connect: Connect, empty_url: str) -> None:
    def state() -> dict[str, tuple[str, int]]:
        folder = Path(sqlite_file(empty_url)).parent
        return {
            path.name: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
            for path in folder.iterdir()
        }

    first = connect(empty_url)
    upgrades.upgrade(first)
    first.dispose()
    before = state()
    assert list(before) == ["new.db"]
    second = connect(empty_url)
    upgrades.upgrade(second)
    check(second)
    second.dispose()
    assert state() == before
