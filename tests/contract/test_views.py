"""Reading pages and windows of a session (issue 3, item 2; known store, section 2.4)."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_state import InvalidArgumentError, SessionDB, SessionTooLargeError
from tests.support.builders import assistant, user
from tests.support.raw import RawSql
from tests.support.statements import QueryRecorder

Ids = list[int]
ODD_CLOCK = [100.38, 100.48, 100.44, 100.50, 7.0]


def fill(db: SessionDB, count: int, session_id: str = "s") -> Ids:
    """``count`` messages, a user's and an assistant's in turns; their row ids."""
    messages = [user(f"m{i}") if i % 2 == 0 else assistant(f"m{i}") for i in range(count)]
    db.append_messages_batch(session_id, messages)
    return [int(message["_row_id"]) for message in messages]


def rewind(raw: RawSql, *row_ids: int) -> None:
    for row_id in row_ids:
        raw("UPDATE messages SET active = ? WHERE id = ?", False, row_id)


def compact(raw: RawSql, *row_ids: int) -> None:
    for row_id in row_ids:
        raw("UPDATE messages SET active = ?, compacted = ? WHERE id = ?", False, True, row_id)


def ids(rows: Any) -> Ids:
    return [row["id"] for row in rows]


def test_pages_after_an_id_go_forward_and_meet_every_row_once(db: SessionDB, session: str) -> None:
    expected = fill(db, 7)
    seen: Ids = []
    while page := db.get_messages("s", after_id=seen[-1] if seen else None, limit=3):
        assert len(page) <= 3
        seen += ids(page)
    assert seen == expected


def test_pages_before_an_id_go_backward_each_oldest_first(db: SessionDB, session: str) -> None:
    expected = fill(db, 7)
    assert ids(db.get_messages("s", before_id=expected[5], limit=2)) == expected[3:5]
    assert ids(db.get_messages("s", before_id=expected[3], limit=9)) == expected[:3]
    assert db.get_messages("s", before_id=expected[0], limit=2) == []
    assert ids(db.get_messages("s", before_id=expected[2])) == expected[:2]


def test_between_two_ids_a_page_begins_at_the_lower_one(db: SessionDB, session: str) -> None:
    expected = fill(db, 7)
    page = db.get_messages("s", after_id=expected[1], before_id=expected[6], limit=2)
    assert ids(page) == expected[2:4]
    assert db.get_messages("s", after_id=expected[5], before_id=expected[2]) == []


def test_the_latest_page_holds_the_newest_rows_oldest_first(db: SessionDB, session: str) -> None:
    expected = fill(db, 10)
    assert ids(db.get_messages("s", latest=True, limit=3)) == expected[-3:]
    assert ids(db.get_messages("s", latest=True, limit=3, before_id=expected[5])) == expected[2:5]
    assert ids(db.get_messages("s", latest=True)) == expected
    assert db.get_messages("s", latest=True, limit=0) == []


def test_options_that_contradict_each_other_are_refused(db: SessionDB, session: str) -> None:
    fill(db, 2)
    with pytest.raises(InvalidArgumentError) as caught:
        db.get_messages("s", after_id=1, latest=True, limit=1)
    assert caught.value.argument == "latest"


@pytest.mark.parametrize("name", ["after_id", "before_id", "limit"])
@pytest.mark.parametrize("value", [-1, "1", True, 1.5, 2**63])
def test_what_is_no_count_is_refused(db: SessionDB, session: str, name: str, value: Any) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        db.get_messages("s", **{name: value})
    assert caught.value.argument == name


def test_a_page_says_which_states_it_shows(db: SessionDB, raw: RawSql, session: str) -> None:
    rows = fill(db, 4)
    compact(raw, rows[0])
    rewind(raw, rows[1])
    assert ids(db.get_messages("s")) == rows[2:]
    assert ids(db.get_messages("s", include_compacted=True)) == [rows[0], *rows[2:]]
    assert ids(db.get_messages("s", include_inactive=True)) == rows
    assert ids(db.get_messages("s", include_inactive=True, include_compacted=True)) == rows
    assert ids(db.get_messages("s", latest=True, limit=3, include_compacted=True)) == [rows[0], *rows[2:]]


def test_no_reader_orders_by_time(db: SessionDB, session: str) -> None:
    messages = [user(f"m{i}", timestamp=time) for i, time in enumerate(ODD_CLOCK)]
    db.append_messages_batch("s", messages)
    rows = [m["_row_id"] for m in messages]
    assert ids(db.get_messages("s")) == rows
    assert ids(db.get_messages("s", latest=True, limit=3)) == rows[-3:]
    assert ids(db.iter_messages("s", batch_size=2)) == rows
    assert ids(db.get_messages_around("s", rows[2], 1)["window"]) == rows[1:4]
    assert ids(db.get_anchored_view("s", rows[2], 0, 1)["bookend_end"]) == [rows[-1]]
    assert [m["id"] for m in db.list_recent_user_messages("s")] == rows[::-1]
    assert [m["timestamp"] for m in db.get_messages_as_conversation("s")] == ODD_CLOCK


def test_pages_take_one_statement_and_name_the_session(
    db: SessionDB, session: str, statements: QueryRecorder
) -> None:
    rows = fill(db, 30)
    statements.clear()
    db.get_messages("s", before_id=rows[20], limit=5)
    db.get_messages("s", latest=True, limit=5)
    assert len(statements.texts) == 2
    assert all("session_id =" in text for text in statements.texts)


def test_the_window_holds_the_anchor_and_what_stands_around_it(db: SessionDB, session: str) -> None:
    rows = fill(db, 9)
    view = db.get_messages_around("s", rows[4], 2)
    assert ids(view["window"]) == rows[2:7]
    assert (view["messages_before"], view["messages_after"]) == (2, 2)


def test_counts_below_the_window_mean_an_end_of_the_session(db: SessionDB, session: str) -> None:
    rows = fill(db, 4)
    first, last = db.get_messages_around("s", rows[0], 2), db.get_messages_around("s", rows[2], 2)
    assert (first["messages_before"], first["messages_after"]) == (0, 2)
    assert (last["messages_before"], last["messages_after"]) == (2, 1)


@pytest.mark.parametrize("window", [0, -3])
def test_a_window_of_nothing_is_the_anchor(db: SessionDB, session: str, window: int) -> None:
    rows = fill(db, 3)
    view = db.get_messages_around("s", rows[1], window)
    assert ids(view["window"]) == [rows[1]]
    assert (view["messages_before"], view["messages_after"]) == (0, 0)


def test_an_anchor_that_is_not_of_the_session_gives_an_empty_view(db: SessionDB, session: str) -> None:
    db.create_session("other", "cli")
    mine, foreign = fill(db, 3), fill(db, 3, "other")
    empty = {"window": [], "messages_before": 0, "messages_after": 0}
    for session_id, anchor in (("s", foreign[0]), ("s", 0), ("s", 2**63), ("s", -1), ("?", mine[0]), ("", 1)):
        assert db.get_messages_around(session_id, anchor) == empty
        assert db.get_anchored_view(session_id, anchor) == {
            **empty,
            "bookend_start": [],
            "bookend_end": [],
        }


def test_windows_show_what_was_summarised_and_never_what_was_rewound(
    db: SessionDB, raw: RawSql, session: str
) -> None:
    rows = fill(db, 8)
    compact(raw, rows[1], rows[2])
    rewind(raw, rows[3], rows[5], rows[7])
    view = db.get_messages_around("s", rows[4], 3)
    assert ids(view["window"]) == [rows[0], rows[1], rows[2], rows[4], rows[6]]
    assert db.get_messages_around("s", rows[3], 3)["window"] == []
    ends = db.get_anchored_view("s", rows[4], 0)
    assert ids(ends["bookend_start"]) == rows[:3]
    assert ids(ends["bookend_end"]) == [rows[6]]


def test_the_anchored_view_keeps_some_roles_and_always_the_anchor(db: SessionDB, session: str) -> None:
    messages = [
        user("q"),
        assistant("a"),
        {"role": "tool", "content": "t1"},
        {"role": "tool", "content": "t2"},
    ]
    db.append_messages_batch("s", messages)
    rows = [m["_row_id"] for m in messages]
    assert ids(db.get_anchored_view("s", rows[2])["window"]) == rows[:3]
    assert ids(db.get_anchored_view("s", rows[2], keep_roles=["user"])["window"]) == [rows[0], rows[2]]
    assert ids(db.get_anchored_view("s", rows[2], keep_roles=None)["window"]) == rows
    assert ids(db.get_anchored_view("s", rows[2], keep_roles=[])["window"]) == [rows[2]]


def test_the_bookends_are_the_ends_of_the_session_outside_the_window(db: SessionDB, session: str) -> None:
    rows = fill(db, 12)
    view = db.get_anchored_view("s", rows[5], window=1, bookend=2)
    assert ids(view["window"]) == rows[4:7]
    assert ids(view["bookend_start"]) == rows[:2]
    assert ids(view["bookend_end"]) == rows[-2:]
    near = db.get_anchored_view("s", rows[1], window=1, bookend=2)
    assert near["bookend_start"] == []
    assert db.get_anchored_view("s", rows[5], bookend=0)["bookend_end"] == []


def test_only_messages_with_text_are_bookends_parts_included(db: SessionDB, session: str) -> None:
    parts = [{"type": "image_url", "image_url": "data:x"}, {"type": "text", "text": "look"}]
    messages = [
        user(""),
        user(parts),
        assistant(None),
        user("anchor"),
        {"role": "tool", "content": "out"},
        user("end"),
    ]
    db.append_messages_batch("s", messages)
    rows = [m["_row_id"] for m in messages]
    view = db.get_anchored_view("s", rows[3], window=0)
    assert ids(view["bookend_start"]) == [rows[1]]
    assert view["bookend_start"][0]["content"] == parts
    assert ids(view["bookend_end"]) == [rows[5]]
    every = db.get_anchored_view("s", rows[3], window=0, keep_roles=None)
    assert ids(every["bookend_end"]) == rows[4:]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"anchor_id": "1"}, "anchor_id"),
        ({"window": "5"}, "window"),
        ({"bookend": 1.5}, "bookend"),
        ({"keep_roles": "user"}, "keep_roles"),
        ({"keep_roles": [1]}, "keep_roles"),
    ],
)
def test_unfit_arguments_of_a_view_are_refused(
    db: SessionDB, session: str, arguments: dict[str, Any], name: str
) -> None:
    (row,) = fill(db, 1)
    with pytest.raises(InvalidArgumentError) as caught:
        db.get_anchored_view("s", **{"anchor_id": row, **arguments})
    assert caught.value.argument == name


@pytest.mark.parametrize("length", [30, 600])
def test_a_view_takes_three_statements_whatever_the_length(
    db: SessionDB, session: str, statements: QueryRecorder, length: int
) -> None:
    rows = fill(db, length)
    statements.clear()
    db.get_anchored_view("s", rows[length // 2], 10)
    assert len(statements.texts) == 3
    assert all("session_id =" in text for text in statements.texts)


def test_views_are_ranges_of_an_index_on_sqlite(
    db: SessionDB, raw: RawSql, session: str, backend: str, statements: QueryRecorder
) -> None:
    rows = fill(db, 30)
    statements.clear()
    db.get_anchored_view("s", rows[15])
    db.list_recent_user_messages("s")
    db.get_messages("s", latest=True, limit=5)
    db.get_active_message_watermark("s")
    seen = list(zip(statements.texts, statements.parameters, strict=True))
    assert len(seen) == 6
    if backend == "sqlite":
        for text, parameters in seen:
            plan = " ".join(step[-1] for step in raw(f"EXPLAIN QUERY PLAN {text}", *parameters))
            assert "USING INDEX ix_messages__" in plan or "USING COVERING INDEX ix_messages__" in plan
            assert "SCAN messages" not in plan
            assert "TEMP B-TREE" not in plan


def test_active_rows_are_found_through_their_own_index_on_sqlite(
    db: SessionDB, raw: RawSql, session: str, backend: str, statements: QueryRecorder
) -> None:
    fill(db, 3)
    statements.clear()
    db.get_messages("s")
    db.message_count("s")
    db.get_messages_as_conversation("s")
    assert len(statements.texts) == 3
    if backend == "sqlite":
        for text, parameters in zip(statements.texts, statements.parameters, strict=True):
            plan = " ".join(step[-1] for step in raw(f"EXPLAIN QUERY PLAN {text}", *parameters))
            assert "ix_messages__active" in plan


def test_recent_user_messages_come_newest_first_in_one_line(db: SessionDB, session: str) -> None:
    picture = [{"type": "image_url", "image_url": "data:x"}]
    contents: list[Any] = [
        "  two\n\tlines ",
        "x" * 80,
        "y" * 81,
        picture,
        [*picture, {"type": "text", "text": "see"}],
        42,
    ]
    for content in contents:
        db.append_message("s", "user", content)
        db.append_message("s", "assistant", "no question")
    found = db.list_recent_user_messages("s")
    assert [m["preview"] for m in found] == [
        "42",
        "see",
        "[multimodal content]",
        "y" * 77 + "...",
        "x" * 80,
        "two lines",
    ]
    assert set(found[0]) == {"id", "timestamp", "preview"}
    assert [m["preview"] for m in db.list_recent_user_messages("s", limit=2)] == ["42", "see"]
    assert db.list_recent_user_messages("s", limit=0) == []


def test_previews_of_very_long_texts_are_cut(db: SessionDB, session: str) -> None:
    db.append_message("s", "user", "a" * 100_000)
    db.append_message("s", "user", "b" + " " * 10_000 + "c")
    previews = [m["preview"] for m in db.list_recent_user_messages("s")]
    assert previews == ["b...", "a" * 77 + "..."]


def test_recent_user_messages_leave_inactive_ones_out_unless_asked(
    db: SessionDB, raw: RawSql, session: str
) -> None:
    rows = fill(db, 6)
    rewind(raw, rows[0])
    compact(raw, rows[2])
    assert [m["id"] for m in db.list_recent_user_messages("s")] == [rows[4]]
    assert [m["id"] for m in db.list_recent_user_messages("s", include_inactive=True)] == [
        rows[4],
        rows[2],
        rows[0],
    ]


def test_the_watermark_is_the_newest_active_row_the_latest_row_is_any(
    db: SessionDB, raw: RawSql, session: str
) -> None:
    assert db.get_active_message_watermark("s") == 0
    assert db.latest_message_row_id("s") is None
    rows = fill(db, 3)
    rewind(raw, rows[2])
    assert db.get_active_message_watermark("s") == rows[1]
    assert db.latest_message_row_id("s") == rows[2]


def test_only_rows_that_were_summarised_away_count_as_archived(
    db: SessionDB, raw: RawSql, session: str
) -> None:
    rows = fill(db, 3)
    rewind(raw, rows[1])
    assert db.has_archived_messages("s") is False
    compact(raw, rows[0])
    assert db.has_archived_messages("s") is True


def test_platform_ids_are_found_whatever_the_state_of_their_row(
    db: SessionDB, raw: RawSql, session: str
) -> None:
    db.create_session("other", "cli")
    row = db.append_message("s", "user", "hi", platform_message_id=17)
    rewind(raw, row)
    assert db.has_platform_message_id("s", "17") is True
    assert db.has_platform_message_id("s", 17) is True
    assert db.has_platform_message_id("other", "17") is False
    for odd in ("18", "", None, True, "\0", "\ud800", "x" * 513, 10**600):
        assert db.has_platform_message_id("s", odd) is False


def test_a_conversation_too_large_to_load_is_refused_before_it_is_loaded(
    db: SessionDB, raw: RawSql, session: str, statements: QueryRecorder
) -> None:
    rows = fill(db, 12)
    compact(raw, rows[0])
    statements.clear()
    with pytest.raises(SessionTooLargeError) as caught:
        db.assert_resume_safe("s", limit=10)
    assert (caught.value.session_id, caught.value.message_count, caught.value.limit) == ("s", 11, 10)
    assert not statements.matching("messages.content")
    db.assert_resume_safe("s", limit=11)
    db.assert_resume_safe("s")
    db.assert_resume_safe("s", limit=0)
    with pytest.raises(InvalidArgumentError):
        db.assert_resume_safe("s", limit=-1)


def test_the_size_of_a_conversation_counts_its_ancestors_if_asked(db: SessionDB, session: str) -> None:
    fill(db, 4)
    db.publish_continuation("s", "child", [user("summary")])
    db.assert_resume_safe("child", limit=4)
    with pytest.raises(SessionTooLargeError) as caught:
        db.assert_resume_safe("child", limit=4, include_ancestors=True)
    assert caught.value.message_count == 5


@pytest.mark.parametrize("session_id", ["unknown", "", "\0", "\ud800", "x" * 513])
def test_reads_of_an_unknown_session_give_nothing(db: SessionDB, session_id: str) -> None:
    assert db.get_messages(session_id, latest=True, limit=1) == []
    assert list(db.iter_messages(session_id)) == []
    assert db.get_messages_as_conversation(session_id, include_ancestors=True) == []
    assert db.list_recent_user_messages(session_id) == []
    assert db.latest_message_row_id(session_id) is None
    assert db.get_active_message_watermark(session_id) == 0
    assert db.has_platform_message_id(session_id, "1") is False
    assert db.has_archived_messages(session_id) is False
    assert db.message_count(session_id) == 0
    db.assert_resume_safe(session_id, limit=1)
