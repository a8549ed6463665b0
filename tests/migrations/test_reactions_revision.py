"""Revision 0005: reactions to messages, as other programs and a downgrade meet them (issue 3, item 1)."""

from __future__ import annotations

import sqlite3

import psycopg
import pytest
import sqlalchemy as sa

from hermes_state import upgrades
from hermes_state.errors import DowngradeRefusedError
from tests.support import catalogue
from tests.support.raw import RawSql

REFUSED = (sqlite3.IntegrityError, psycopg.errors.IntegrityError)
INSERT = "INSERT INTO message_reactions (session_id, message_uid, actor) VALUES (?, ?, ?)"

pytestmark = pytest.mark.usefixtures("migrated")


@pytest.fixture(autouse=True)
def _session(migrated: sa.Engine, sql: RawSql) -> None:
    sql("INSERT INTO sessions (id) VALUES ('s')")


def test_a_reaction_needs_only_its_key_and_goes_with_its_session(sql: RawSql) -> None:
    sql(INSERT, "s", "u", "me")
    assert sql("SELECT emoji, seen FROM message_reactions") == [("?", False)]
    with pytest.raises(REFUSED):
        sql(INSERT, "s", "u", "me")
    sql("DELETE FROM sessions")
    assert sql("SELECT * FROM message_reactions") == []


@pytest.mark.parametrize("key", [("?", "u", "me"), ("s", "", "me"), ("s", "u", ""), ("s", "u", "x" * 513)])
def test_a_key_that_is_none_is_refused(sql: RawSql, key: tuple[str, ...]) -> None:
    with pytest.raises(REFUSED):
        sql(INSERT, *key)


def test_a_downgrade_refuses_to_lose_reactions(migrated: sa.Engine, sql: RawSql, backend: str) -> None:
    sql(INSERT, "s", "u", "me")
    with pytest.raises(DowngradeRefusedError, match="1 rows of message_reactions"):
        upgrades.downgrade(migrated, "0004")
    assert upgrades.current(migrated) == upgrades.HEAD
    upgrades.downgrade(migrated, "0004", force=True)
    assert "message_reactions" not in catalogue.tables(sql, backend)
    upgrades.upgrade(migrated)
    upgrades.downgrade(migrated, "0004")
    assert upgrades.current(migrated) == "0004"
