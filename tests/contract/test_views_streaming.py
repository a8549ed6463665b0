"""Streaming a session: memory, connections, what is seen (issue 3, speed; known store, W5; field report P3)."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from hermes_state import InvalidArgumentError, SessionDB
from tests.support.builders import user
from tests.support.raw import RawSql
from tests.support.statements import QueryRecorder


def fill(db: SessionDB, count: int, session_id: str = "s") -> None:
    db.append_messages_batch(session_id, [user(f"message {i} " + "x" * 200) for i in range(count)])


def peak_of_streaming(db: SessionDB, session_id: str) -> int:
    """The most bytes that Python held at once while the session was streamed."""
    tracemalloc.start()
    try:
        assert sum(1 for _ in db.iter_messages(session_id, batch_size=50)) == db.message_count(session_id)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_the_stream_is_what_get_messages_gives(db: SessionDB, raw: RawSql, session: str) -> None:
    fill(db, 23)
    raw("UPDATE messages SET active = ? WHERE content LIKE 'message 1 %'", False)
    for batch_size in (1, 7, 22, 23, 500):
        assert list(db.iter_messages("s", batch_size=batch_size)) == db.get_messages("s")
    assert len(list(db.iter_messages("s", include_inactive=True, batch_size=4))) == 23


def test_memory_does_not_grow_with_the_number_of_rows(db: SessionDB, session: str) -> None:
    db.create_session("long", "cli")
    fill(db, 300)
    fill(db, 6_000, "long")
    list(db.iter_messages("s", batch_size=50))  # caches fill once
    short, long = peak_of_streaming(db, "s"), peak_of_streaming(db, "long")
    assert long < short * 1.5 + 20_000


def test_no_connection_is_held_between_pages(db: SessionDB, session: str) -> None:
    fill(db, 10)
    stream = db.iter_messages("s", batch_size=2)
    seen: list[Any] = []
    for message in stream:
        seen.append(message["content"])
        if len(seen) <= 3:
            db.append_message("s", "user", "meanwhile")  # would wait for ever, or fail, beside an open read
    assert seen[10:] == ["meanwhile"] * 3
    pool: Any = db.engine.pool
    assert getattr(pool, "checkedout", lambda: 0)() == 0


def test_a_page_takes_one_statement(db: SessionDB, session: str, statements: QueryRecorder) -> None:
    fill(db, 10)
    statements.clear()
    list(db.iter_messages("s", batch_size=4))
    assert len(statements.texts) == 3


def test_a_stream_may_be_left_early(db: SessionDB, session: str) -> None:
    fill(db, 10)
    stream = db.iter_messages("s", batch_size=3)
    assert next(stream)["content"].startswith("message 0 ")
    del stream
    assert db.message_count("s") == 10


@pytest.mark.parametrize("batch_size", [0, -1, "5", True, None])
def test_an_unfit_batch_size_is_refused_at_the_call(db: SessionDB, session: str, batch_size: Any) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        db.iter_messages("s", batch_size=batch_size)
    assert caught.value.argument == "batch_size"
