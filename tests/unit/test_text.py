"""Cleaning and measuring text (CONTRACT.md section 2, rules 1 and 6)."""

from __future__ import annotations

import pytest

from hermes_state.text import clean_text, exceeds, has_surrogate, is_clean, is_usable_id

UNSTORABLE = ["\0", *map(chr, range(0xD800, 0xE000))]
UNTOUCHED = ["", "plain", "\x01\x7f\x85", "\\u0000", "\\ud83d", "汉字 🙂", "\ud7ff\ue000\ufffd", "\U0010ffff"]


def test_every_unstorable_code_point_becomes_one_replacement_character() -> None:
    assert {clean_text(f"a{point}b") for point in UNSTORABLE} == {"a\ufffdb"}
    assert clean_text("".join(UNSTORABLE)) == "\ufffd" * len(UNSTORABLE)


@pytest.mark.parametrize("text", UNTOUCHED)
def test_all_other_text_is_the_same_object(text: str) -> None:
    assert clean_text(text) is text
    assert is_clean(text)


def test_text_that_would_change_is_not_clean() -> None:
    assert not any(is_clean(point) for point in UNSTORABLE)


def test_surrogates_are_found_and_nothing_else_is() -> None:
    assert all(has_surrogate(f"x{point}") for point in UNSTORABLE[1:])
    assert not any(has_surrogate(text) for text in ["\0", *UNTOUCHED])


@pytest.mark.parametrize(
    ("value", "usable"),
    [
        ("x", True),
        ("x" * 512, True),
        ("汉" * 512, True),
        ("", False),
        ("x" * 513, False),
        ("a\0", False),
        ("\ud800", False),
        (None, False),
        (7, False),
        (b"x", False),
    ],
)
def test_an_id_is_text_of_1_to_512_clean_characters(value: object, usable: bool) -> None:
    assert is_usable_id(value) is usable


@pytest.mark.parametrize(
    ("text", "size"), [("abc", 3), ("é" * 3, 6), ("汉" * 3, 9), ("🙂" * 3, 12), ("a🙂", 5), ("", 0)]
)
def test_texts_are_measured_in_bytes_of_utf_8(text: str, size: int) -> None:
    assert not exceeds(text, size)
    assert size == 0 or exceeds(text, size - 1)
