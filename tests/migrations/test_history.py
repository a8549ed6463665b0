"""One linear history, up and down with rows in the tables (DESIGN.md, decision 8; field reports Q5, Q6, Q8)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.config import Config
from alembic.script import Script, ScriptDirectory

from hermes_state import upgrades
from hermes_state.errors import DowngradeRefusedError, InvalidArgumentError
from tests.support import catalogue
from tests.support.raw import RawSql

VERSIONS = sorted((upgrades.script_location() / "versions").glob("*.py"))
FIRST_TABLES = {"sessions", "messages", "state_meta", "system_prompts"}
TABLES = FIRST_TABLES | {
    "compression_locks",
    "session_turn_leases",
    "message_reactions",
    "session_model_usage",
    "session_daily_usage",
}


def history() -> list[Script]:
    """All revisions, the oldest first."""
    config = Config()
    config.set_main_option("script_location", str(upgrades.script_location()))
    return list(ScriptDirectory.from_config(config).walk_revisions())[::-1]


def fill(sql: RawSql) -> None:
    sql("INSERT INTO sessions (id, title) VALUES ('parent', 'A title')")
    sql("INSERT INTO sessions (id, parent_session_id) VALUES ('child', 'parent')")
    sql("INSERT INTO messages (session_id, role, content) VALUES ('parent', 'user', 'hello')")
    sql("INSERT INTO messages (session_id, role, content) VALUES ('child', 'assistant', 'hi')")
    sql("INSERT INTO state_meta (key, value) VALUES ('note', 'kept')")
    sql("INSERT INTO system_prompts (hash, prompt) VALUES ('h', 'Be brief.')")


def empty(sql: RawSql) -> None:
    for table in ("messages", "sessions", "state_meta", "system_prompts"):
        sql(f"DELETE FROM {table}")


def test_history_is_one_line_of_numbered_revisions() -> None:
    revisions = history()
    assert [script.revision for script in revisions] == [f"{n:04d}" for n in range(1, len(revisions) + 1)]
    assert [script.down_revision for script in revisions] == [
        None,
        *(script.revision for script in revisions[:-1]),
    ]


def test_the_cheap_constant_is_the_head_of_the_scripts() -> None:
    assert history()[-1].revision == upgrades.HEAD


@pytest.mark.parametrize("path", VERSIONS, ids=lambda path: path.stem)
def test_a_revision_imports_neither_the_package_nor_the_models(path: Path) -> None:
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    assert imported <= {"__future__", "typing", "collections", "alembic", "sqlalchemy"}


@pytest.mark.parametrize("path", VERSIONS, ids=lambda path: path.stem)
def test_a_revision_says_whether_it_rebuilds_tables(path: Path) -> None:
    assignments = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Assign)]
    names = {target.id for node in assignments for target in node.targets if isinstance(target, ast.Name)}
    assert {"revision", "down_revision", "rebuilds_tables"} <= names


def test_stairway_up_down_up_with_rows_at_every_step(engine: sa.Engine, sql: RawSql, backend: str) -> None:
    for script in history():
        upgrades.upgrade(engine, script.revision)
        empty(sql)
        fill(sql)
        below = str(script.down_revision or "base")
        upgrades.downgrade(engine, below, force=True)
        assert upgrades.current(engine) == script.down_revision
        upgrades.upgrade(engine, script.revision)
        assert upgrades.current(engine) == script.revision
    assert catalogue.tables(sql, backend) == {*TABLES, "alembic_version"}


def test_downgrade_to_base_leaves_only_the_empty_version_table(
    migrated: sa.Engine, sql: RawSql, backend: str
) -> None:
    upgrades.downgrade(migrated, "base")
    assert catalogue.tables(sql, backend) == {"alembic_version"}
    assert sql("SELECT * FROM alembic_version") == []
    assert upgrades.current(migrated) is None


def test_downgrade_that_would_lose_rows_is_refused_and_changes_nothing(
    migrated: sa.Engine, sql: RawSql, backend: str
) -> None:
    fill(sql)
    before = catalogue.definitions(sql, backend)
    with pytest.raises(
        DowngradeRefusedError, match="2 rows of messages, 2 rows of sessions, 1 rows of state_meta"
    ):
        upgrades.downgrade(migrated, "base")
    assert catalogue.definitions(sql, backend) == before
    assert sql.value("SELECT count(*) FROM messages") == 2
    assert upgrades.current(migrated) == upgrades.HEAD


@pytest.mark.parametrize("table", sorted(FIRST_TABLES - {"messages"}))
def test_rows_of_any_table_stop_a_downgrade(migrated: sa.Engine, sql: RawSql, table: str) -> None:
    fill(sql)
    for other in FIRST_TABLES - {table}:
        if table != "sessions" or other != "messages":
            sql(f"DELETE FROM {other}")
    with pytest.raises(DowngradeRefusedError, match=f"rows of {table}"):
        upgrades.downgrade(migrated, "base")


def test_forced_downgrade_removes_the_rows(migrated: sa.Engine, sql: RawSql, backend: str) -> None:
    fill(sql)
    upgrades.downgrade(migrated, "base", force=True)
    assert catalogue.tables(sql, backend) == {"alembic_version"}


@pytest.mark.parametrize("revision", ["0999", "nonsense", "-99", ""])
def test_unknown_targets_are_refused_arguments(migrated: sa.Engine, sql: RawSql, revision: str) -> None:
    for move in (upgrades.upgrade, upgrades.downgrade):
        with pytest.raises(InvalidArgumentError, match="revision"):
            move(migrated, revision)
    assert sql("SELECT version_num FROM alembic_version") == [(upgrades.HEAD,)]


def test_downgrade_of_an_empty_database_changes_nothing(engine: sa.Engine, sql: RawSql, backend: str) -> None:
    upgrades.downgrade(engine, "base")
    assert catalogue.tables(sql, backend) <= {"alembic_version"}
