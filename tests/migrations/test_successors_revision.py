"""Revision 0003: which rows a compaction carried on, as other programs and a downgrade meet it (issue 3, item 1)."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from hermes_state import upgrades
from hermes_state.errors import DowngradeRefusedError
from tests.support.raw import RawSql

COLUMN = "SELECT superseded_by FROM messages ORDER BY id"


@pytest.fixture(autouse=True)
def _two_rows(migrated: sa.Engine, sql: RawSql) -> None:
    sql("INSERT INTO sessions (id) VALUES ('s')")
    sql("INSERT INTO messages (session_id, content) VALUES ('s', 'original')")
    sql("INSERT INTO messages (session_id, content) VALUES ('s', 'copy')")


def carry(sql: RawSql) -> None:
    sql("UPDATE messages SET superseded_by = ? WHERE content = 'original'", 2**62)


def test_a_row_without_a_successor_needs_no_value(sql: RawSql) -> None:
    assert sql.column(COLUMN) == [None, None]


def test_a_downgrade_refuses_to_forget_successors(migrated: sa.Engine, sql: RawSql) -> None:
    carry(sql)
    with pytest.raises(DowngradeRefusedError, match="successors of 1 rows of messages"):
        upgrades.downgrade(migrated, "0002")
    assert sql.column(COLUMN) == [2**62, None]
    assert upgrades.current(migrated) == upgrades.HEAD


def test_a_downgrade_drops_the_column_by_force_or_when_it_is_empty(migrated: sa.Engine, sql: RawSql) -> None:
    for force in (True, False):
        if force:
            carry(sql)
        upgrades.downgrade(migrated, "0002", force=force)
        assert upgrades.current(migrated) == "0002"
        assert sql.column("SELECT content FROM messages ORDER BY id") == ["original", "copy"]
        upgrades.upgrade(migrated)
        assert sql.column(COLUMN) == [None, None]
    assert upgrades.check(migrated) == []
