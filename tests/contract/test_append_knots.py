"""Batches in which uids, platform ids and row ids meet (CONTRACT.md section 3, rules 7 and 8; section 4)."""

from __future__ import annotations

from hermes_state import SessionDB
from tests.support.builders import (
    assert_counters_are_exact,
    assistant,
    carrier,
    checkpoint,
    contents_of,
    items_of,
    user,
)
from tests.support.raw import RawSql


def test_a_repeated_uid_of_a_repeated_platform_id_lands_on_the_one_row(
    db: SessionDB, session: str, raw: RawSql
) -> None:
    batch = [
        user("hi", message_uid="u1", platform_message_id="p"),
        user("hi", message_uid="u2", platform_message_id="p"),
        user("hi", message_uid="u2", platform_message_id="p"),
    ]
    assert db.append_messages_batch(session, batch) == 1
    assert len({message["_row_id"] for message in batch}) == 1
    assert contents_of(raw) == ["hi"]
    assert_counters_are_exact(raw)


def test_a_repeated_old_carrier_beside_the_edited_newest_leaves_the_newest_checkpoint(
    db: SessionDB, session: str, raw: RawSql
) -> None:
    old, newest = carrier("old", message_uid="old"), carrier("newest", message_uid="newest")
    db.append_messages_batch(session, [old])
    db.append_messages_batch(session, [newest])
    edited = newest | {"content": "edited"}
    again = carrier("old", message_uid="old")
    assert db.append_messages_batch(session, [edited, again]) == 0
    assert items_of(raw) == [None, [checkpoint("newest")]]
    assert contents_of(raw) == ["answer old", "edited"]


def test_a_checkpoint_moved_to_an_older_row_stays_there(db: SessionDB, session: str, raw: RawSql) -> None:
    first, second = assistant("first"), carrier("second")
    db.append_messages_batch(session, [first, second])
    first["codex_reasoning_items"] = [checkpoint("moved")]
    del second["codex_reasoning_items"]
    assert db.append_messages_batch(session, [first, second]) == 0
    assert items_of(raw) == [[checkpoint("moved")], None]


def test_a_whole_transcript_with_row_ids_rewrites_no_stripped_carrier(
    db: SessionDB, session: str, raw: RawSql
) -> None:
    transcript = [carrier(str(number)) for number in range(4)]
    for end in range(1, 5):
        assert db.append_messages_batch(session, transcript[:end]) == 1
    assert items_of(raw) == [None, None, None, [checkpoint("3")]]
