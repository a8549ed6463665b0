"""Long texts and frequent words: an index that keeps few places of a word must lose no phrase for it (issue 5, items 2 and 3)."""

from __future__ import annotations

import pytest

from hermes_state import SessionDB
from tests.support.searching import found, marked, say, snippet

HAN = "\u7684\u4e86\u662f\u5728\u6709\u548c\u4eba\u8fd9\u4e2d\u5927"


@pytest.fixture
def store(any_search_db: SessionDB) -> SessionDB:
    return any_search_db


def test_a_phrase_with_a_word_that_came_a_thousand_times_before(store: SessionDB) -> None:
    rows = say(store, "the cat and " * 1_000 + "the zebra", "the zebra", "a zebra and the cat")
    assert found(store, '"the zebra"') == rows[:2]
    assert found(store, "the/zebra") == rows[:2]
    assert "the zebra" in marked(snippet(store, '"the zebra"', limit=1, sort="oldest"))


def test_a_phrase_behind_twenty_thousand_words(store: SessionDB) -> None:
    filler = " ".join(f"w{n}" for n in range(20_000))
    (row,) = say(store, f"{filler} red fox {filler[:500]} fox")
    say(store, f"{filler} fox red")
    assert found(store, '"red fox"') == [row]
    assert found(store, "red/fox") == [row]
    assert found(store, '"w19998 w19999"') != []
    assert marked(snippet(store, '"red fox"')) == ["red fox"]


def test_a_cjk_term_with_a_letter_that_came_a_thousand_times_before(store: SessionDB) -> None:
    rows = say(store, (HAN + "\n") * 1_000 + "\u7684\u8bb0\u5fc6\u548c", "\u7684\u8bb0\u5fc6\u548c")
    say(store, HAN, "\u8bb0\u7684\u548c\u5fc6")
    for query in ("\u7684\u8bb0", "\u5fc6\u548c", "\u7684\u8bb0\u5fc6\u548c", "\u8bb0\u5fc6", "\u8bb0"):
        if len(query) > 1:
            assert found(store, query) == rows, query
        for sort in ("oldest", None):
            hits = store.search_messages(query, sort=sort)
            assert all(marked(hit["snippet"])[0] == query for hit in hits)


def test_a_cjk_term_behind_twenty_thousand_letters(store: SessionDB) -> None:
    (row,) = say(store, HAN * 2_000 + "\u8bb0\u5fc6" + HAN * 10 + "\u5fc6")
    say(store, HAN * 2_000 + "\u5fc6\u8bb0")
    assert found(store, "\u8bb0\u5fc6") == [row]
    assert found(store, "\u5927\u8bb0\u5fc6\u7684") == [row]
    assert marked(snippet(store, "\u8bb0\u5fc6")) == ["\u8bb0\u5fc6"]


def test_a_very_long_word_is_found(store: SessionDB) -> None:
    word = "abcdefghij" * 190
    rows = say(store, f"see {word} there", word)
    say(store, f"{word}x")
    assert found(store, word) == rows
    assert found(store, f'"see {word} there"') == rows[:1]
    assert set(rows) <= set(found(store, f"{word[:100]}*"))


def test_words_at_the_end_of_a_text_of_20_000_characters(store: SessionDB) -> None:
    (row,) = say(store, "x " * 10_000 + "zebra \u8bb0\u5fc6")
    for query in ("zebra", "zeb*", "\u8bb0\u5fc6", "x zebra", '"x zebra"'):
        assert found(store, query) == [row], query
