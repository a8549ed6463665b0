"""Changing one message where it stands (issue 3, item 1; known store, section 2.3)."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_state import (
    CompressionSessionClosedError,
    InvalidArgumentError,
    InvalidMessageError,
    SessionDB,
    SessionNotFoundError,
)
from tests.support.builders import (
    REPLACEMENT,
    SURROGATE,
    assert_counters_are_exact,
    assistant,
    caller,
    snapshot,
    user,
)
from tests.support.raw import RawSql

PICTURE = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:x"}}]


def fill(db: SessionDB, *messages: dict[str, Any], session_id: str = "s") -> list[int]:
    db.append_messages_batch(session_id, list(messages))
    return [int(message["_row_id"]) for message in messages]


def column(raw: RawSql, name: str) -> list[Any]:
    return raw.column(f"SELECT {name} FROM messages WHERE session_id = 's' ORDER BY id")


def test_what_was_sent_is_kept_for_the_row_that_is_named(db: SessionDB, raw: RawSql, session: str) -> None:
    ids = fill(db, user("hello"), user("hello"), assistant("hi"))
    before = snapshot(raw)
    assert db.set_message_api_content("s", ids[0], "<context/>hello")
    assert column(raw, "api_content") == ["<context/>hello", None, None]
    assert db.get_messages_as_conversation("s")[0]["api_content"] == "<context/>hello"
    assert column(raw, "content") == ["hello", "hello", "hi"]
    assert db.set_message_api_content("s", ids[0], None)
    assert snapshot(raw) == before


def test_text_is_cleaned_as_in_every_column(db: SessionDB, raw: RawSql, session: str) -> None:
    (row,) = fill(db, user("hello"))
    assert db.set_message_api_content("s", row, f"a\x00b{SURROGATE}")
    assert column(raw, "api_content") == [f"a{REPLACEMENT}b{REPLACEMENT}"]
    assert db.set_message_api_content("s", row, "")
    assert column(raw, "api_content") == [""]


def test_no_other_row_is_touched(db: SessionDB, raw: RawSql, session: str) -> None:
    db.create_session("other", "cli")
    (mine, taken_back), (foreign,) = fill(db, user("a"), user("b")), fill(db, user("c"), session_id="other")
    db.rewind_to_message("s", taken_back)
    before = snapshot(raw)
    for session_id, row in (
        ("s", foreign),
        ("s", taken_back),
        ("s", 0),
        ("s", -1),
        ("s", 2**63),
        ("?", mine),
        ("", mine),
    ):
        assert not db.set_message_api_content(session_id, row, "x")
    assert db.set_latest_user_api_content("?", "x") is None
    assert snapshot(raw) == before


@pytest.mark.parametrize("api_content", [1, b"x", ["x"], {"a": 1}])
def test_what_is_no_text_is_refused(db: SessionDB, raw: RawSql, session: str, api_content: Any) -> None:
    (row,) = fill(db, user("a"))
    before = snapshot(raw)
    with pytest.raises(InvalidMessageError) as caught:
        db.set_message_api_content("s", row, api_content)
    assert caught.value.field == "api_content"
    with pytest.raises(InvalidMessageError) as caught:
        db.set_latest_user_api_content("s", api_content)
    assert caught.value.field == "api_content"
    assert snapshot(raw) == before


@pytest.mark.parametrize("row_id", ["1", True, 1.0, None])
def test_what_is_no_row_id_is_refused(db: SessionDB, session: str, row_id: Any) -> None:
    for verb in (db.set_message_api_content, db.set_user_message_content):
        with pytest.raises(InvalidArgumentError) as caught:
            verb("s", row_id, "x")
        assert caught.value.argument == "row_id"


def test_the_latest_user_message_is_the_newest_active_one(db: SessionDB, raw: RawSql, session: str) -> None:
    assert db.set_latest_user_api_content("s", "x") is None
    first, _, second, _ = fill(
        db, user("a", timestamp=9.0), assistant("b"), user("c", timestamp=3.0), assistant("d")
    )
    assert db.set_latest_user_api_content("s", "sent c") == second
    db.rewind_to_message("s", second)
    assert db.set_latest_user_api_content("s", "sent a") == first
    assert column(raw, "api_content") == ["sent a", None, "sent c", None]


def test_an_edit_finds_the_row_that_carries_the_message_on(db: SessionDB, raw: RawSql, session: str) -> None:
    old, kept = fill(db, user("old"), user("kept"))
    db.archive_and_compact("s", [user("summary"), *db.get_messages("s")[-1:]], tail_count=1)
    assert db.set_message_api_content("s", kept, "sent")
    db.set_user_message_content("s", kept, "edited")
    live = db.get_messages("s")[-1]
    assert (live["content"], live["api_content"]) == ("edited", None)
    assert db.set_message_api_content("s", old, "of a summarised row")
    with pytest.raises(InvalidArgumentError):
        db.set_user_message_content("s", old, "no longer live")
    assert column(raw, "content") == ["old", "kept", "summary", "edited"]


def test_new_content_replaces_the_old_and_forgets_what_was_sent(
    db: SessionDB, raw: RawSql, session: str
) -> None:
    row, _ = fill(db, user("voice message", api_content="sent", platform_message_id="p"), caller("x"))
    db.set_user_message_content("s", row, PICTURE)
    assert db.get_messages("s")[0]["content"] == PICTURE
    assert column(raw, "content") == ["look", None]
    assert column(raw, "api_content") == [None, None]
    db.set_user_message_content("s", row, f"what was said\x00{SURROGATE}")
    assert db.get_messages("s")[0]["content"] == f"what was said{REPLACEMENT}{REPLACEMENT}"
    assert column(raw, "content_parts") == [None, None]
    assert db.get_messages("s")[0]["platform_message_id"] == "p"
    assert_counters_are_exact(raw)


def test_only_active_user_messages_of_an_open_session_get_new_content(
    db: SessionDB, raw: RawSql, session: str
) -> None:
    db.create_session("other", "cli")
    answer, taken_back = fill(db, assistant("a"), user("b"))
    (foreign,) = fill(db, user("c"), session_id="other")
    db.rewind_to_message("s", taken_back)
    before = snapshot(raw)
    for row in (answer, taken_back, foreign, 0, -1, 2**63):
        with pytest.raises(InvalidArgumentError) as caught:
            db.set_user_message_content("s", row, "x")
        assert caught.value.argument == "row_id"
    with pytest.raises(InvalidMessageError):
        db.set_user_message_content("s", answer, [float("nan")])
    for unknown in ("?", ""):
        with pytest.raises(SessionNotFoundError):
            db.set_user_message_content(unknown, answer, "x")
    assert snapshot(raw) == before


def test_a_closed_session_keeps_its_text(db: SessionDB, raw: RawSql, session: str) -> None:
    (row,) = fill(db, user("a"))
    db.end_session("s", "compression")
    with pytest.raises(CompressionSessionClosedError):
        db.set_user_message_content("s", row, "x")
    assert column(raw, "content") == ["a"]


def test_the_newest_message_of_that_text_is_displayed_so(db: SessionDB, raw: RawSql, session: str) -> None:
    _, second, _ = fill(db, user("go on"), user("go on"), assistant("go on"))
    assert db.set_latest_matching_message_display_kind("s", "user", "go on", "hidden") == second
    assert column(raw, "display_kind") == [None, "hidden", None]
    assert db.set_latest_matching_message_display_kind("s", "user", "go", "hidden") is None
    assert db.set_latest_matching_message_display_kind("s", "user", None, "hidden") is None
    assert db.set_latest_matching_message_display_kind("?", "user", "go on", "hidden") is None
    assert db.set_latest_matching_message_display_kind("s", "user", "go on", None) == second
    assert column(raw, "display_kind") == [None, None, None]


def test_content_matches_as_it_is_loaded(db: SessionDB, raw: RawSql, session: str) -> None:
    picture, text, nothing, odd = fill(
        db, user(PICTURE), user("look"), assistant(None), user(f"a\x00{SURROGATE}%_")
    )
    loaded = db.get_messages("s")
    for row, message in zip((picture, text, nothing, odd), loaded, strict=True):
        kind = f"kind {row}"
        assert (
            db.set_latest_matching_message_display_kind("s", message["role"], message["content"], kind) == row
        )
    assert db.set_latest_matching_message_display_kind("s", "user", f"a\x00{SURROGATE}%_", "x") == odd
    assert column(raw, "display_kind") == [f"kind {picture}", f"kind {text}", f"kind {nothing}", "x"]


def test_metadata_is_merged_into_what_is_there(db: SessionDB, raw: RawSql, session: str) -> None:
    fill(db, user("a", display_metadata={"x": 1, "y": {"z": 2}}))
    assert db.set_latest_matching_message_display_kind("s", "user", "a", "steer", {"y": [3], "w": "\x00"})
    (message,) = db.get_messages("s")
    assert message["display_metadata"] == {"x": 1, "y": [3], "w": REPLACEMENT}
    db.set_latest_matching_message_display_kind("s", "user", "a", "hidden")
    (message,) = db.get_messages("s")
    assert (message["display_kind"], message["display_metadata"]["x"]) == ("hidden", 1)


def test_metadata_of_another_program_is_not_lost(
    db: SessionDB, raw: RawSql, session: str, backend: str
) -> None:
    fill(db, user("a"))
    for stored, kept in [("[1, 2]", [1, 2]), *([("{broken", "{broken")] if backend == "sqlite" else [])]:
        raw("UPDATE messages SET display_metadata = ?", stored)
        assert db.set_latest_matching_message_display_kind("s", "user", "a", "x", {"b": 1})
        assert db.get_messages("s")[0]["display_metadata"] == {"value": kept, "b": 1}


@pytest.mark.parametrize("metadata", [[1], "text", 1, True])
def test_metadata_that_is_no_dict_is_refused(db: SessionDB, session: str, metadata: Any) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        db.set_latest_matching_message_display_kind("s", "user", "a", "x", metadata)
    assert caught.value.argument == "display_metadata"


def test_edits_work_inside_a_unit_and_undo_with_it(db: SessionDB, raw: RawSql, session: str) -> None:
    (row,) = fill(db, user("a"))
    before = snapshot(raw)

    def edit_and_fail() -> None:
        with db.unit_of_work() as uow:
            assert uow.messages.set_api_content("s", row, "sent")
            uow.messages.set_user_content("s", row, "edited")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        edit_and_fail()
    assert snapshot(raw) == before
    with db.unit_of_work() as uow:
        with pytest.raises(InvalidArgumentError):
            uow.messages.set_user_content("s", row + 1, "edited")
        assert uow.messages.set_api_content("s", row, "sent")
    assert column(raw, "api_content") == ["sent"]
