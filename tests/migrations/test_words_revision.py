"""Revision 0009: the index is made anew where there is one, and stays off where it was switched off (issue 5)."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from hermes_state import SessionDB, upgrades
from hermes_state.dialects import operations_for
from tests.support.raw import RawSql
from tests.support.search_index import assert_in_step, damage
from tests.support.searching import found

BEFORE = "0008"
TEXTS = ["\u4fee\u6539youer\u670d\u52a1", "a youer", "1\u00bd cups", "nothing of it"]


@pytest.fixture
def older(migrated: sa.Engine, sql: RawSql) -> sa.Engine:
    """A store at 0008, with its rows."""
    upgrades.downgrade(migrated, BEFORE)
    sql("INSERT INTO sessions (id) VALUES ('s')")
    for text in TEXTS:
        sql("INSERT INTO messages (session_id, role, content) VALUES ('s', 'user', ?)", text)
    return migrated


def assert_finds_all(url: str, state: str) -> None:
    with SessionDB(url=url, migrate=False) as db:
        assert db.search_index_state()["state"] == state
        assert found(db, "youer") == [1, 2]
        assert found(db, "1\u00bd") == [3]
        assert found(db, '"\u4fee\u6539youer"') == [1]


def test_an_index_that_was_on_is_on_and_knows_every_row(
    older: sa.Engine, sql: RawSql, empty_url: str
) -> None:
    upgrades.upgrade(older)
    assert_finds_all(empty_url, "on")
    assert_in_step(sql)


@pytest.mark.parametrize(
    ("was", "becomes"), [("off", "off"), ("degraded", "degraded"), ("building", "degraded")]
)
def test_an_index_that_was_not_on_is_not_built_by_the_upgrade(
    older: sa.Engine, sql: RawSql, empty_url: str, was: str, becomes: str
) -> None:
    operations = operations_for(older)
    with older.begin() as conn:
        if was == "off":
            operations.search.take_away(conn)
        operations.search.note(conn, index=was)
    upgrades.upgrade(older)
    assert_finds_all(empty_url, becomes)
    with SessionDB(url=empty_url) as db:
        db.rebuild_search_index()
    assert_finds_all(empty_url, "on")
    assert_in_step(sql)


@pytest.mark.parametrize("how", ["structure", "zeroed", "emptied", "leaves", "missing"])
def test_an_index_that_was_damaged_is_whole_after_the_upgrade(
    older: sa.Engine, sql: RawSql, empty_url: str, backend: str, how: str
) -> None:
    damage(sql, backend, how)
    upgrades.upgrade(older)
    assert_finds_all(empty_url, "on")
    assert_in_step(sql)


def test_a_downgrade_finds_rows_again_after_the_next_upgrade(
    older: sa.Engine, sql: RawSql, empty_url: str
) -> None:
    upgrades.upgrade(older)
    upgrades.downgrade(older, BEFORE)
    sql("INSERT INTO messages (session_id, role, content) VALUES ('s', 'user', 'late')")
    upgrades.upgrade(older)
    assert upgrades.check(older) == []
    assert_finds_all(empty_url, "on")
    with SessionDB(url=empty_url) as db:
        assert found(db, "late") == [len(TEXTS) + 1]


@pytest.mark.postgres
@pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
def test_who_may_read_the_index_may_read_it_after_the_upgrade(older: sa.Engine, sql: RawSql) -> None:
    sql("GRANT SELECT ON message_search TO pg_monitor")
    upgrades.upgrade(older)
    assert sql.column("SELECT has_table_privilege('pg_monitor', 'message_search', 'SELECT')") == [True]
