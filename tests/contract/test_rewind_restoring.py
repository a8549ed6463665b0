"""Bringing rewound messages back (issue 3, item 1; known-store.md 2.3 and 3.5; field reports E3, H1)."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_state import SessionDB
from hermes_state.errors import (
    CompressionSessionClosedError,
    InvalidArgumentError,
    SessionNotFoundError,
    StoreError,
)
from tests.support.builders import (
    assert_counters_are_exact,
    assistant,
    caller,
    carrier,
    checkpoint,
    items_of,
    reasoning,
    snapshot,
    user,
)
from tests.support.raw import RawSql
from tests.support.statements import QueryRecorder, failing_statement


@pytest.fixture
def ids(db: SessionDB) -> list[int]:
    """Two turns and a third that was taken back: the ids of all six rows."""
    db.create_session("s", "cli")
    turns = [user("q0"), assistant("a0"), user("q1"), caller("x"), user("q2"), caller("y", "z")]
    db.append_messages_batch("s", turns)
    found = [turn["_row_id"] for turn in turns]
    db.rewind_to_message("s", found[4])
    return found


def test_rewound_rows_come_back(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    assert db.restore_rewound("s", ids[4]) == 2
    assert [m["id"] for m in db.get_messages("s")] == ids
    assert_counters_are_exact(raw)
    assert raw("SELECT message_count, tool_call_count, rewind_count FROM sessions") == [(6, 3, 1)]


@pytest.mark.parametrize(("place", "count"), [(0, 2), (4, 2), (5, 1)])
def test_only_rows_from_the_given_id_on_come_back(
    db: SessionDB, raw: RawSql, ids: list[int], place: int, count: int
) -> None:
    assert db.restore_rewound("s", ids[place]) == count
    assert db.restore_rewound("s", ids[place]) == 0
    assert_counters_are_exact(raw)


def test_nothing_to_restore_changes_nothing(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    before = snapshot(raw)
    assert db.restore_rewound("s", ids[5] + 1) == 0
    assert db.restore_rewound("s", 2**63 - 1) == 0
    assert snapshot(raw) == before


def test_compacted_rows_never_come_back(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    db.archive_and_compact("s", [user("summary")])
    assert db.restore_rewound("s", 0) == 2
    states = raw("SELECT active, compacted FROM messages WHERE id <= ? ORDER BY id", ids[5])
    assert [(bool(a), bool(c)) for a, c in states] == [(False, True)] * 4 + [(True, False)] * 2
    assert_counters_are_exact(raw)


def test_a_superseded_original_never_comes_back(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    raw("UPDATE messages SET superseded_by = ? WHERE id = ?", ids[5], ids[4])
    assert db.restore_rewound("s", 0) == 1
    assert [m["id"] for m in db.get_messages("s")] == [*ids[:4], ids[5]]


def test_other_sessions_stay_as_they_are(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    db.create_session("other", "cli")
    target = db.append_message("other", "user", "o0")
    db.rewind_to_message("other", target)
    assert db.restore_rewound("s", 0) == 2
    assert db.message_count("other") == 0


def test_an_old_carrier_that_comes_back_is_stripped_and_a_newer_one_strips(
    db: SessionDB, raw: RawSql
) -> None:
    db.create_session("s", "cli")
    target = db.append_message("s", "user", "q")
    db.append_messages_batch("s", [carrier("old", reasoning("r"))])
    db.rewind_to_message("s", target)
    db.append_messages_batch("s", [carrier("new")])
    assert items_of(raw)[1] == [reasoning("r"), checkpoint("old")]
    db.restore_rewound("s", target)
    assert items_of(raw) == [None, [reasoning("r")], [checkpoint("new")]]

    target = db.append_message("s", "user", "again")
    db.append_messages_batch("s", [carrier("newest")])
    db.rewind_to_message("s", target)
    raw(
        "UPDATE messages SET codex_reasoning_items = ? WHERE id < ? AND content = 'answer new'",
        '[{"type": "compaction"}]',
        target,
    )
    db.restore_rewound("s", target)
    assert items_of(raw) == [None, [reasoning("r")], None, None, [checkpoint("newest")]]


def test_a_message_of_a_platform_that_was_sent_again_comes_back_once(db: SessionDB, raw: RawSql) -> None:
    db.create_session("s", "cli")
    sent = [user("hi", platform_message_id="p1"), user("hi", platform_message_id="p2")]
    for _ in range(2):
        db.append_messages_batch("s", [dict(m) for m in sent])
        db.rewind_to_message("s", db.get_messages("s")[0]["id"])
    db.append_messages_batch("s", [dict(sent[0])])
    assert db.restore_rewound("s", 0) == 1
    assert [m["platform_message_id"] for m in db.get_messages("s")] == ["p2", "p1"]
    assert_counters_are_exact(raw)


@pytest.mark.parametrize("number", [-1, True, 2**63, 1.5, "1", None])
def test_what_is_no_row_id_is_refused(db: SessionDB, ids: list[int], number: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="since_message_id"):
        db.restore_rewound("s", number)


def test_unknown_and_closed_sessions_are_refused(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    for unknown in ("nobody", ""):
        with pytest.raises(SessionNotFoundError):
            db.restore_rewound(unknown, ids[0])
    db.end_session("s", "compression")
    before = snapshot(raw)
    with pytest.raises(CompressionSessionClosedError):
        db.restore_rewound("s", ids[0])
    assert snapshot(raw) == before


def test_a_failure_at_any_statement_changes_nothing(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    before = snapshot(raw)
    for number in range(20):
        try:
            with failing_statement(db.engine, number):
                db.restore_rewound("s", 0)
        except StoreError:
            assert snapshot(raw) == before
        else:
            break
    assert 4 <= number < 20
    assert db.message_count("s") == 6


def test_restoring_writes_no_text_and_needs_the_same_statements_for_any_number_of_rows(
    db: SessionDB, ids: list[int], statements: QueryRecorder
) -> None:
    db.append_messages_batch("s", [caller("x") for _ in range(300)])
    counts = set()
    for _ in range(2):
        statements.clear()
        db.restore_rewound("s", 0)
        counts.add(len(statements.texts))
        db.rewind_to_message("s", ids[0])
    assert len(counts) == 1
    assert all("session_id" in text or "sessions.id" in text for text in statements.texts)
