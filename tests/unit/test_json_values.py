"""JSON as the store keeps it (CONTRACT.md section 2, rule 3)."""

from __future__ import annotations

import enum
import json
import types
from typing import Any

import pytest

from hermes_state.json_values import UnfitValueError, checked, dump_json, load_json, parsed

NAN, INFINITY = float("nan"), float("inf")
LARGEST = 10**4300 - 1


class Colour(str, enum.Enum):  # noqa: UP042 - a subclass of str as callers have them
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def nested_dict(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"k": value}
    return value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[1]", [1]),
        (" {} ", {}),
        ("null", None),
        ("0", 0),
        ('"[1, 2]"', [1, 2]),
        ('{"a": 1, "a": 2}', {"a": 2}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('""', ""),
    ],
)
def test_text_is_parsed_and_parsed_once_more_when_it_holds_text(text: str, value: Any) -> None:
    assert parsed(text) == value


@pytest.mark.parametrize(
    "text", ["{", "abc", " ", "NaN", "[Infinity]", "-Infinity", '"abc"', json.dumps(json.dumps('"x"')), "1" * 4301,
             "[" * 100_000]
)  # fmt: skip
def test_text_that_yields_no_value_is_refused(text: str) -> None:
    with pytest.raises(UnfitValueError):
        parsed(text)


@pytest.mark.parametrize("value", [None, "", [], {}, 0, False, [1], {"a": "[1]"}])
def test_what_is_no_text_is_not_parsed(value: Any) -> None:
    assert parsed(value) is value


@pytest.mark.parametrize(
    "value",
    [NAN, INFINITY, -INFINITY, 10**4300, -(10**4300), b"x", bytearray(b"x"), {1}, frozenset(), object(), 1j,
     types.MappingProxyType({"a": 1}), {1: 2}, {None: 2}, {("a",): 2}, {b"a": 2}, nested(201), nested_dict(201)],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
@pytest.mark.parametrize(
    "wrap", [lambda v: v, lambda v: {"k": v}, lambda v: [0, v], lambda v: ({"k": (v,)},)]
)
def test_what_json_cannot_hold_is_refused_at_any_depth(value: Any, wrap: Any) -> None:
    with pytest.raises(UnfitValueError):
        checked(wrap(value), clean=True)
    with pytest.raises(UnfitValueError):
        checked(wrap(value), clean=False)


def test_a_list_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(UnfitValueError, match="200"):
        checked(endless, clean=True)


@pytest.mark.parametrize("value", [nested(200), nested_dict(200), LARGEST, -LARGEST, 1e308, -0.0, 2**70])
def test_what_stands_just_within_the_bounds_comes_back_exactly(value: Any) -> None:
    assert repr(load_json(dump_json(checked(value, clean=True)))) == repr(value)


def test_numbers_that_overflow_are_refused() -> None:
    with pytest.raises(UnfitValueError):
        checked(parsed("[1e999]"), clean=True)


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        ((1, (2,)), [1, [2]]),
        ({"a": (1,)}, {"a": [1]}),
        (Colour.RED, "red"),
        ({Colour.RED: Level.HIGH}, {"red": 3}),
        (True, True),
    ],
)
def test_subclasses_become_plain_values_and_tuples_lists(given: Any, plain: Any) -> None:
    result = checked(given, clean=True)
    assert (result, type(result)) == (plain, type(plain))
    assert "Colour" not in repr(result)


@pytest.mark.parametrize(
    ("given", "cleaned"),
    [
        ("a\0", "a\ufffd"),
        ({"k\0": ["\ud800", {"\udfff": "\0"}]}, {"k\ufffd": ["\ufffd", {"\ufffd": "\ufffd"}]}),
        ({"a\0": 1, "a\ud800": 2}, {"a\ufffd": 1, "a\ufffd\ufffd": 2}),
        (
            {"a\0": 1, "a\ufffd": 2, "a\ufffd\ufffd": 3},
            {"a\ufffd": 1, "a\ufffd\ufffd": 2, "a\ufffd\ufffd\ufffd": 3},
        ),
        ({"\\u0000": "\\ud800"}, {"\\u0000": "\\ud800"}),
    ],
)
def test_cleaning_reaches_keys_and_values_and_loses_no_key(given: Any, cleaned: Any) -> None:
    result = checked(given, clean=True)
    assert json.dumps(result) == json.dumps(cleaned)


def test_opaque_values_are_not_cleaned() -> None:
    value = {"z\0": ["\ud800", -0.0, 2**70], "a": {"b": None}}
    stored = load_json(dump_json(checked(value, clean=False)))
    assert repr(stored) == repr(value)
    assert list(stored) == ["z\0", "a"]


def test_the_given_value_is_not_changed() -> None:
    value = {"a\0": ["\0", (1,)]}
    checked(value, clean=True)
    assert value == {"a\0": ["\0", (1,)]}


def test_json_text_is_compact_and_unescaped_unless_a_surrogate_leaves_no_choice() -> None:
    assert dump_json({"a": [1, "汉"]}) == '{"a":[1,"汉"]}'
    assert dump_json(["汉\ud800"]) == '["\\u6c49\\ud800"]'
    assert dump_json("\0") == '"\\u0000"'
