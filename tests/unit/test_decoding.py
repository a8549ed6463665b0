"""From rows to message dicts, and comparing rows (CONTRACT.md sections 2, 3.8 and 6)."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from hermes_state.codec import MESSAGE_COLUMNS, PLACE, encode_message
from hermes_state.decoding import CONVERSATION_COLUMNS, READ_COLUMNS, decode_conversation, decode_row
from hermes_state.payloads import decoded, same_payload, tool_call_count
from hermes_state.records import MessageRecord
from tests.support.builders import checkpoint, reasoning

JSON_COLUMNS = [
    "tool_calls",
    "reasoning_details",
    "codex_reasoning_items",
    "codex_message_items",
    "display_metadata",
]
MALFORMED = ["{", "", "NaN", "[Infinity]", b"\xff\xfe", b"{", "[" * 100_000, "1" * 5000, '"abc"', '"["']


def row(**columns: Any) -> list[Any]:
    given = {
        "id": 7,
        "session_id": "s",
        "message_uid": "u",
        "role": "assistant",
        "timestamp": 1.5,
        "active": 1,
        **columns,
    }
    return [given.get(name) for name in READ_COLUMNS]


def record(**columns: Any) -> dict[str, Any]:
    return dict(decode_row(row(**columns)))


def conversation(**columns: Any) -> dict[str, Any]:
    given = dict(zip(READ_COLUMNS, row(**columns), strict=True))
    return dict(decode_conversation([given[name] for name in CONVERSATION_COLUMNS]))


def payload(**keys: Any) -> list[Any]:
    return encode_message({"role": "assistant", **keys}, 0, session_id="s", max_text_bytes=10_000).values


def test_a_record_holds_every_key_and_none_for_what_is_absent() -> None:
    found = record()
    assert found.keys() == set(MessageRecord.__annotations__)
    filled = {"id": 7, "session_id": "s", "message_uid": "u", "role": "assistant", "timestamp": 1.5,
              "observed": False, "active": True, "compacted": False}  # fmt: skip
    assert {key: value for key, value in found.items() if value is not None} == filled
    assert all(type(found[key]) is bool for key in ("observed", "active", "compacted"))


def test_the_conversation_leaves_out_what_is_absent() -> None:
    assert conversation() == {"role": "assistant", "content": None, "timestamp": 1.5}
    bare = conversation(reasoning="", reasoning_content="", observed=0, codex_reasoning_items="null")
    assert bare == {"role": "assistant", "content": None, "timestamp": 1.5, "reasoning_content": ""}


@pytest.mark.parametrize("role", ["user", "tool", "system"])
def test_assistant_only_keys_are_left_out_of_the_conversation_of_others(role: str) -> None:
    columns = dict.fromkeys(["reasoning_details", "codex_reasoning_items", "codex_message_items"], "[1]")
    found = conversation(role=role, reasoning="r", reasoning_content="r", finish_reason="stop", **columns)
    assert found == {"role": role, "content": None, "timestamp": 1.5}


def test_the_conversation_names_the_platform_id_message_id() -> None:
    assert conversation(platform_message_id="p")["message_id"] == "p"
    assert record(platform_message_id="p")["platform_message_id"] == "p"


@pytest.mark.parametrize("decode", [record, conversation])
@pytest.mark.parametrize("column", JSON_COLUMNS)
@pytest.mark.parametrize(
    ("text", "value"), [("[1]", [1]), ('"[1]"', [1]), (b"[1]", [1]), ("0", 0), ("false", False)]
)
def test_json_columns_are_decoded(decode: Any, column: str, text: Any, value: Any) -> None:
    found = decode(**{column: text})[column]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("decode", [record, conversation])
@pytest.mark.parametrize("column", JSON_COLUMNS)
@pytest.mark.parametrize("text", MALFORMED, ids=lambda text: str(text)[:12])
def test_malformed_json_reads_as_absent_and_is_told(
    decode: Any, column: str, text: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert decode(**{column: text, "content": "kept"}).get(column) is None
    assert [(r.name, "row 7" in r.message, column in r.message) for r in caplog.records] == [
        ("hermes_state.decoding", True, True)
    ]


def test_json_null_of_another_program_is_absent_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    assert record(tool_calls="null")["tool_calls"] is None
    assert caplog.records == []


@pytest.mark.parametrize("decode", [record, conversation])
def test_content_parts_stand_before_their_text(decode: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert decode(content="text", content_parts='[{"text":"text"}]')["content"] == [{"text": "text"}]
    assert caplog.records == []
    assert decode(content="text", content_parts="{broken")["content"] == "text"
    assert len(caplog.records) == 1


@pytest.mark.parametrize("decode", [record, conversation])
def test_unknown_keys_are_spread_and_never_hide_a_column(decode: Any) -> None:
    extra = {
        "name": "bob",
        "extra": 1,
        "content_parts": [2],
        "role": "x",
        "id": 9,
        "content": "x",
        "message_id": "x",
    }
    found = decode(content="mine", extra=json.dumps(extra))
    assert (found["name"], found["extra"], found["content_parts"]) == ("bob", 1, [2])
    assert (found["role"], found["content"], found.get("id", 7), "message_id" in found) == (
        "assistant",
        "mine",
        7,
        False,
    )


@pytest.mark.parametrize("decode", [record, conversation])
@pytest.mark.parametrize("extra", ["{", "[1]", "5", "null"])
def test_unknown_keys_that_are_no_object_are_ignored(decode: Any, extra: str) -> None:
    assert decode(content="kept", extra=extra)["content"] == "kept"


def test_bytes_of_another_program_read_as_text() -> None:
    assert record(content=b"caf\xc3\xa9 \xff", role=b"user") == record(content="café \ufffd", role="user")
    assert conversation(content=b"caf\xc3\xa9", api_content=b"x") == conversation(
        content="café", api_content="x"
    )


@pytest.mark.parametrize(
    ("text", "count"), [(None, 0), ("[1,2]", 2), ("{}", 1), ("[]", 0), ("null", 0), ("{", 0), ('"[1]"', 1)]
)
def test_stored_calls_are_counted(text: str | None, count: int) -> None:
    assert tool_call_count(text) == count


@pytest.mark.parametrize("value", [5, 1.5, None, [1]])
def test_what_is_no_text_decodes_to_nothing(value: Any) -> None:
    assert decoded(value) is None


SAME: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"content": "x"}, {"content": "x"}),
    ({"content": "x", "timestamp": 5}, {"content": "x", "timestamp": 6}),
    ({"message_uid": "a"}, {"message_uid": "b"}),
    ({"tool_calls": [{"a": 1, "b": 2}]}, {"tool_calls": [{"b": 2, "a": 1}]}),
    ({"tool_calls": "[1]"}, {"tool_calls": [1]}),
    ({"codex_reasoning_items": [reasoning(), checkpoint()]}, {"codex_reasoning_items": [reasoning()]}),
    ({"codex_reasoning_items": [checkpoint()]}, {}),
    ({"codex_reasoning_items": [checkpoint("a")]}, {"codex_reasoning_items": [checkpoint("b")]}),
    ({"observed": 1}, {"observed": True}),
    ({"message_id": 7}, {"platform_message_id": "7"}),
]  # fmt: skip
DIFFERENT: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"content": "x"}, {"content": "y"}),
    ({"content": "1"}, {"content": 1}),
    ({"content": 1}, {"content": 1.0}),
    ({"content": 1}, {"content": True}),
    ({"content": 0.0}, {"content": -0.0}),
    ({"content": None}, {"content": ""}),
    ({"content": []}, {"content": {}}),
    ({"tool_calls": [1]}, {"tool_calls": [True]}),
    ({"tool_calls": [{"a": 1}]}, {"tool_calls": [{"a": 1.0}]}),
    ({"tool_calls": [1, 2]}, {"tool_calls": [2, 1]}),
    ({"x": None}, {}),
    ({"x": 1}, {"x": 2}),
    ({"observed": True}, {}),
    ({"codex_reasoning_items": [reasoning("a"), checkpoint()]}, {"codex_reasoning_items": [reasoning("b")]}),
    ({"reasoning_details": [checkpoint()]}, {}),
    *(({key: "a"}, {key: "b"}) for key in ("tool_name", "tool_call_id", "reasoning", "api_content", "finish_reason",
                                           "display_kind", "effect_disposition", "platform_message_id", "role")),
    ({"token_count": 1}, {"token_count": 2}),
    ({"display_metadata": {"a": "1"}}, {"display_metadata": {"a": 1}}),
]  # fmt: skip


@pytest.mark.parametrize(("first", "second"), SAME)
def test_the_same_payload_is_recognised(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert same_payload(payload(**first), payload(**second))
    assert same_payload(payload(**second), payload(**first))


@pytest.mark.parametrize(("first", "second"), DIFFERENT)
def test_different_payloads_are_told_apart_strictly_typed(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    assert not same_payload(payload(**first), payload(**second))
    assert not same_payload(payload(**second), payload(**first))


def test_a_row_of_sqlite_equals_the_message_it_was_made_of() -> None:
    stored = payload(content="x", observed=True)
    stored[PLACE["observed"]], stored[PLACE["active"]], stored[PLACE["compacted"]] = 1, 0, 1
    assert same_payload(payload(content="x", observed=True), stored)
    assert len(stored) == len(MESSAGE_COLUMNS)
