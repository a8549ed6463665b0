"""Reads of a session keep to its own rows, also when the other sessions are newer and bigger (issue 3, speed; W2)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from hermes_state import SessionDB
from tests.support.builders import Message, assistant, user
from tests.support.raw import RawSql
from tests.support.statements import QueryRecorder

OLD, NEWER = 1_000, 6_000


def turns(count: int) -> list[Message]:
    return [user(f"q{n} " * 40) if n % 2 == 0 else assistant(f"a{n} " * 40) for n in range(count)]


@pytest.fixture
def anchor(db: SessionDB, raw: RawSql) -> int:
    """A row in the middle of the session ``old``; around it stand newer rows of sessions that sort before and after it."""
    db.create_session("old", "cli")
    messages = turns(OLD)
    db.append_messages_batch("old", messages)
    for name in ("a-newer", "z-newer"):
        db.create_session(name, "cli")
        db.append_messages_batch(name, turns(NEWER))
    raw("ANALYZE")
    return int(messages[OLD // 2]["_row_id"])


READS: dict[str, Callable[[SessionDB, int], Any]] = {
    "latest": lambda db, _anchor: db.get_messages("old", latest=True, limit=20),
    "latest displayed": lambda db, _anchor: db.get_messages(
        "old", latest=True, limit=20, include_compacted=True
    ),
    "latest of any state": lambda db, _anchor: db.get_messages(
        "old", latest=True, limit=20, include_inactive=True
    ),
    "before": lambda db, anchor: db.get_messages("old", before_id=anchor, limit=20),
    "after": lambda db, anchor: db.get_messages("old", after_id=anchor, limit=20),
    "first of a late session": lambda db, _anchor: db.get_messages("z-newer", limit=20),
    "around": lambda db, anchor: db.get_messages_around("old", anchor),
    "anchored view": lambda db, anchor: db.get_anchored_view("old", anchor),
    "recent questions": lambda db, _anchor: db.list_recent_user_messages("old"),
    "recent questions of any state": lambda db, _anchor: db.list_recent_user_messages(
        "old", include_inactive=True
    ),
    "newest id": lambda db, _anchor: db.latest_message_row_id("old"),
    "watermark": lambda db, _anchor: db.get_active_message_watermark("old"),
    "export": lambda db, _anchor: db.export_session("old"),
    "newest role": lambda db, _anchor: db.latest_conversation_role("old"),
}


@pytest.fixture
def plans(
    db: SessionDB, raw: RawSql, statements: QueryRecorder, backend: str
) -> Callable[[Callable[[], Any]], list[str]]:
    """Runs a read and gives the plan of each statement on messages that it sent."""
    explain = "EXPLAIN QUERY PLAN" if backend == "sqlite" else "EXPLAIN"

    def plans_of(read: Callable[[], Any]) -> list[str]:
        statements.clear()
        read()
        sent = [
            (t, p) for t, p in zip(statements.texts, statements.parameters, strict=True) if "messages" in t
        ]
        found = [raw.conn.execute(f"{explain} {text}", parameters).fetchall() for text, parameters in sent]
        return ["\n".join(str(row[-1]) for row in rows) for rows in found]

    return plans_of


@pytest.mark.parametrize("name", READS)
def test_no_read_passes_the_rows_of_newer_sessions(
    db: SessionDB, anchor: int, plans: Callable[..., list[str]], name: str
) -> None:
    found = plans(lambda: READS[name](db, anchor))
    assert found
    for plan in found:
        # The primary key, or the whole table, is read past every row of the others.
        assert re.search(r"pk_messages|PRIMARY KEY|Seq Scan|SCAN messages|TEMP B-TREE", plan) is None
        assert re.search(r"ix_messages__(active|session_id)", plan)


def test_whether_rows_were_archived_is_asked_of_an_index_of_such_rows(
    db: SessionDB, anchor: int, plans: Callable[..., list[str]]
) -> None:
    (plan,) = plans(lambda: db.has_archived_messages("z-newer"))
    assert "ix_messages__compacted" in plan
