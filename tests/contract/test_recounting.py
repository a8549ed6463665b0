"""Counters after a rewrite equal the active rows, whatever other programs wrote into them (known store, W22; field report H2)."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_state import SessionDB
from tests.support.builders import caller, user
from tests.support.raw import RawSql

VALID = [
    ('[{"id": "a"}, {"id": "b"}, [1, 2]]', 3),
    ("[]", 0),
    (' [ "\\u0000", "\\ud83d" ] ', 2),
    ('{"id": "a", "calls": [1, 2]}', 1),
    ("7", 1),
    ("false", 1),
    ("null", 0),
    ('"text"', 0),
    ('"[1, 2, 3, 4]"', 4),
    ('"{}"', 1),
]
MALFORMED = [("[1, 2", 0), ("", 0), ("[NaN]", 0), ("nonsense", 0), (b"[1, 2, 3]", 3), (b"\xff", 0)]


def counters(raw: RawSql) -> tuple[Any, ...]:
    (found,) = raw("SELECT message_count, tool_call_count FROM sessions WHERE id = 's'")
    return found


@pytest.fixture
def written(backend: str, raw: RawSql, session: str) -> int:
    """Rows of another program, which counts nothing; the number of their calls as a reader of JSON counts them."""
    given: list[tuple[Any, int]] = [*VALID, *(MALFORMED if backend == "sqlite" else [])]
    for text, _ in given:
        raw("INSERT INTO messages (session_id, role, tool_calls) VALUES ('s', 'assistant', ?)", text)
    return sum(calls for _, calls in given)


def test_a_rewind_counts_lists_and_whatever_else_stands_there(
    db: SessionDB, raw: RawSql, written: int
) -> None:
    rows = raw.value("SELECT count(*) FROM messages")
    target = db.append_message("s", "user", "a question")
    db.append_messages_batch("s", [caller("x", "y")])
    db.rewind_to_message("s", target)
    assert counters(raw) == (rows, written)
    db.restore_rewound("s", target)
    assert counters(raw) == (rows + 2, written + 2)


def test_a_deletion_counts_what_is_left(db: SessionDB, raw: RawSql, written: int) -> None:
    db.append_messages_batch("s", [user(), caller("x")])
    ids = db.get_active_message_ids("s")
    assert db.delete_messages("s", [ids[0], ids[-1]]) == 2  # the first row had three calls
    assert counters(raw) == (len(ids) - 2, written - 3)


def test_other_sessions_and_inactive_rows_do_not_count(db: SessionDB, raw: RawSql, session: str) -> None:
    db.create_session("other", "cli")
    db.append_messages_batch("other", [caller("a", "b")])
    db.append_messages_batch("s", [caller("a"), caller("b", "c"), user("x")])
    raw("UPDATE messages SET active = ?, compacted = ? WHERE tool_calls IS NOT NULL AND id = 2", False, True)
    db.delete_messages("s", db.get_active_message_ids("s")[-1:])
    assert counters(raw) == (1, 2)
