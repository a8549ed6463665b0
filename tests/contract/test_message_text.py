"""CONTRACT.md section 2, rules 1 and 6: text, ids and their limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hermes_state import InvalidMessageError, SessionDB
from tests.support.builders import REPLACEMENT, SURROGATE, assistant, contents_of, snapshot, user
from tests.support.raw import RawSql

OpenDb = Callable[..., SessionDB]

TEXTS = [
    "",
    " ",
    "plain",
    "line\nline\r\n\ttab",
    "汉字 ümläut 🙂 \u202e\ufeff",
    "\x01\x1f\x7f\x85\uffff",
    "\\u0000 \\ud800 typed by somebody",
    '{"looks": "like json"}',
    "json:[1,2]",
    "100% _ ' \" ; -- ? :name %s %(x)s $1",
]
TEXT_KEYS = [
    *("content", "tool_call_id", "tool_name", "finish_reason", "reasoning", "reasoning_content"),
    *("effect_disposition", "api_content", "display_kind"),
]


@pytest.mark.parametrize("text", TEXTS)
def test_text_is_stored_as_given(db: SessionDB, session: str, raw: RawSql, text: str) -> None:
    db.append_message(session, "user", text)
    assert contents_of(raw) == [text]
    assert db.get_messages(session)[0]["content"] == text
    assert db.get_messages_as_conversation(session)[0]["content"] == text


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("ab\0cd", f"ab{REPLACEMENT}cd"),
        (f"hi {SURROGATE}", f"hi {REPLACEMENT}"),
        ("\udc00\ud800", REPLACEMENT * 2),
        ("\0", REPLACEMENT),
    ],
)
def test_nul_and_lone_surrogates_become_the_replacement_character_in_every_text_column(
    db: SessionDB, session: str, raw: RawSql, given: str, stored: str
) -> None:
    db.append_messages_batch(session, [{"role": "assistant", **dict.fromkeys(TEXT_KEYS, given)}])
    assert raw(f"SELECT {', '.join(TEXT_KEYS)} FROM messages") == [(stored,) * len(TEXT_KEYS)]
    row: dict[str, Any] = dict(db.get_messages(session)[0])
    assert {row[key] for key in TEXT_KEYS} == {stored}


def test_a_nul_in_the_role_becomes_the_replacement_character(
    db: SessionDB, session: str, raw: RawSql
) -> None:
    db.append_message(session, "us\0er", "x")
    assert raw.value("SELECT role FROM messages") == f"us{REPLACEMENT}er"


def test_one_bad_text_harms_neither_its_batch_nor_the_next_append(
    db: SessionDB, session: str, raw: RawSql
) -> None:
    assert db.append_messages_batch(session, [user("one"), user("ab\0cd"), user(SURROGATE)]) == 3
    db.append_message(session, "user", "next")
    assert contents_of(raw) == ["one", f"ab{REPLACEMENT}cd", REPLACEMENT, "next"]


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("content", [{"type": "text", "text": "a\0b"}], [{"type": "text", "text": f"a{REPLACEMENT}b"}]),
        ("tool_calls", [{"k\0ey": ["a", {"b": "\0"}]}], [{f"k{REPLACEMENT}ey": ["a", {"b": REPLACEMENT}]}]),
        ("display_metadata", {SURROGATE: [SURROGATE]}, {REPLACEMENT: [REPLACEMENT]}),
        ("unknown", {"deep": [[{"x": "\0"}]]}, {"deep": [[{"x": REPLACEMENT}]]}),
    ],
)
def test_json_is_cleaned_at_any_depth(
    db: SessionDB, session: str, key: str, value: Any, expected: Any
) -> None:
    db.append_messages_batch(session, [{"role": "assistant", key: value}])
    assert db.get_messages(session)[0][key] == expected  # type: ignore[literal-required]


def test_keys_that_become_equal_are_told_apart_and_none_is_lost(db: SessionDB, session: str) -> None:
    given = {"a\0": 1, f"a{SURROGATE}": 2, f"a{REPLACEMENT}": 3}
    db.append_messages_batch(session, [user(display_metadata=given)])
    stored = db.get_messages(session)[0]["display_metadata"]
    assert stored == {f"a{REPLACEMENT}": 1, f"a{REPLACEMENT * 2}": 2, f"a{REPLACEMENT * 3}": 3}


def test_unknown_keys_that_become_equal_are_told_apart(db: SessionDB, session: str) -> None:
    db.append_messages_batch(session, [{"role": "user", "x\0": 1, f"x{SURROGATE}": 2}])
    row: dict[str, Any] = dict(db.get_messages(session)[0])
    assert (row[f"x{REPLACEMENT}"], row[f"x{REPLACEMENT * 2}"]) == (1, 2)


@pytest.mark.parametrize(
    "text",
    ["a\\u0000b", '"\\u0000"', "\\ud83d", "\\\\u0000"],
)
def test_typed_escapes_are_not_taken_for_the_characters_they_name(
    db: SessionDB, session: str, text: str
) -> None:
    db.append_messages_batch(
        session, [assistant([{"type": "text", "text": text}], tool_calls=[{"a": text}], x=text)]
    )
    row: dict[str, Any] = dict(db.get_messages(session)[0])
    assert row["content"] == [{"type": "text", "text": text}]
    assert row["tool_calls"] == [{"a": text}]
    assert row["x"] == text


@pytest.mark.parametrize("key", ["reasoning_details", "codex_reasoning_items", "codex_message_items"])
def test_replay_payloads_are_opaque(db: SessionDB, session: str, key: str) -> None:
    payload = [{"z": "a\0b", "a": SURROGATE, "n": [1e100, -0.0, 2**70, 0.1]}, "\0", None, True]
    db.append_messages_batch(session, [{"role": "assistant", key: payload}])
    stored = db.get_messages(session)[0][key]  # type: ignore[literal-required]
    assert repr(stored) == repr(payload)


def test_non_ascii_text_in_json_is_stored_unescaped(db: SessionDB, session: str, raw: RawSql) -> None:
    db.append_messages_batch(session, [assistant(tool_calls=[{"name": "搜索"}])])
    assert "搜索" in raw.value("SELECT tool_calls FROM messages")


def test_texts_of_megabytes_come_back(db: SessionDB, session: str) -> None:
    text = "0123456789abcdef" * (20 * 65536)
    db.append_message(session, "tool", text)
    assert db.get_messages(session)[0]["content"] == text


def test_a_text_above_64_mib_is_refused_before_any_sql(db: SessionDB, session: str, raw: RawSql) -> None:
    before = snapshot(raw)
    with pytest.raises(InvalidMessageError) as refused:
        db.append_messages_batch(session, [user("ok"), user("x" * (64 * 1024 * 1024 + 1))])
    assert (refused.value.index, refused.value.field) == (1, "content")
    assert snapshot(raw) == before
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    "key", ["content", "tool_calls", "codex_reasoning_items", "extra_key", "api_content"]
)
def test_the_limit_can_be_set_and_counts_for_every_kind_of_column(
    open_db: OpenDb, session: str, raw: RawSql, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("HERMES_STATE_MAX_TEXT_BYTES", "2048")
    limited = open_db()
    value: Any = ["é" * 1_000] if key != "api_content" else "é" * 1_000
    limited.append_messages_batch(session, [assistant(**{key: value})])
    with pytest.raises(InvalidMessageError):
        limited.append_messages_batch(session, [assistant(**{key: value * 2})])
    assert raw("SELECT count(*) FROM messages") == [(1,)]


@pytest.mark.parametrize("key", ["message_uid", "platform_message_id", "message_id"])
@pytest.mark.parametrize("value", ["", "x" * 513, "a\0b", SURROGATE, ["x"], 1.5])
def test_unusable_ids_are_refused(db: SessionDB, session: str, raw: RawSql, key: str, value: Any) -> None:
    with pytest.raises(InvalidMessageError) as refused:
        db.append_messages_batch(session, [user(), user(**{key: value})])
    assert (refused.value.index, refused.value.field) == (1, key)
    assert raw("SELECT 1 FROM messages") == []


@pytest.mark.parametrize("key", ["message_uid", "platform_message_id"])
@pytest.mark.parametrize("value", ["x", "x" * 512, "汉" * 512])
def test_ids_of_1_to_512_characters_are_kept(
    db: SessionDB, session: str, raw: RawSql, key: str, value: str
) -> None:
    db.append_messages_batch(session, [user(**{key: value})])
    assert raw.value(f"SELECT {key} FROM messages") == value


@pytest.mark.parametrize("bad_id", ["", "x" * 513, "a\0b", SURROGATE])
def test_an_unusable_session_id_is_refused(db: SessionDB, raw: RawSql, bad_id: str) -> None:
    with pytest.raises(ValueError, match="session_id"):
        db.create_session(bad_id, "cli")
    assert raw("SELECT id FROM sessions") == []


@pytest.mark.parametrize("column", ["message_uid", "platform_message_id"])
def test_the_schema_itself_checks_the_length_of_ids(
    db: SessionDB, session: str, raw: RawSql, column: str
) -> None:
    statement = f"INSERT INTO messages (session_id, role, {column}) VALUES (?, 'user', ?)"
    for value in ("", "x" * 513):
        with pytest.raises(Exception, match=f"{column}_length"):
            raw(statement, session, value)
    raw(statement, session, "x" * 512)
