"""From message dicts to rows (CONTRACT.md section 2)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hermes_state import InvalidMessageError, NewMessage
from hermes_state.codec import MESSAGE_COLUMNS, PLACE, encode_batch, readable_text
from hermes_state.decoding import CONVERSATION_COLUMNS, READ_COLUMNS
from hermes_state.models import MessageRow
from tests.support.builders import call, checkpoint, reasoning
from tests.support.encoding import LIMIT, NOW, batch, column, encode, refusal

TEXT_KEYS = ["content", "tool_call_id", "tool_name", "finish_reason", "reasoning", "reasoning_content",
             "effect_disposition", "api_content", "display_kind"]  # fmt: skip
REPLAY_KEYS = ["reasoning_details", "codex_reasoning_items", "codex_message_items"]
JSON_KEYS = ["tool_calls", "display_metadata", *REPLAY_KEYS]
ASSISTANT_ONLY = {"reasoning": "why", "reasoning_content": "", **dict.fromkeys(REPLAY_KEYS, (1,))}


def test_the_columns_are_those_of_the_table() -> None:
    # superseded_by says what became of a row; it is no part of the message.
    table = {column.name for column in MessageRow.__table__.columns} - {"superseded_by"}
    assert {"id", *MESSAGE_COLUMNS} == set(READ_COLUMNS) == table
    assert table - set(CONVERSATION_COLUMNS) == {"session_id", "message_uid", "active", "compacted"}
    assert len(set(CONVERSATION_COLUMNS)) == len(CONVERSATION_COLUMNS)


def test_a_bare_message_fills_only_what_must_be_there() -> None:
    row = dict(zip(MESSAGE_COLUMNS, encode({"role": "user"}).values, strict=True))
    filled = {"session_id": "s", "role": "user", "observed": False, "active": True, "compacted": False}
    assert {name: value for name, value in row.items() if value is not None} == filled


@pytest.mark.parametrize("key", TEXT_KEYS)
@pytest.mark.parametrize(
    ("given", "stored"), [("", ""), ("a\0\ud800", "a\ufffd\ufffd"), ("\\u0000", "\\u0000"), (None, None)]
)
def test_text_columns_hold_clean_text(key: str, given: Any, stored: Any) -> None:
    assert column(key, **{key: given}) == stored


@pytest.mark.parametrize("key", TEXT_KEYS[1:])
@pytest.mark.parametrize("value", [5, ["x"], b"x", False, {"a": 1}])
def test_text_columns_refuse_anything_else(key: str, value: Any) -> None:
    assert refusal(**{key: value}).field == key


@pytest.mark.parametrize("key", ["content", "api_content", "reasoning"])
@pytest.mark.parametrize("character", ["a", "é", "汉", "🙂", "\0"])
def test_limits_are_counted_in_bytes_of_the_stored_text(key: str, character: str) -> None:
    size = len(character.replace("\0", "\ufffd").encode())
    fits = character * (LIMIT // size)
    assert column(key, **{key: fits}) == fits.replace("\0", "\ufffd")
    assert refusal(**{key: fits + character * size}).field == key


@pytest.mark.parametrize("key", [*JSON_KEYS, "content"])
def test_json_is_limited_too(key: str) -> None:
    fits = ["汉" * 332]  # 996 bytes and four for brackets and quotes
    assert column("content_parts" if key == "content" else key, **{key: fits}) is not None
    assert "longer than 1000 bytes" in refusal(**{key: ["汉" * 333]}).reason


def test_unknown_keys_are_limited_together() -> None:
    assert refusal(one="x" * 600, two="y" * 600).field is None


@pytest.mark.parametrize("key", JSON_KEYS)
@pytest.mark.parametrize("value", [None, "", [], {}, (), "null", "[]", "{}", '""', '"[]"'])
def test_empty_json_is_null(key: str, value: Any) -> None:
    assert column(key, **{key: value}) is None


@pytest.mark.parametrize("key", JSON_KEYS)
@pytest.mark.parametrize(
    ("given", "text"),
    [(0, "0"), (False, "false"), ("0", "0"), ([1], "[1]"), ("[1]", "[1]"), ('"[1]"', "[1]"), ((1, (2,)), "[1,[2]]"),
     ('{"a":1,"a":2}', '{"a":2}'), ({"z": 1, "a": 2}, '{"z":1,"a":2}'), ([{}, [], None, ""], '[{},[],null,""]')],
)  # fmt: skip
def test_json_is_encoded_once(key: str, given: Any, text: str) -> None:
    assert column(key, **{key: given}) == text


@pytest.mark.parametrize("key", [*JSON_KEYS, "content", "unknown", "_refused"])
@pytest.mark.parametrize(
    "value", [[float("nan")], [float("inf")], [10**4300], {1: 2}, [b"x"], [{1}], [object()]]
)
def test_unfit_json_is_refused_and_named(key: str, value: Any) -> None:
    assert refusal(**{key: value}).field == key


@pytest.mark.parametrize("key", JSON_KEYS)
@pytest.mark.parametrize("text", ["{", "NaN", "[1e999]", '"text"', " "])
def test_json_text_that_yields_no_value_is_refused(key: str, text: str) -> None:
    assert refusal(**{key: text}).field == key


@pytest.mark.parametrize("key", REPLAY_KEYS)
def test_replay_payloads_are_exact(key: str) -> None:
    payload = [{"z": -0.0, "a": 2**70, "t": "\0\ud800", "f": [0.1, 1e300]}]
    assert repr(json.loads(column(key, **{key: payload}))) == repr(payload)


@pytest.mark.parametrize("key", ["tool_calls", "display_metadata", "content", "unknown"])
def test_other_json_is_cleaned(key: str) -> None:
    name = {"content": "content_parts", "unknown": "extra"}.get(key, key)
    assert "\\u" not in column(name, **{key: [{"k\0": "\ud800"}]})


@pytest.mark.parametrize("role", ["user", "tool", "system", "Assistant", " assistant"])
@pytest.mark.parametrize("key", ASSISTANT_ONLY)
def test_assistant_only_keys_are_dropped_on_other_roles_unchecked(role: str, key: str) -> None:
    assert column(key, role="assistant", **{key: ASSISTANT_ONLY[key]}) is not None
    assert column(key, role=role, **{key: ASSISTANT_ONLY[key]}) is None
    assert column(key, role=role, **{key: object()}) is None
    assert column("extra", role=role, **{key: ASSISTANT_ONLY[key]}) is None


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "one\ntwo"),
        ([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}], None),
        ([{"type": "image", "source": {"type": "base64", "data": "AAAA"}}, "word"], "word"),
        ([{"type": "tool_result", "content": [{"type": "text", "text": "deep"}]}], "deep"),
        ({"type": "tool_result", "content": "plain"}, "plain"),
        ({"text": "t", "content": "c"}, "t"),
        ([[], {}, None, True], None),
        ([], None),
        (7, "7"),
        (-0.0, "-0.0"),
        (False, "false"),
        (2**70, str(2**70)),
    ],
)
def test_content_parts_are_kept_beside_their_readable_text(parts: Any, text: str | None) -> None:
    assert repr(json.loads(column("content_parts", content=parts))) == repr(parts)
    assert column("content", content=parts) == text
    assert readable_text(parts) == text


@pytest.mark.parametrize("content", ["", "text", '[{"type": "text"}]', None])
def test_text_and_nothing_use_no_parts(content: Any) -> None:
    assert (column("content", content=content), column("content_parts", content=content)) == (content, None)


def test_unknown_keys_stand_in_one_column_private_and_read_only_ones_nowhere() -> None:
    keys = {"name": "bob", "extra": {}, "content_parts": [1], "_mine": object(), "id": 9, "active": False}
    assert json.loads(column("extra", **keys, compacted=True)) == {
        "name": "bob",
        "extra": {},
        "content_parts": [1],
    }
    assert (
        column("active", **keys),
        column("compacted", compacted=True),
        column("session_id", session_id="t"),
    ) == (True, False, "s")


def test_refused_values_are_the_one_private_key_that_is_stored() -> None:
    assert json.loads(column("extra", _refused=[{"key": "k"}])) == {"_refused": [{"key": "k"}]}


@pytest.mark.parametrize("key", [5, None, b"x", ("a",), pytest.param(10**5000, id="huge")])
def test_a_key_that_is_no_text_is_refused(key: Any) -> None:
    with pytest.raises(InvalidMessageError, match="not text") as refused:
        encode({"role": "user", key: 1})
    assert refused.value.field is None


def test_unknown_keys_that_become_equal_are_kept_apart() -> None:
    assert json.loads(column("extra", **{"x\0": 1, "x\ud800": 2})) == {"x\ufffd": 1, "x\ufffd\ufffd": 2}


@pytest.mark.parametrize("role", [None, "", "x" * 65, 5, ["user"], b"user"])
def test_a_role_is_text_of_1_to_64_characters(role: Any) -> None:
    with pytest.raises(InvalidMessageError, match="role") as refused:
        encode({"role": role})
    assert refused.value.field == "role"


@pytest.mark.parametrize(
    ("row_id", "expected"),
    [(5, 5), (0, None), (-1, None), (True, None), ("5", None), (2**63, None), (None, None)],
)
def test_the_row_id_of_a_dict_is_a_positive_whole_number(row_id: Any, expected: int | None) -> None:
    assert encode({"role": "user", "_row_id": row_id}).row_id == expected


@pytest.mark.parametrize(
    ("calls", "count"), [(None, 0), ([], 0), ([call(), call()], 2), ({"a": 1}, 1), (0, 1), ("[1, 2, 3]", 3)]
)
def test_calls_are_counted(calls: Any, count: int) -> None:
    assert encode({"role": "assistant", "tool_calls": calls}).tool_call_count == count


@pytest.mark.parametrize(
    ("role", "items", "expected"),
    [("assistant", [checkpoint()], True), ("assistant", json.dumps([checkpoint()]), True), ("assistant", (checkpoint(),), True),
     ("user", [checkpoint()], False), ("assistant", [reasoning()], False), ("assistant", checkpoint(), False)],
)  # fmt: skip
def test_carriers_are_recognised(role: str, items: Any, expected: bool) -> None:
    assert encode({"role": role, "codex_reasoning_items": items}).is_carrier is expected


def test_a_carrier_can_do_without_its_checkpoints() -> None:
    both = encode({"role": "assistant", "codex_reasoning_items": [reasoning(), checkpoint()]})
    only = encode({"role": "assistant", "codex_reasoning_items": [checkpoint()]})
    assert json.loads(both.without_checkpoints().values[PLACE["codex_reasoning_items"]]) == [reasoning()]
    assert only.without_checkpoints().values[PLACE["codex_reasoning_items"]] is None
    assert both.is_carrier
    assert not both.without_checkpoints().is_carrier


@pytest.mark.parametrize(
    "messages", ["text", b"x", bytearray(b"x"), {"role": "user"}, None, 5, {1}, iter([{"role": "user"}])]
)
def test_what_is_no_list_is_a_programming_error(messages: Any) -> None:
    with pytest.raises(TypeError, match="list"):
        encode_batch(messages, session_id="s", max_text_bytes=LIMIT, clock=lambda: NOW)


@pytest.mark.parametrize("message", [None, "text", 5, ["role"], b"x", object()])
def test_an_entry_that_is_no_dict_is_refused(message: Any) -> None:
    with pytest.raises(InvalidMessageError, match="not a dict") as refused:
        batch({"role": "user"}, message)
    assert (refused.value.index, refused.value.field) == (1, None)


def test_checked_messages_are_stored_as_their_dicts() -> None:
    made = encode(NewMessage(role="user", content="hi", platform_message_id="p", name="bob")).values  # type: ignore[call-arg]
    assert made == encode({"role": "user", "content": "hi", "platform_message_id": "p", "name": "bob"}).values


@pytest.mark.parametrize(
    ("keys", "states"),
    [
        ({}, (True, False)),
        ({"active": 0, "compacted": 1}, (False, True)),
        ({"active": False}, (False, False)),
    ],
)
def test_imports_keep_the_state(keys: dict[str, Any], states: tuple[bool, bool]) -> None:
    values = encode({"role": "user", **keys}, stored_states=True).values
    assert (values[PLACE["active"]], values[PLACE["compacted"]]) == states


@pytest.mark.parametrize(
    "keys", [{"active": True, "compacted": True}, {"active": 2}, {"active": False, "compacted": "yes"}]
)
def test_impossible_states_are_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessageError):
        encode({"role": "user", **keys}, stored_states=True)
