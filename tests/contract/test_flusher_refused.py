"""CONTRACT.md section 5, rule 4: one bad value holds up nobody."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from hermes_state import PERSISTED_MARKER, SessionDB, TranscriptFlusher
from tests.support.builders import (
    assert_counters_are_exact,
    assistant,
    call,
    carrier,
    checkpoint,
    contents_of,
    items_of,
    reasoning,
    snapshot,
    user,
)
from tests.support.raw import RawSql
from tests.support.statements import QueryRecorder, failing_commit

NAN = float("nan")
LIMIT = 64 * 1024 * 1024


class Thing:
    def __repr__(self) -> str:
        return "a thing\0"


BAD_KEYS: list[tuple[str, Any, str]] = [
    ("tool_calls", [{"n": NAN}], "[{'n': nan}]"),
    ("tool_calls", "{broken", "{broken"),
    ("display_metadata", {"k": Thing()}, "{'k': a thing\ufffd}"),
    ("codex_reasoning_items", {1: 2}, "{1: 2}"),
    ("codex_message_items", b"caf\xc3\xa9 \xff", "café \ufffd"),
    ("reasoning_details", {7}, "{7}"),
    ("unknown", [float("inf")], "[inf]"),
    ("message_id", "x" * 513, "x" * 513),
    ("platform_message_id", "", ""),
    ("message_uid", 5, "5"),
    ("message_uid", "\0", "\ufffd"),
    ("token_count", "many", "many"),
    ("observed", "yes", "yes"),
    ("api_content", ["x"], "['x']"),
    ("_refused", [{1}], "[{1}]"),
]


@pytest.fixture
def flusher(db: SessionDB, session: str) -> TranscriptFlusher:
    return TranscriptFlusher(db, session)


def stored(db: SessionDB, place: int = -1) -> dict[str, Any]:
    return dict(db.get_messages("s")[place])


@pytest.mark.parametrize(("key", "value", "text"), BAD_KEYS, ids=lambda part: str(part)[:20])
def test_a_bad_value_is_refused_alone_and_kept_as_text(
    db: SessionDB, flusher: TranscriptFlusher, raw: RawSql, key: str, value: Any, text: str
) -> None:
    messages = [user("1"), assistant("2", **{key: value}), user("3")]
    assert flusher.flush(messages)
    assert contents_of(raw) == ["1", "2", "3"]
    (note,) = stored(db, 1)["_refused"]
    assert (note["key"], note["text"]) == (key, text)
    assert note["reason"]
    assert [(r["index"], r["key"], r["text"]) for r in flusher.last_refused] == [(1, key, text)]
    assert flusher.last_error is None
    assert messages[1][key] is value
    assert_counters_are_exact(raw)


@pytest.mark.parametrize(("key", "value", "_text"), BAD_KEYS, ids=lambda part: str(part)[:20])
def test_afterwards_there_is_nothing_left_to_write(
    flusher: TranscriptFlusher, raw: RawSql, statements: QueryRecorder, key: str, value: Any, _text: str
) -> None:
    messages = [user("1"), assistant("2", **{key: value})]
    assert flusher.flush(messages)
    before = snapshot(raw)
    statements.clear()
    assert flusher.flush(messages)
    assert (statements.texts, flusher.last_refused, snapshot(raw)) == ([], [], before)


@pytest.mark.parametrize(("key", "value", "_text"), BAD_KEYS, ids=lambda part: str(part)[:20])
def test_a_lost_answer_does_not_double_a_message_with_a_bad_value(
    db: SessionDB, flusher: TranscriptFlusher, raw: RawSql, key: str, value: Any, _text: str
) -> None:
    messages = [assistant("1", **{key: value})]
    with failing_commit(db.engine, after_it_took_place=True):
        assert not flusher.flush(messages)
    assert flusher.last_refused == []
    assert flusher.flush(messages)
    assert contents_of(raw) == ["1"]
    assert len(flusher.last_refused) == 1


@pytest.mark.parametrize(
    ("content", "kept", "text"),
    [
        ([{"type": "text", "text": "hi"}, {"n": NAN}], "hi", "[{'type': 'text', 'text': 'hi'}, {'n': nan}]"),
        (
            [{"type": "text", "text": "hi\0", "n": {1}}],
            "hi\ufffd",
            "[{'type': 'text', 'text': 'hi\\x00', 'n': {1}}]",
        ),
        (NAN, "nan", "nan"),
        (b"bytes", "bytes", "bytes"),
        ({1}, "{1}", "{1}"),
        (10**5000, "<int without a text form>", "<int without a text form>"),
    ],
    ids=["part", "text part", "nan", "bytes", "set", "huge"],
)
def test_of_a_bad_content_the_words_stay_content(
    db: SessionDB, flusher: TranscriptFlusher, content: Any, kept: str, text: str
) -> None:
    assert flusher.flush([user(content)])
    assert stored(db)["content"] == kept
    assert stored(db)["_refused"][0]["text"] == text


@pytest.mark.parametrize("role", [None, "", "x" * 65, 5])
def test_a_message_without_a_usable_role_is_stored_under_an_unknown_one(
    db: SessionDB, flusher: TranscriptFlusher, role: Any
) -> None:
    assert flusher.flush([{"role": role, "content": "kept"}, {"content": "no role"}])
    assert [(stored(db, i)["role"], stored(db, i)["content"]) for i in (0, 1)] == [
        ("unknown", "kept"), ("unknown", "no role"),
    ]  # fmt: skip
    assert [r["key"] for r in flusher.last_refused] == ["role", "role"]


@pytest.mark.parametrize("time", [1e300, -1, "yesterday", True, NAN])
def test_an_unusable_time_is_the_clocks(db: SessionDB, flusher: TranscriptFlusher, time: Any) -> None:
    messages = [user("1", timestamp=time), user("2")]
    assert flusher.flush(messages)
    assert 1e9 < messages[0]["timestamp"] == stored(db, 0)["timestamp"] < messages[1]["timestamp"]
    assert (flusher.last_refused, "_refused" in stored(db, 0)) == ([], False)


def test_several_bad_keys_of_several_messages_in_one_flush(
    db: SessionDB, flusher: TranscriptFlusher, raw: RawSql, caplog: pytest.LogCaptureFixture
) -> None:
    scaffold = user(_ephemeral=True)
    bad = assistant("2", tool_calls=[NAN], token_count=-1, name={1}, kept="kept", reasoning="why")
    messages = [scaffold, user("1"), bad, {"role": "user", "content": "3", 5: "five", b"k": {1}}, user("4")]
    with caplog.at_level(logging.WARNING):
        assert flusher.flush(messages)
    assert [(r["index"], r["key"]) for r in flusher.last_refused] == [
        (2, "tool_calls"), (2, "token_count"), (2, "name"), (3, "5"), (3, "k"),
    ]  # fmt: skip
    assert contents_of(raw) == ["1", "2", "3", "4"]
    assert [n["key"] for n in stored(db, 1)["_refused"]] == ["tool_calls", "token_count", "name"]
    assert (stored(db, 1)["kept"], stored(db, 1)["reasoning"]) == ("kept", "why")
    assert [(n["key"], n["text"]) for n in stored(db, 2)["_refused"]] == [("5", "five"), ("k", "{1}")]
    assert len(caplog.records) == 1
    assert_counters_are_exact(raw)


@pytest.mark.parametrize("key", ["content", "tool_name"])
def test_a_text_of_100_mb_is_cut_at_the_limit(
    db: SessionDB, flusher: TranscriptFlusher, raw: RawSql, key: str
) -> None:
    huge = "汉" * (100 * 1024 * 1024 // 3)
    assert flusher.flush([user("1"), {"role": "assistant", key: huge}, user("3")])
    found = raw.value(f"SELECT {key} FROM messages WHERE role = 'assistant'")
    assert LIMIT - 3 < len(found.encode()) <= LIMIT
    assert huge.startswith(found)
    assert huge.startswith(stored(db, 1)["_refused"][0]["text"])
    assert len(db.get_messages("s")) == 3


@pytest.mark.parametrize("count", [1, 40])
def test_unknown_keys_that_are_too_long_together_are_all_kept_in_part(
    db: SessionDB, flusher: TranscriptFlusher, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(db, "max_text_bytes", 20_000)
    keys = {f"key{number}": "\x01" * (40_000 // count) for number in range(count)}
    assert flusher.flush([user("1", **keys)])
    notes = stored(db)["_refused"]
    assert [n["key"] for n in notes] == list(keys)
    assert all("\x01" * 10 in n["text"] for n in notes)


def test_many_refused_texts_share_the_limit(
    db: SessionDB, flusher: TranscriptFlusher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(db, "max_text_bytes", 20_000)
    keys = ["tool_name", "api_content", "display_kind", "finish_reason", "reasoning", "tool_call_id"]
    message = assistant("1", kept=1, **dict.fromkeys(keys, "\x01" * 30_000))
    assert flusher.flush([message])
    row = stored(db)
    assert [n["key"] for n in row["_refused"]] == keys
    assert all(len(row[key]) == 20_000 for key in keys)
    assert row["kept"] == 1


def test_refused_values_survive_a_rewrite_of_the_transcript(
    db: SessionDB, flusher: TranscriptFlusher
) -> None:
    assert flusher.flush([user("1", tool_calls=[NAN])])
    before = stored(db)
    db.replace_messages("s", db.get_messages("s"))
    after = stored(db)
    assert after["_refused"] == before["_refused"]
    assert {k: v for k, v in after.items() if k != "id"} == {k: v for k, v in before.items() if k != "id"}


def test_what_an_earlier_row_noted_is_kept_beside_a_new_refusal(
    db: SessionDB, flusher: TranscriptFlusher
) -> None:
    assert flusher.flush([user("1", tool_calls=[NAN])])
    loaded: dict[str, Any] = dict(db.get_messages_as_conversation("s")[0])
    db.clear_messages("s")
    assert flusher.flush([{**loaded, "token_count": -5}])
    assert [n["key"] for n in stored(db)["_refused"]] == ["tool_calls", "token_count"]


def test_a_refused_message_is_updated_after_it_was_mended(
    db: SessionDB, flusher: TranscriptFlusher, raw: RawSql
) -> None:
    message = assistant("1", tool_calls=[NAN])
    assert flusher.flush([message])
    message["tool_calls"] = [call()]
    flusher.mark_dirty(message)
    assert flusher.flush([message])
    assert "_refused" not in stored(db)
    assert_counters_are_exact(raw)


def test_a_carrier_whose_items_were_refused_shadows_nothing(
    db: SessionDB, flusher: TranscriptFlusher, raw: RawSql
) -> None:
    messages = [carrier("a"), carrier("b", reasoning())]
    messages.append(assistant("bad", codex_reasoning_items=[checkpoint("c"), NAN]))
    assert flusher.flush(messages)
    assert items_of(raw) == [None, [reasoning(), checkpoint("b")], None]
    assert messages[1]["codex_reasoning_items"] == [reasoning(), checkpoint("b")]
    assert "codex_reasoning_items" not in messages[0]


def test_a_whole_batch_of_bad_messages_is_stored_in_order(flusher: TranscriptFlusher, raw: RawSql) -> None:
    messages = [user(str(number), tool_calls="{") for number in range(50)]
    assert flusher.flush(messages)
    assert contents_of(raw) == [str(number) for number in range(50)]
    assert all(m[PERSISTED_MARKER] == "s" and m["tool_calls"] == "{" for m in messages)


def test_a_value_whose_text_form_raises_holds_up_nobody(db: SessionDB, session: str, raw: RawSql) -> None:
    class Hostile:
        def __repr__(self) -> str:
            raise RuntimeError("no text form")

    flusher = TranscriptFlusher(db, session)
    assert flusher.flush(
        [user("good"), {"role": "user", "content": "x", "foo": Hostile(), "token_count": Hostile()}]
    )
    assert contents_of(raw) == ["good", "x"]
    assert {refusal["key"] for refusal in flusher.last_refused} == {"foo", "token_count"}
