"""A list that was handed to a rewriting verb is known afterwards (field report F3; issue 3, item 1)."""

from __future__ import annotations

from typing import Any

from hermes_state import SessionDB, TranscriptFlusher
from tests.support.builders import Message, assert_counters_are_exact, user
from tests.support.raw import RawSql


def live_contents(db: SessionDB) -> list[Any]:
    return [message["content"] for message in db.get_messages("s")]


def flushed(db: SessionDB, number: int) -> tuple[TranscriptFlusher, list[Message]]:
    flusher = TranscriptFlusher(db, "s")
    live = [user(f"m{n}") for n in range(number)]
    assert flusher.flush(live)
    return flusher, live


def test_a_flush_after_a_compaction_inserts_nothing_again(db: SessionDB, session: str, raw: RawSql) -> None:
    flusher, live = flushed(db, 6)
    compacted = [user("summary"), *live[-2:]]
    db.archive_and_compact(session, compacted, tail_count=2)
    for number in range(3):
        compacted.append(user(f"new {number}"))
        assert flusher.flush(compacted)
    assert live_contents(db) == ["summary", "m4", "m5", "new 0", "new 1", "new 2"]
    assert_counters_are_exact(raw)


def test_a_flush_after_a_replace_inserts_nothing_again(db: SessionDB, session: str, raw: RawSql) -> None:
    flusher = TranscriptFlusher(db, session)
    live = [user("a"), user("b")]
    db.replace_messages(session, live)
    assert flusher.flush(live)
    assert live_contents(db) == ["a", "b"]
    live[0]["content"] = "edited"
    flusher.mark_dirty(live[0])
    assert flusher.flush(live)
    assert live_contents(db) == ["edited", "b"]
    assert_counters_are_exact(raw)


def test_the_same_compaction_called_twice_changes_nothing_more(
    db: SessionDB, session: str, raw: RawSql
) -> None:
    _, live = flushed(db, 6)
    compacted = [user("summary"), *live[-2:]]
    assert db.archive_and_compact(session, compacted, tail_count=2) == 3
    before = raw("SELECT * FROM messages ORDER BY id")
    assert db.archive_and_compact(session, compacted, tail_count=2) == 3
    assert raw("SELECT * FROM messages ORDER BY id") == before


def test_cutting_a_transcript_to_its_first_messages_is_no_repetition(db: SessionDB, session: str) -> None:
    _, live = flushed(db, 4)
    assert db.archive_and_compact(session, live[:2]) == 2
    assert live_contents(db) == ["m0", "m1"]


def test_rows_that_were_read_stay_as_they_were_read(db: SessionDB, session: str) -> None:
    flushed(db, 2)
    read = db.get_messages(session)
    before = [dict(row) for row in read]
    db.replace_messages(session, read)
    assert read == before


def test_a_message_that_was_taken_back_and_is_sent_again_is_a_new_row(
    db: SessionDB, session: str, raw: RawSql
) -> None:
    flusher, live = flushed(db, 3)
    gone = live[2]["_row_id"]
    for _ in range(2):
        db.rewind_to_message(session, live[2]["_row_id"])
        flusher.mark_dirty(live[2])
        assert flusher.flush(live)
        assert live_contents(db) == ["m0", "m1", "m2"]
    assert live[2]["_row_id"] > gone
    assert raw("SELECT count(*) FROM messages") == [(5,)]
    assert_counters_are_exact(raw)
    assert flusher.flush(live)
    assert raw("SELECT count(*) FROM messages") == [(5,)]


def test_an_edit_of_a_message_that_was_summarised_meanwhile_is_a_new_row(
    db: SessionDB, session: str, raw: RawSql
) -> None:
    flusher, live = flushed(db, 3)
    db.archive_and_compact(session, [user("summary")])
    live[1]["content"] = "edited"
    for message in live:
        flusher.mark_dirty(message)
    assert flusher.flush(live)
    assert live_contents(db) == ["summary", "edited"]
    assert_counters_are_exact(raw)


def test_a_tail_that_was_taken_back_during_the_summary_does_not_come_back(
    db: SessionDB, session: str, raw: RawSql
) -> None:
    _, live = flushed(db, 4)
    mark = db.get_active_message_watermark(session)
    db.rewind_to_message(session, live[3]["_row_id"])
    compacted = [user("summary"), *live[2:]]
    assert db.archive_and_compact(session, compacted, tail_count=2, watermark=mark) == 2
    assert live_contents(db) == ["summary", "m2"]
    assert_counters_are_exact(raw)
