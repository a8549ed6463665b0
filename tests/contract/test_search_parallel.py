"""A search in a database that spreads its statements over workers, as PostgreSQL does with large tables (issue 5, item 3)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hermes_state import SessionDB
from tests.conftest import OpenDb
from tests.support.raw import RawSql
from tests.support.searching import found, say

CHEAP = (
    "parallel_setup_cost",
    "parallel_tuple_cost",
    "min_parallel_table_scan_size",
    "min_parallel_index_scan_size",
)


@pytest.mark.parametrize("options", [{}, {"search_index": "off"}])
def test_a_search_in_parallel_finds_the_same(
    db: SessionDB, open_db: OpenDb, raw: RawSql, backend: str, options: dict[str, Any]
) -> None:
    arguments = json.dumps({"q": "\u8bb0\u5fc6 zebra"})
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": arguments}}
    rows = say(db, *("x" for _ in range(50)), role="assistant", tool_calls=[call])
    if backend == "postgresql":
        raw("ANALYZE")
        name = raw.value("SELECT current_database()")
        for setting in CHEAP:
            raw(f'ALTER DATABASE "{name}" SET {setting} = 0')
    searching = open_db(**options)
    for query in ("zebra", "\u8bb0", "\u8bb0\u5fc6", '"\u8bb0\u5fc6 zebra"', "look OR \u8bb0", "zeb*"):
        assert found(searching, query) == rows, query
    searching.rebuild_search_index()
    assert found(searching, "zebra") == rows
