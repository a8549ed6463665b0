"""Compaction in place (issue 3, item 1; known-store.md 2.3; field reports F1 and F4, H1)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hermes_state import SessionDB
from hermes_state.errors import (
    CompressionSessionClosedError,
    InvalidArgumentError,
    InvalidMessageError,
    SessionCompressionInProgressError,
    SessionNotFoundError,
    StoreError,
)
from tests.support.builders import (
    assert_counters_are_exact,
    assistant,
    call,
    caller,
    carrier,
    checkpoint,
    items_of,
    snapshot,
    user,
)
from tests.support.raw import RawSql
from tests.support.statements import QueryRecorder, failing_commit, failing_statement

LIVE, COMPACTED, REWOUND = "live", "compacted", "rewound"


@pytest.fixture
def ids(db: SessionDB) -> list[int]:
    """Ten messages of five turns."""
    db.create_session("s", "cli")
    turns = [m for n in range(5) for m in (user(f"q{n}"), assistant(f"a{n}", tool_calls=[call(f"c{n}")]))]
    db.append_messages_batch("s", turns)
    return [turn["_row_id"] for turn in turns]


def story(raw: RawSql, session_id: str = "s") -> list[tuple[str | None, str]]:
    """Text and state of each row in insertion order."""
    found = raw(
        "SELECT content, active, compacted FROM messages WHERE session_id = ? ORDER BY id", session_id
    )
    return [
        (text, LIVE if active else COMPACTED if compacted else REWOUND) for text, active, compacted in found
    ]


def in_state(raw: RawSql, state: str) -> list[str | None]:
    return [text for text, found in story(raw) if found == state]


def test_rows_above_the_watermark_survive_behind_the_summary(
    db: SessionDB, raw: RawSql, ids: list[int]
) -> None:
    before = db.get_messages("s")
    assert db.archive_and_compact("s", [user("summary")], watermark=ids[7]) == 3
    assert story(raw) == [
        *((m["content"], COMPACTED) for m in before[:8]),
        ("q4", REWOUND),
        ("a4", REWOUND),
        ("summary", LIVE),
        ("q4", LIVE),
        ("a4", LIVE),
    ]
    assert_counters_are_exact(raw)


def test_a_late_row_keeps_its_uid_and_everything_else_but_its_id(
    db: SessionDB, raw: RawSql, ids: list[int]
) -> None:
    before = db.get_messages("s")[8:]
    db.archive_and_compact("s", [user("summary")], watermark=ids[7])
    after = db.get_messages("s")[1:]
    assert [{**m, "id": 0} for m in after] == [{**m, "id": 0} for m in before]
    originals = raw("SELECT superseded_by, message_uid FROM messages WHERE id > ? ORDER BY id", ids[7])[:2]
    assert [successor for successor, _ in originals] == [m["id"] for m in after]
    assert {uid for _, uid in originals}.isdisjoint(m["message_uid"] for m in after)


def test_what_was_carried_or_came_late_is_never_restored(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    rows = db.get_messages("s")
    db.archive_and_compact("s", [user("summary"), *rows[6:8]], watermark=ids[7], tail_count=2)
    live = db.get_messages("s")
    assert db.restore_rewound("s", 0) == 0
    assert db.get_messages("s") == live


@pytest.mark.parametrize("watermark", [0, 1])
def test_a_watermark_below_every_row_keeps_all_of_them(
    db: SessionDB, raw: RawSql, ids: list[int], watermark: int
) -> None:
    before = in_state(raw, LIVE)
    assert db.archive_and_compact("s", [user("summary")], watermark=watermark) == (
        11 if watermark == 0 else 10
    )
    assert in_state(raw, LIVE) == ["summary", *before[watermark:]]
    assert_counters_are_exact(raw)


def test_the_highest_id_is_no_watermark_from_the_future(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    assert db.archive_and_compact("s", [user("summary")], watermark=ids[-1]) == 1
    assert in_state(raw, COMPACTED) == [text for text, state in story(raw)[:10]]


def tail_of(db: SessionDB, live: list[Any], shape: str) -> list[Any]:
    """The last four live messages in the form in which an agent may hold them."""
    if shape == "rows":
        return list(db.get_messages("s")[-4:])
    if shape == "conversation":
        return list(db.get_messages_as_conversation("s")[-4:])
    if shape == "bare":
        return [{key: m[key] for key in ("role", "content", "tool_calls") if key in m} for m in live[-4:]]
    return live[-4:] if shape == "stamped" else [dict(m) for m in live[-4:]]


@pytest.mark.parametrize("shape", ["rows", "conversation", "bare", "stamped", "copies of stamped"])
def test_three_compactions_with_a_carried_tail_leave_each_message_once(
    db: SessionDB, raw: RawSql, shape: str
) -> None:
    """Field report F1; whatever the form in which the tail is handed over."""
    db.create_session("s", "cli")
    live = [user(f"m{n}") if n % 2 else assistant(f"m{n}", tool_calls=[call()]) for n in range(10)]
    db.append_messages_batch("s", live)
    for number in range(3):
        live = [user(f"summary {number}"), *tail_of(db, live, shape)]
        assert db.archive_and_compact("s", live, tail_count=4) == 5
        assert_counters_are_exact(raw)
    seen = [text for text, state in story(raw) if state in (LIVE, COMPACTED)]
    assert sorted(seen, key=str) == sorted(
        [*(f"m{n}" for n in range(10)), *(f"summary {n}" for n in range(3))]
    )
    assert in_state(raw, LIVE) == ["summary 2", "m6", "m7", "m8", "m9"]
    assert in_state(raw, REWOUND) == ["m6", "m7", "m8", "m9"] * 3
    ((unsuperseded,),) = raw(
        "SELECT count(*) FROM messages WHERE superseded_by IS NULL AND NOT active AND NOT compacted"
    )
    assert unsuperseded == 0


def test_a_carried_message_keeps_uid_and_time(db: SessionDB, ids: list[int]) -> None:
    before = db.get_messages("s")[-1]
    bare = {"role": "assistant", "content": "a4", "tool_calls": before["tool_calls"]}
    db.archive_and_compact("s", [user("summary"), bare], tail_count=1)
    after = db.get_messages("s")[-1]
    assert (after["message_uid"], after["timestamp"]) == (before["message_uid"], before["timestamp"])


def test_carried_messages_may_stand_anywhere_and_are_known_by_any_name(
    db: SessionDB, raw: RawSql, ids: list[int]
) -> None:
    rows = db.get_messages("s")
    head, by_id, by_uid, by_text = rows[0], rows[5], rows[6], rows[8]
    shown = [
        {"role": "user", "content": "q0"}, user("summary"), {"role": "assistant", "content": "reworded"},
        {"role": "user", "content": "q3"}, {"role": "user", "content": "q4"},
    ]  # fmt: skip
    shown[2] |= {"_row_id": by_id["id"]}
    shown[3] |= {"message_uid": by_uid["message_uid"]}
    carried = [
        {"role": "user", "content": "q0", "_row_id": head["id"]},
        {"role": "assistant", "content": "a2", "_row_id": by_id["id"]},
        {"role": "user", "content": "q3", "_message_uid": by_uid["message_uid"]},
        {"role": by_text["role"], "content": by_text["content"]},
    ]
    assert db.archive_and_compact("s", shown, carried_messages=carried) == 5
    assert in_state(raw, REWOUND) == ["q0", "a2", "q3", "q4"]
    assert in_state(raw, COMPACTED) == ["a0", "q1", "a1", "q2", "a3", "a4"]
    assert_counters_are_exact(raw)


def test_a_carried_message_that_is_not_among_the_live_ones_counts_as_summarised(
    db: SessionDB, raw: RawSql, ids: list[int]
) -> None:
    db.archive_and_compact("s", [user("summary")], carried_messages=[user("q4"), user("never said")])
    assert in_state(raw, REWOUND) == []
    assert len(in_state(raw, COMPACTED)) == 10


def test_equal_texts_are_told_apart_by_order(db: SessionDB, raw: RawSql) -> None:
    db.create_session("s", "cli")
    db.append_messages_batch("s", [user("yes"), assistant("ok"), user("yes"), assistant("ok")])
    tail = [user("yes"), assistant("ok")]
    db.archive_and_compact("s", [user("summary"), *tail], tail_count=2)
    assert story(raw)[:4] == [("yes", COMPACTED), ("ok", COMPACTED), ("yes", REWOUND), ("ok", REWOUND)]


def test_a_late_row_in_the_compacted_set_is_not_copied_a_second_time(
    db: SessionDB, raw: RawSql, ids: list[int]
) -> None:
    rows = db.get_messages("s")
    assert db.archive_and_compact("s", [user("summary"), *rows[7:9]], watermark=ids[7], tail_count=1) == 4
    assert in_state(raw, LIVE) == ["summary", "a3", "q4", "a4"]
    assert in_state(raw, REWOUND) == ["q4", "a4"]


def test_nothing_is_live_after_compacting_to_nothing(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    assert db.archive_and_compact("s", []) == 0
    assert len(in_state(raw, COMPACTED)) == 10
    assert_counters_are_exact(raw)
    assert db.archive_and_compact("s", []) == 0


@pytest.mark.parametrize("took_place", [True, False])
@pytest.mark.parametrize("with_watermark", [True, False])
def test_a_compaction_repeated_after_a_lost_commit_takes_place_once(
    db: SessionDB, raw: RawSql, ids: list[int], took_place: bool, with_watermark: bool
) -> None:
    compacted = [user("summary"), *db.get_messages_as_conversation("s")[6:8]]
    watermark = ids[7] if with_watermark else None

    def compact() -> int:
        return db.archive_and_compact("s", compacted, watermark=watermark, tail_count=2)

    with failing_commit(db.engine, after_it_took_place=took_place), pytest.raises(StoreError):
        compact()
    live = 5 if with_watermark else 3
    after_loss = snapshot(raw)
    assert compact() == live
    assert (snapshot(raw) == after_loss) == took_place
    assert in_state(raw, LIVE) == ["summary", "q3", "a3", "q4", "a4"][:live]
    assert in_state(raw, REWOUND) == ["q3", "a3", "q4", "a4"][: live - 1]
    assert_counters_are_exact(raw)


def test_a_repetition_leaves_what_was_appended_meanwhile(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    compacted = [user("summary")]
    with failing_commit(db.engine, after_it_took_place=True), pytest.raises(StoreError):
        db.archive_and_compact("s", compacted)
    db.append_message("s", "user", "next")
    assert db.archive_and_compact("s", compacted) == 2
    assert in_state(raw, LIVE) == ["summary", "next"]


def test_cutting_a_transcript_to_its_first_rows_is_no_repetition(
    db: SessionDB, raw: RawSql, ids: list[int]
) -> None:
    rows = db.get_messages("s")
    assert db.archive_and_compact("s", rows[:2], tail_count=2) == 2
    assert in_state(raw, LIVE) == ["q0", "a0"]
    assert len(in_state(raw, COMPACTED)) == 8
    assert_counters_are_exact(raw)


def test_carriers_of_the_late_tail_and_of_the_summary_are_stripped(db: SessionDB, raw: RawSql) -> None:
    db.create_session("s", "cli")
    turns = [user(), carrier("a"), user(), carrier("b")]
    db.append_messages_batch("s", turns)
    db.archive_and_compact("s", [user("summary"), carrier("c")], watermark=turns[1]["_row_id"])
    assert items_of(raw) == [None, None, None, [checkpoint("b")], None, None, None, [checkpoint("b")]]


def test_the_patch_is_merged_into_the_settings(db: SessionDB, raw: RawSql) -> None:
    db.create_session("s", "cli", model_config={"kept": 1, "changed": {"a": 1}, "gone": 2})
    patch = {"changed": {"b": [None, "\u0000"]}, "gone": None, "new": True, "never there": None}
    db.archive_and_compact("s", [user("summary")], model_config_patch=patch)
    stored = json.loads(raw.value("SELECT model_config FROM sessions"))
    assert stored == {"kept": 1, "changed": {"b": [None, "\N{REPLACEMENT CHARACTER}"]}, "new": True}


@pytest.mark.parametrize("stored", ["{broken", "[1]", "7", "", None])
def test_settings_that_are_no_object_count_as_empty(db: SessionDB, raw: RawSql, stored: str | None) -> None:
    db.create_session("s", "cli")
    raw("UPDATE sessions SET model_config = ?", stored)
    db.archive_and_compact("s", [user("summary")], model_config_patch={"a": 1})
    assert json.loads(raw.value("SELECT model_config FROM sessions")) == {"a": 1}


def test_without_a_patch_the_settings_stay_to_the_letter(db: SessionDB, raw: RawSql) -> None:
    db.create_session("s", "cli")
    raw("UPDATE sessions SET model_config = '{ \"a\":1 }'")
    db.archive_and_compact("s", [user("summary")])
    assert raw.value("SELECT model_config FROM sessions") == '{ "a":1 }'


def test_the_lock_must_be_held(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    assert db.try_acquire_compression_lock("s", "other")
    before = snapshot(raw)
    with pytest.raises(SessionCompressionInProgressError) as caught:
        db.archive_and_compact("s", [user("summary")], lock_holder="me")
    assert (caught.value.session_id, caught.value.holder) == ("s", "other")
    assert snapshot(raw) == before
    db.release_compression_lock("s", "other")
    with pytest.raises(SessionCompressionInProgressError):
        db.archive_and_compact("s", [user("summary")], lock_holder="me")
    assert db.try_acquire_compression_lock("s", "me")
    assert db.archive_and_compact("s", [user("summary")], lock_holder="me") == 1


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("watermark", -1), ("watermark", True), ("watermark", "1"), ("watermark", 2**63), ("watermark", 2**62),
        ("tail_count", -1), ("tail_count", 2), ("tail_count", True), ("tail_count", 0.5),
        ("model_config_patch", {"a": float("nan")}), ("model_config_patch", {1: 2}), ("model_config_patch", {"a": {1}}),
        ("model_config_patch", 7), ("lock_holder", ""),
    ],
)  # fmt: skip
def test_an_unusable_argument_changes_nothing(
    db: SessionDB, raw: RawSql, ids: list[int], argument: str, value: Any
) -> None:
    before = snapshot(raw)
    with pytest.raises(InvalidArgumentError):
        db.archive_and_compact("s", [user("summary")], **{argument: value})
    assert snapshot(raw) == before


def test_a_watermark_of_another_session_is_one_from_the_future(
    db: SessionDB, raw: RawSql, ids: list[int]
) -> None:
    db.create_session("other", "cli")
    foreign = db.append_message("other", "user", "hello")
    before = snapshot(raw)
    with pytest.raises(InvalidArgumentError, match="watermark"):
        db.archive_and_compact("s", [user("summary")], watermark=foreign)
    assert snapshot(raw) == before


def test_refused_messages_and_sessions_change_nothing(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    before = snapshot(raw)
    with pytest.raises(InvalidMessageError):
        db.archive_and_compact("s", [user("summary"), {"content": "no role"}])
    with pytest.raises(InvalidMessageError):
        db.archive_and_compact("s", [user("summary")], carried_messages=[7])
    with pytest.raises(SessionNotFoundError):
        db.archive_and_compact("nobody", [user("summary")])
    assert snapshot(raw) == before
    db.end_session("s", "compression")
    before = snapshot(raw)
    with pytest.raises(CompressionSessionClosedError):
        db.archive_and_compact("s", [user("summary")])
    assert snapshot(raw) == before


def test_a_failure_at_any_statement_changes_nothing(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    assert db.try_acquire_compression_lock("s", "me", ttl_seconds=1_000)
    tail = db.get_messages_as_conversation("s")[6:8]
    before = snapshot(raw)
    for number in range(40):
        compacted = [carrier("summary"), *map(dict, tail)]
        try:
            with failing_statement(db.engine, number):
                db.archive_and_compact(
                    "s",
                    compacted,
                    watermark=ids[7],
                    lock_holder="me",
                    tail_count=2,
                    model_config_patch={"a": 1},
                )
        except StoreError:
            assert snapshot(raw) == before
            assert "_row_id" not in compacted[0]
        else:
            break
    assert 10 <= number < 40
    assert in_state(raw, LIVE) == ["answer summary", "q3", "a3", "q4", "a4"]
    assert_counters_are_exact(raw)


def test_the_dicts_learn_their_rows(db: SessionDB, ids: list[int]) -> None:
    tail = [{**m, "_row_id": m["id"]} for m in db.get_messages("s")[-2:]]
    summary = user("summary")
    db.archive_and_compact("s", [summary, *tail], tail_count=2)
    assert [m["_row_id"] for m in (summary, *tail)] == [m["id"] for m in db.get_messages("s")]


def test_the_statements_do_not_depend_on_the_number_of_rows(
    db: SessionDB, ids: list[int], statements: QueryRecorder
) -> None:
    counts = set()
    for rounds in (2, 200):
        db.append_messages_batch("s", [caller("x") for _ in range(rounds)])
        rows = db.get_messages("s")
        statements.clear()
        db.archive_and_compact(
            "s", [user("summary"), *rows[1:-2]], watermark=rows[-3]["id"], tail_count=len(rows) - 3
        )
        counts.add(len(statements.texts))
    assert len(counts) == 1
    assert all("session_id" in text or "sessions.id" in text for text in statements.texts)
    assert all("content" not in text for text in statements.matching("update messages set active"))


def test_rows_of_other_sessions_stay_as_they_are(db: SessionDB, raw: RawSql, ids: list[int]) -> None:
    db.create_session("other", "cli")
    db.append_messages_batch("other", [user("o0"), carrier("o1")])
    before = raw("SELECT * FROM messages WHERE session_id = 'other' ORDER BY id")
    db.archive_and_compact("s", [user("summary")], watermark=ids[3])
    assert raw("SELECT * FROM messages WHERE session_id = 'other' ORDER BY id") == before
    assert_counters_are_exact(raw, "other")
