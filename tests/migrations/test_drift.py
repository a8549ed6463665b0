"""Models and migrated tables are the same, on both databases (DESIGN.md section 4)."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from hermes_state import upgrades
from hermes_state.errors import SchemaBehindError
from hermes_state.models import metadata
from tests.migrations.conftest import Connect
from tests.support import catalogue, databases
from tests.support.raw import RawSql


def test_migrated_tables_show_no_drift(migrated: sa.Engine) -> None:
    assert upgrades.check(migrated) == []


def test_migrated_tables_are_defined_as_the_models_define_them(
    migrated: sa.Engine, sql: RawSql, backend: str, connect: Connect, request: pytest.FixtureRequest
) -> None:
    """Word by word, which also covers what no reflection sees: expression indices and the text of CHECKs."""
    with migrated.begin() as conn:
        conn.execute(sa.text("DROP TABLE alembic_version"))
    if backend == "sqlite":
        other = f"sqlite:///{request.getfixturevalue('tmp_path') / 'models.db'}"
        _compare(sql, connect(other), other, backend)
    else:
        with databases.database(request.getfixturevalue("postgres_url")) as other:
            _compare(sql, connect(other), other, backend)


def _compare(sql: RawSql, engine: sa.Engine, url: str, backend: str) -> None:
    metadata.create_all(engine)
    from_models = RawSql(url)
    expected = catalogue.definitions(from_models, backend)
    from_models.close()
    engine.dispose()
    assert len(expected) >= 14
    assert catalogue.definitions(sql, backend) == expected


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("DROP INDEX ix_sessions__source", ["add index: ix_sessions__source"]),
        ("ALTER TABLE state_meta ADD COLUMN surplus TEXT", ["remove column: state_meta.surplus"]),
        ("CREATE INDEX ix_surplus ON sessions (model)", ["remove index: ix_surplus"]),
        ("ALTER TABLE sessions DROP COLUMN pinned", None),
    ],
)
def test_changed_tables_are_reported(
    migrated: sa.Engine, sql: RawSql, change: str, found: list[str] | None
) -> None:
    if found is None:
        # SQLite refuses to drop a column that stands in a CHECK.
        change, found = "ALTER TABLE sessions DROP COLUMN cwd", ["add column: sessions.cwd"]
    sql(change)
    assert upgrades.check(migrated) == found


@pytest.mark.postgres
@pytest.mark.parametrize("backend", ["postgresql"])
@pytest.mark.parametrize(
    ("change", "found"),
    [
        (
            "ALTER TABLE sessions DROP CONSTRAINT ck_sessions__id_length",
            "add constraint: ck_sessions__id_length",
        ),
        ("ALTER TABLE messages ALTER message_uid SET DEFAULT 'same'", "modify default: messages.message_uid"),
        ("ALTER TABLE messages ALTER timestamp SET DEFAULT 0", "modify default: messages.timestamp"),
        ("ALTER TABLE messages ALTER id DROP IDENTITY", "modify default: messages.id"),
        ("ALTER TABLE sessions ALTER hidden DROP NOT NULL", "modify nullable: sessions.hidden"),
        ("ALTER TABLE messages ALTER extra TYPE jsonb", "modify type: messages.extra"),
        (
            "ALTER TABLE messages DROP CONSTRAINT fk_messages__session_id__sessions",
            "add fk: fk_messages__session_id__sessions",
        ),
    ],
)
def test_changed_details_are_reported_on_postgresql(
    migrated: sa.Engine, sql: RawSql, change: str, found: str
) -> None:
    sql(change)
    assert upgrades.check(migrated) == [found]


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_missing_check_is_reported_on_sqlite(migrated: sa.Engine, sql: RawSql) -> None:
    sql("PRAGMA writable_schema = ON")
    check = "CONSTRAINT ck_state_meta__key_length CHECK (length(key) BETWEEN 1 AND 512)"
    sql("UPDATE sqlite_master SET sql = replace(sql, ?, 'CHECK (1)') WHERE name = 'state_meta'", check)
    sql("PRAGMA writable_schema = RESET")
    assert upgrades.check(migrated) == ["add constraint: ck_state_meta__key_length"]


def test_tables_of_other_programs_are_no_drift(migrated: sa.Engine, sql: RawSql, backend: str) -> None:
    sql("CREATE TABLE invoices (id INTEGER PRIMARY KEY, total INTEGER)")
    if backend == "sqlite":
        sql("CREATE VIRTUAL TABLE some_fts USING fts5(body)")
    assert upgrades.check(migrated) == []
    assert "invoices" in catalogue.tables(sql, backend)


def test_drift_of_an_empty_database_is_no_question(engine: sa.Engine) -> None:
    with pytest.raises(SchemaBehindError):
        upgrades.check(engine)
