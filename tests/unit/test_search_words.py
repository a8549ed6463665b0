"""One rule of what a word is: the same in the snippets, in the index of either database and in the tests' own reading."""

from __future__ import annotations

import re
import sqlite3
import unicodedata
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from hermes_state import search_words
from hermes_state.search_words import (
    end_of_signs,
    end_of_word,
    is_of_a_word,
    letters_of,
    without_edges,
    words_of,
)

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def revision() -> object:
    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    return ScriptDirectory.from_config(config).get_revision("0009").module


def test_the_index_splits_texts_by_the_same_ranges(revision: object) -> None:
    assert vars(revision)["_SIGNS"] == search_words.SIGNS
    assert vars(revision)["_UNSPACED"] == search_words.UNSPACED


def test_no_character_is_a_sign_and_a_letter() -> None:
    signs, letters = (re.compile(f"[{ranges}]") for ranges in (search_words.SIGNS, search_words.UNSPACED))
    assert [code for code in range(0x110000) if signs.match(chr(code)) and letters.match(chr(code))] == []


def test_letters_and_digits_are_no_signs_and_signs_are_of_no_word() -> None:
    for code in map(chr, range(1, 0xD800)):
        category = unicodedata.category(code)
        if category[0] in "PSZ" and not letters_of(code):
            assert not is_of_a_word(code), hex(ord(code))
        if category[0] == "L" or category in ("Nd", "Nl"):
            assert is_of_a_word(code) or letters_of(code), hex(ord(code))


def test_the_statement_that_a_rebuild_puts_together_is_that_of_the_upgrade(revision: object) -> None:
    conn = sqlite3.connect(":memory:")
    ((statement,),) = conn.execute(vars(revision)["_index_statement"]()).fetchall()
    conn.close()
    assert statement == str(vars(revision)["_create_index"]())


@pytest.mark.parametrize(
    ("text", "words", "letters"),
    [
        ("don't stop", ["don", "t", "stop"], []),
        ("\u4fee\u6539youer\u670d", ["youer"], ["\u4fee", "\u6539", "\u670d"]),
        ("1\u00bd \u2167. e\u0301t\u00e9", ["1\u00bd", "\u2167", "e\u0301t\u00e9"], []),
        ("ok\U0001f642\ufe0fgo", ["ok", "go"], []),
        ("\0", ["\0"], []),
        ("", [], []),
    ],
)
def test_a_text_is_words_and_letters_between_signs(text: str, words: list[str], letters: list[str]) -> None:
    assert words_of(text) == words
    assert letters_of(text) == letters


def test_edges_are_found() -> None:
    assert without_edges(" (a-b). ") == "a-b"
    assert end_of_word("ab cd", 0) == 2
    assert end_of_word("ab cd", 2) == 2
    assert end_of_signs("ab - cd", 2) == 5
    assert end_of_signs("ab", 2) == 2
    assert not is_of_a_word("")
