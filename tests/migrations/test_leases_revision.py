"""Revision 0002: the tables of leases, as other programs and a downgrade meet them (issue 3, item 4)."""

from __future__ import annotations

import sqlite3
import time

import psycopg
import pytest
import sqlalchemy as sa

from hermes_state import upgrades
from hermes_state.errors import DowngradeRefusedError
from tests.support import catalogue
from tests.support.raw import RawSql

KEYS = [("compression_locks", "session_id"), ("session_turn_leases", "conversation_id")]
REFUSED = (sqlite3.IntegrityError, psycopg.errors.IntegrityError)

pytestmark = [pytest.mark.usefixtures("migrated"), pytest.mark.parametrize(("table", "key"), KEYS)]


def test_a_lease_needs_only_its_key_and_is_not_live(sql: RawSql, table: str, key: str) -> None:
    sql(f"INSERT INTO {table} ({key}) VALUES ('nobody')")
    ((holder, acquired_at, expires_at),) = sql(f"SELECT holder, acquired_at, expires_at FROM {table}")
    assert holder == "unknown"
    assert abs(acquired_at - time.time()) < 60
    assert abs(expires_at - acquired_at) < 1


def test_keys_and_holders_have_1_to_512_characters(sql: RawSql, table: str, key: str) -> None:
    for value in ("", "x" * 513):
        with pytest.raises(REFUSED):
            sql(f"INSERT INTO {table} ({key}) VALUES (?)", value)
        with pytest.raises(REFUSED):
            sql(f"INSERT INTO {table} ({key}, holder) VALUES ('k', ?)", value)
    sql(f"INSERT INTO {table} ({key}, holder) VALUES (?, ?)", "y" * 512, "z" * 512)
    assert sql.value(f"SELECT count(*) FROM {table}") == 1


@pytest.mark.parametrize("column", ["holder", "acquired_at", "expires_at"])
def test_no_column_is_null(sql: RawSql, table: str, key: str, column: str) -> None:
    with pytest.raises(REFUSED):
        sql(f"INSERT INTO {table} ({key}, {column}) VALUES ('k', NULL)")


def test_a_key_has_one_lease(sql: RawSql, table: str, key: str) -> None:
    sql(f"INSERT INTO {table} ({key}) VALUES ('k')")
    with pytest.raises(REFUSED):
        sql(f"INSERT INTO {table} ({key}) VALUES ('k')")


def test_a_downgrade_refuses_to_drop_a_live_lease(
    migrated: sa.Engine, sql: RawSql, backend: str, table: str, key: str
) -> None:
    sql(f"INSERT INTO {table} ({key}, expires_at) VALUES ('k', ?)", time.time() + 3600)
    with pytest.raises(DowngradeRefusedError, match=f"1 live rows of {table}"):
        upgrades.downgrade(migrated, "0001")
    assert table in catalogue.tables(sql, backend)
    assert upgrades.current(migrated) == upgrades.HEAD


def test_a_downgrade_drops_live_leases_by_force_and_expired_ones_without(
    migrated: sa.Engine, sql: RawSql, backend: str, table: str, key: str
) -> None:
    for expires_at, force in ((time.time() + 3600, True), (time.time() - 1, False)):
        sql(f"INSERT INTO {table} ({key}, expires_at) VALUES ('k', ?)", expires_at)
        upgrades.downgrade(migrated, "0001", force=force)
        assert table not in catalogue.tables(sql, backend)
        upgrades.upgrade(migrated)
    assert sql(f"SELECT * FROM {table}") == []
