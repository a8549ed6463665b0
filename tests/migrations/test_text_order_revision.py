"""Revision 0007: titles and names of models ordered by code point (field report N6)."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from hermes_state import upgrades
from tests.migrations.conftest import Connect
from tests.support import databases
from tests.support.raw import RawSql

_TITLES = "SELECT title FROM sessions WHERE title >= 'Waltz' AND title < 'Walt{' ORDER BY title"
_MODELS = "SELECT model FROM session_model_usage ORDER BY model"


def test_rows_stay_and_come_in_order(migrated: sa.Engine, sql: RawSql) -> None:
    upgrades.downgrade(migrated, "0006")
    _check(migrated, sql)


@pytest.mark.postgres
def test_titles_of_an_english_database_are_found_after_the_upgrade(
    postgres_url: str, connect: Connect
) -> None:
    url = databases.create_english_database(postgres_url)
    try:
        engine = connect(url)
        upgrades.upgrade(engine, "0006")
        sql = RawSql(url)
        _check(engine, sql)
        sql.close()
        engine.dispose()
    finally:
        databases.drop_database(url)


def _check(engine: sa.Engine, sql: RawSql) -> None:
    for place, title in enumerate(["Waltz #2", "Waltz", "Walk", "waltz"]):
        sql("INSERT INTO sessions (id, title) VALUES (?, ?)", str(place), title)
        sql("INSERT INTO session_model_usage (session_id, model) VALUES (?, ?)", str(place), title)
    upgrades.upgrade(engine)
    assert sql.column(_TITLES) == ["Waltz", "Waltz #2"]
    assert sql.column(_MODELS) == ["Walk", "Waltz", "Waltz #2", "waltz"]
    upgrades.downgrade(engine, "0006")
    assert sorted(sql.column("SELECT title FROM sessions")) == ["Walk", "Waltz", "Waltz #2", "waltz"]
    upgrades.upgrade(engine)
    assert upgrades.check(engine) == []
