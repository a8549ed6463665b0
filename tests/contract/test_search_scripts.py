"""Scripts without spaces: any substring is found, one and two characters too (issue 5, item 3; O1 to O3)."""

from __future__ import annotations

import pytest

from hermes_state import SessionDB
from tests.support.searching import found, marked, say, snippet

CHINESE = "\u4fee\u590d\u4e86\u8bb0\u5fc6\u65ad\u88c2\u95ee\u9898"
JAPANESE = "\u6771\u4eac\u30bf\u30ef\u30fc\u306b\u884c\u304d\u307e\u3057\u305f"
KOREAN = "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4"
THAI = "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01"
LAO = "\u0eaa\u0eb0\u0e9a\u0eb2\u0e8d\u0e94\u0eb5"
KHMER = "\u179f\u17bd\u179f\u17d2\u178f\u17b8\u1796\u17b7\u1797\u1796\u179b\u17c4\u1780"
MYANMAR = "\u1019\u1004\u103a\u1039\u1002\u101c\u102c\u1015\u102b"
RARE = "\U00020bb7\u91ce\u5bb6"
WIDE = "\uff21\uff22\uff23\u30c6\u30b9\u30c8"
GLUED = "\u4fee\u6539youer\u670d\u52a1\u7aef\u7b2c3\u7ae0v2\u7248\u672c"


@pytest.fixture
def store(any_search_db: SessionDB) -> SessionDB:
    """With the index, with trigrams, and without any: what is visible is the same."""
    return any_search_db


def pieces(text: str) -> list[str]:
    """Every substring of letters."""
    whole = [text[i:j] for i in range(len(text)) for j in range(i + 1, len(text) + 1)]
    return [piece for piece in whole if piece[0].isalpha() and piece.replace(" ", "").strip() == piece]


@pytest.mark.parametrize("text", [CHINESE, JAPANESE, KOREAN, THAI, LAO, KHMER, MYANMAR, RARE], ids=ascii)
def test_any_substring_is_found(store: SessionDB, text: str) -> None:
    say(store, "zebra", "\u7532\u4e59\u4e19")
    rows = [*say(store, text, f"see {text} there"), *say(store, f"{text}", role="tool")]
    lost = [piece for piece in pieces(text) if found(store, piece) != rows]
    assert lost == []


def test_every_match_is_found_though_one_of_them_is_a_word(store: SessionDB) -> None:
    rows = say(store, "\u8bb0\u5fc6\u65ad\u88c2", *(f"{n}\u7684{CHINESE}" for n in range(20)))
    assert found(store, "\u8bb0\u5fc6\u65ad\u88c2") == rows
    assert found(store, "\u8bb0\u5fc6") == found(store, "\u8bb0") == rows


def test_a_latin_word_or_a_number_glued_to_cjk_is_found(store: SessionDB) -> None:
    say(store, "\u4fee\u6539others\u670d\u52a1\u7aef")
    rows = say(store, GLUED)
    for query in (
        "youer",
        "YOUER",
        '"youer"',
        "you*",
        "youer\u670d\u52a1",
        "\u6539youer",
        "v2",
        "3",
        "\u7b2c3\u7ae0",
        "youer \u670d\u52a1",
    ):
        assert found(store, query) == rows, query
    say(store, f"{JAPANESE}docker\u3092\u4f7f\u3046", "Python\uc73c\ub85c", f"{THAI}linux{THAI}")
    for word in ("docker", "python", "linux"):
        assert len(found(store, word)) == 1, word


def test_cjk_takes_part_in_the_grammar(store: SessionDB) -> None:
    both, first, second, latin = say(
        store,
        "\u8bb0\u5fc6\u548c\u9879\u76ee",
        "\u4ed6\u7684\u8bb0\u5fc6",
        "\u65b0\u9879\u76ee",
        "project \u9879\u76ee\u4e00",
    )
    assert (
        found(store, "\u8bb0\u5fc6 \u9879\u76ee") == found(store, "\u8bb0\u5fc6 AND \u9879\u76ee") == [both]
    )
    assert found(store, "\u8bb0\u5fc6 OR \u9879\u76ee") == [both, first, second, latin]
    assert found(store, "\u9879\u76ee NOT \u8bb0\u5fc6") == [second, latin]
    assert found(store, "project \u9879") == found(store, "\u9879 project") == [latin]
    assert found(store, "\u9879\u76ee NOT project") == [both, second]
    assert found(store, "project OR \u8bb0") == [both, first, latin]
    assert found(store, "proj* \u9879\u76ee*") == [latin]
    assert found(store, '"project \u9879\u76ee"') == [latin]
    assert found(store, '"\u9879\u76ee project"') == []
    assert found(store, "\u8bb0\u5fc6*") == [both, first]


def test_signs_between_cjk_are_text(store: SessionDB) -> None:
    rows = say(store, "\u8bb0\u5fc6\uff0c\u65ad\u88c2\u3002", "\u300c\u8bb0\u5fc6\uff0c\u65ad\u88c2\u300d")
    say(store, "\u65ad\u88c2\u8bb0\u5fc6", "\u8bb0\u5fc6\u65ad\u88c2")
    for query in (
        "\u8bb0\u5fc6\uff0c\u65ad\u88c2",
        '"\u8bb0\u5fc6\uff0c\u65ad\u88c2"',
        "\u300c\u8bb0\u5fc6\uff0c\u65ad\u88c2\u300d",
    ):
        assert set(rows[1:]) <= set(found(store, query)), query


def test_marks_enclose_what_was_searched(store: SessionDB) -> None:
    say(store, CHINESE, GLUED, THAI, KOREAN)
    for query in (
        "\u8bb0\u5fc6\u65ad\u88c2",
        "\u8bb0",
        "youer",
        "\u0e0a\u0e32\u0e27",
        "\ud558\uc138",
        "\u7b2c3\u7ae0",
    ):
        assert marked(snippet(store, query)) == [query]
    assert snippet(store, "\u8bb0\u5fc6") == "\u4fee\u590d\u4e86>>>\u8bb0\u5fc6<<<\u65ad\u88c2\u95ee\u9898"


def test_wide_letters_are_found_as_they_are_written(store: SessionDB) -> None:
    rows = say(store, WIDE)
    for query in (WIDE, "\u30b9\u30c8", "\uff21\uff22\uff23"):
        assert found(store, query) == rows, query


def test_pages_and_orders_hold_for_cjk(store: SessionDB) -> None:
    rows = say(store, *(f"{CHINESE}{n}" for n in range(9)))
    for query in ("\u8bb0", "\u8bb0\u5fc6", CHINESE):
        newest = [hit["id"] for hit in store.search_messages(query, sort="newest")]
        assert newest == rows[::-1]
        assert [hit["id"] for hit in store.search_messages(query, sort="oldest")] == rows
        whole = [hit["id"] for hit in store.search_messages(query)]
        pages = [
            [hit["id"] for hit in store.search_messages(query, limit=2, offset=n)] for n in range(0, 10, 2)
        ]
        assert [row for page in pages for row in page] == whole
        assert sorted(whole) == rows


def test_what_stands_in_other_texts_of_the_same_message_counts(search_db: SessionDB) -> None:
    """Two words, one of them glued, in the text and in the tool's name; and NOT sees both."""
    (row,) = say(search_db, "\u4fee\u6539youer\u670d", role="tool", tool_name="okapi")
    assert found(search_db, "youer okapi") == [row]
    assert found(search_db, "youer NOT okapi") == []
    assert found(search_db, "youer NOT nowhere") == [row]


@pytest.mark.parametrize("letters", [CHINESE, JAPANESE, KOREAN, THAI, LAO, KHMER, MYANMAR], ids=ascii)
def test_a_word_glued_to_such_letters_is_a_word(store: SessionDB, letters: str) -> None:
    alone, *glued = say(store, "docker", f"{letters}docker", f"docker{letters}", f"{letters}docker{letters}")
    say(store, f"{letters}dockerfile{letters}", f"{letters} other")
    assert found(store, "docker") == found(store, '"DOCKER"') == [alone, *glued]
    assert found(store, "docker NOT other") == [alone, *glued]
    assert len(found(store, "docker*")) == 5


def test_words_on_both_sides_of_such_letters_do_not_follow_each_other(store: SessionDB) -> None:
    between, beside = say(store, "docker\u8bb0compose", "\u8bb0docker compose\u8bb0")
    assert found(store, '"docker compose"') == [beside]
    assert found(store, "docker compose") == [between, beside]
    assert found(store, 'docker NOT "docker compose"') == [between]
    assert found(store, '"docker compose" OR "compose docker"') == [beside]


@pytest.mark.parametrize("number", ["\u00bd", "1\u00bd", "\u2167", "x\u00b2", "\u0663"], ids=ascii)
def test_numbers_of_every_kind_are_words(store: SessionDB, number: str) -> None:
    rows = say(store, f"take {number} of it", f"({number})", number)
    say(store, f"a{number}b", "take of it")
    assert found(store, number) == found(store, f'"{number}"') == rows
    assert found(store, f'"take {number}"') == rows[:1]


def test_a_word_longer_than_an_index_holds_is_told_from_its_neighbours(store: SessionDB) -> None:
    long = "x" * 600
    (row, _) = say(store, f"see {long}y there", f"see {long}z there")
    assert found(store, f"{long}y") == found(store, f'"see {long}y there"') == [row]
    assert len(found(store, f"{long}*")) == 2
    assert found(store, long) == found(store, "x" * 500) == found(store, "x" * 250) == []
    assert len(found(store, f"see NOT {'x' * 500}")) == 2
    say(store, "\u0130" * 300)
    assert found(store, "\u0130" * 250) == []
    assert found(store, f"see NOT {long}z") == [row]
