"""Rows that other programs write are read, counted on and rewritten by every verb (CONTRACT.md section 6)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hermes_state import SessionDB
from tests.support.builders import assistant, contents_of, user
from tests.support.raw import RawSql


@pytest.fixture
def foreign(raw: RawSql) -> str:
    """A session and three messages with as few columns as another program may give."""
    raw("INSERT INTO sessions (id, source, started_at) VALUES ('f', 'other', 1000)")
    raw("INSERT INTO messages (session_id, role, content) VALUES ('f', 'user', 'asked')")
    raw(
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('f', 'assistant', 'answered', 5)"
    )
    raw("INSERT INTO messages (content, session_id) VALUES ('no role', 'f')")
    return "f"


def test_they_are_read_in_the_order_of_their_ids(db: SessionDB, foreign: str) -> None:
    assert [(m["role"], m["content"]) for m in db.get_messages(foreign)] == [
        ("user", "asked"),
        ("assistant", "answered"),
        ("unknown", "no role"),
    ]
    assert len(db.get_messages_as_conversation(foreign)) == 3
    assert db.list_sessions()[0]["kind"] == "root"


def test_each_has_a_uid_of_its_own_and_a_time(db: SessionDB, foreign: str) -> None:
    rows = db.get_messages(foreign)
    assert len({row["message_uid"] for row in rows}) == 3
    assert all(row["timestamp"] > 0 for row in rows)


def test_the_verbs_write_beside_and_over_them(db: SessionDB, foreign: str, raw: RawSql) -> None:
    db.append_messages_batch(foreign, [user("ours")])
    rows = db.get_messages(foreign)
    assert db.replace_messages(foreign, rows) == 4
    assert db.get_session(foreign)["message_count"] == 4  # type: ignore[index]
    assert db.archive_and_compact(foreign, [user("summary")]) == 1
    assert contents_of(raw, foreign)[-1] == "summary"


@pytest.mark.parametrize(
    "column", ["tool_calls", "reasoning_details", "codex_message_items", "display_metadata"]
)
def test_a_value_encoded_twice_is_read_once_decoded(
    db: SessionDB, foreign: str, raw: RawSql, column: str
) -> None:
    twice = json.dumps(json.dumps([{"a": 1}]))
    raw(f"INSERT INTO messages (session_id, role, {column}) VALUES ('f', 'assistant', ?)", twice)
    row: Any = db.get_messages(foreign)[-1]
    assert row[column] == [{"a": 1}]


@pytest.mark.parametrize("text", ["{broken", "", "nul", "[" * 5_000])
def test_malformed_json_on_sqlite_reads_as_absent_and_hides_no_neighbour(
    db: SessionDB, foreign: str, raw: RawSql, backend: str, text: str
) -> None:
    if backend == "postgresql":
        with pytest.raises(Exception, match=r"json|stack"):
            raw("INSERT INTO messages (session_id, tool_calls) VALUES ('f', ?)", text)
        return
    raw(
        "INSERT INTO messages (session_id, role, content, tool_calls, extra) VALUES ('f', 'assistant', 'odd', ?, ?)",
        text,
        text,
    )
    db.append_messages_batch(foreign, [assistant("after")])
    found = db.get_messages(foreign)[-2:]
    assert [(row["content"], row["tool_calls"]) for row in found] == [("odd", None), ("after", None)]
    assert db.get_messages_as_conversation(foreign)[-1]["content"] == "after"


def test_text_that_is_no_utf8_and_bytes_on_sqlite_are_read(
    db: SessionDB, foreign: str, raw: RawSql, backend: str
) -> None:
    if backend == "postgresql":
        with pytest.raises(Exception, match="UTF8"):
            raw(
                "INSERT INTO messages (session_id, content) VALUES ('f', convert_from('\\xff'::bytea, 'UTF8'))"
            )
        return
    raw("INSERT INTO messages (session_id, content, tool_name) VALUES ('f', CAST(x'61ff' AS TEXT), x'62ff')")
    row = db.get_messages(foreign)[-1]
    assert (row["content"], row["tool_name"]) == ("a\ufffd", "b\ufffd")
    assert db.get_messages_as_conversation(foreign)[-1]["content"] == "a\ufffd"
    assert db.export_session(foreign) is not None


def test_counters_that_others_left_wrong_stop_no_write(db: SessionDB, foreign: str, raw: RawSql) -> None:
    raw("INSERT INTO messages (session_id, role, tool_calls) VALUES ('f', 'assistant', '[1, 2]')")
    row_id = raw.value("SELECT max(id) FROM messages")
    edited = {"role": "assistant", "content": "no calls any more", "_row_id": row_id}
    assert db.append_messages_batch(foreign, [edited]) == 0
    assert raw.value("SELECT tool_calls IS NULL FROM messages WHERE id = ?", row_id)
    assert raw("SELECT message_count, tool_call_count FROM sessions") == [(0, 0)]


def test_a_child_without_kind_continues_its_compressed_parent(
    db: SessionDB, foreign: str, raw: RawSql
) -> None:
    raw("UPDATE sessions SET ended_at = 2000, end_reason = 'compression'")
    raw("INSERT INTO sessions (id, source, parent_session_id) VALUES ('next', 'other', 'f')")
    raw("INSERT INTO sessions (id, source, parent_session_id) VALUES ('helper', 'tool', 'f')")
    assert db.get_compression_tip(foreign) == "next"
    assert {session["id"] for session in db.list_sessions()} == {"f"}


def test_a_circle_of_parents_ends_every_walk(db: SessionDB, foreign: str, raw: RawSql) -> None:
    raw(
        "INSERT INTO sessions (id, parent_session_id, end_reason, ended_at) VALUES ('g', 'f', 'compression', 1)"
    )
    raw(
        "UPDATE sessions SET parent_session_id = 'g', end_reason = 'compression', ended_at = 1 WHERE id = 'f'"
    )
    assert db.get_compression_tip("f") in ("f", "g")
    assert len(db.get_messages_as_conversation("f", include_ancestors=True)) == 3
    assert db.list_sessions(include_children=True)
