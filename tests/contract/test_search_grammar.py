"""What a query means, and that text is never taken for syntax (issue 5, item 2; W37)."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_state import InvalidArgumentError, QuerySyntaxError, SessionDB
from tests.support.searching import found, plain, say, snippet, texts_found

FRUIT = ["apple pear", "pear apple fig", "apple", "fig", "the red apple fell", "apple red", "applesauce"]


@pytest.fixture
def store(search_db: SessionDB) -> SessionDB:
    say(search_db, *FRUIT)
    return search_db


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("apple pear", ["apple pear", "pear apple fig"]),
        ("APPLE Pear", ["apple pear", "pear apple fig"]),
        ("apple AND pear", ["apple pear", "pear apple fig"]),
        ('"apple pear"', ["apple pear"]),
        ('"red apple" fell', ["the red apple fell"]),
        ("fig OR fell", ["fig", "pear apple fig", "the red apple fell"]),
        ("pear NOT fig", ["apple pear"]),
        ("pear AND NOT fig", ["apple pear"]),
        ("pear apple NOT fig", ["apple pear"]),
        ('apple NOT "apple red" NOT pear NOT fell', ["apple"]),
        ("fell OR pear fig", ["pear apple fig", "the red apple fell"]),
        ("pear fig OR fell", ["pear apple fig", "the red apple fell"]),
        ("fell OR pear NOT fig", ["apple pear", "the red apple fell"]),
        ("applesa*", ["applesauce"]),
        ("fe* re*", ["the red apple fell"]),
        ("nowhere", []),
        ("apple nowhere", []),
        ("nowhere OR fell", ["the red apple fell"]),
    ],
)
def test_words_phrases_and_operators(store: SessionDB, query: str, wanted: list[str]) -> None:
    assert texts_found(store, query) == wanted
    assert texts_found(store, query, strict=True) == wanted


def test_a_prefix_finds_the_beginning_of_words_only(store: SessionDB) -> None:
    assert texts_found(store, "apple*") == sorted(text for text in FRUIT if text != "fig")


def test_operators_are_written_in_capitals(search_db: SessionDB) -> None:
    say(search_db, "this or that", "this and that", "this not that", "this that")
    assert texts_found(search_db, "this or that") == ["this or that"]
    assert texts_found(search_db, "this and that") == ["this and that"]
    assert texts_found(search_db, "this not that") == ["this not that"]
    assert len(texts_found(search_db, "this AND that")) == 4


@pytest.mark.parametrize(
    ("query", "plainly"),
    [
        ("apple AND", "apple"), ("AND apple", "apple"), ("OR apple", "apple"), ("apple OR", "apple"),
        ("apple NOT", "apple"), ("NOT fell", "fell"), ("AND OR fell", "fell"), ("fell AND OR", "fell"),
        ("pear AND AND fig", "pear fig"), ("pear OR OR fell", "pear OR fell"), ("NOT NOT fell", "fell"),
        ("* fell", "fell"), ("fell *", "fell"), ("**fell**", "fell*"), ('fell ""', "fell"), ('"  " fell', "fell"),
        ("fell ,,, ???", "fell"), ("-- fell", "fell"),
    ],
)  # fmt: skip
def test_what_has_no_neighbour_is_dropped(store: SessionDB, query: str, plainly: str) -> None:
    assert texts_found(store, query) == texts_found(store, plainly) != []


TEXTS = [
    "#123", "src/main.py", "don't", "50%", "a@b.example", "C:\\dir", 'say "unbalanced', "NEAR(", "NEAR(one two)",
    "NEAR(one, 3)", "(open", "close)", "f(x)", "{braces}", "content:word", "tool_name : word", "^start", "-minus",
    "--flag=value", "+plus", "C++", "c#", "user_auth", "__init__", "v1.2.3", "2026-01-02", "10:30", "1,000.5", "3*4",
    "a*b", "*.py", "~tilde", "!important", "a & b", "a | b", "a <-> b", "!x & (y", "x:*", "'quoted'", "it''s",
    "key='v'", "$HOME/x", "`tick`", "[list]", "<tag>", "a\\b", "100%_x", "x = y", "e.g.", "?q=1&r=2", "one\ttwo",
    "https://host.example/a/b?c=d#e", "me+tag@host.example", "192.168.0.1", "node:fs", "-1.5e-3", "foo/bar-baz_qux",
    "it\u2019s", "caf\u00e9", "na\u00efve", "\u00dcber", "\u0441\u043b\u043e\u0432\u043e", "\u03bb\u03cc\u03b3\u03bf\u03c2",
    "\u05e9\u05dc\u05d5\u05dd", "\u0645\u0631\u062d\u0628\u0627", "\u0928\u092e\u0938\u094d\u0924\u0947", "ze\0bra", "half\ud83dsurrogate",
]  # fmt: skip


def test_text_that_looks_like_syntax_is_searched_as_text(search_db: SessionDB) -> None:
    """Alone, within a sentence, and quoted where it holds no quotes itself."""
    alone = say(search_db, *TEXTS)
    within = say(search_db, *(f"before {text} behind" for text in TEXTS))
    lost = []
    for text, *rows in zip(TEXTS, alone, within, strict=True):
        queries = [text, f"before {text}", f"{text} behind"] + ([f'"{text}"'] if '"' not in text else [])
        lost += [
            (query, row)
            for query, wanted in zip(queries, (rows, rows[1:], rows[1:], rows), strict=False)
            for row in wanted
            if row not in found(search_db, query)
        ]
    assert lost == []


def test_text_with_signs_finds_no_text_with_other_words_or_another_order(search_db: SessionDB) -> None:
    say(search_db, "main src py", "main.py in src", "t don", "auth user", "b a example", "dir C", "two NEAR")
    for text in ("src/main.py", "don't", "user_auth", "a@b.example", "C:\\dir", "50%", "#123", "NEAR(one"):
        assert texts_found(search_db, text) == [], text


def test_a_word_inside_a_path_a_name_or_an_address_is_found(search_db: SessionDB) -> None:
    text = (
        "see src/deploy/main.py, user_auth, a@mail.example, https://host.example/path/page?key=1 and C:\\dir"
    )
    say(search_db, text)
    for word in ("src", "deploy", "main", "py", "user", "auth", "mail", "host", "path", "page", "key", "dir"):
        assert texts_found(search_db, word) == [text], word
    for phrase in ("deploy/main", "host.example", "path/page", '"deploy main"', "main.py user_auth"):
        assert texts_found(search_db, phrase) == [text], phrase


def test_case_does_not_matter_in_any_alphabet(search_db: SessionDB) -> None:
    for text in (
        "Zebra",
        "\u00c4rger",
        "\u0421\u043b\u043e\u0432\u043e",
        "\u0395\u03bb\u03bb\u03ac\u03b4\u03b1",
    ):
        say(search_db, text)
        assert texts_found(search_db, text.upper()) == texts_found(search_db, text.lower()) == [text]


def test_frequent_words_are_words_like_any_other(search_db: SessionDB) -> None:
    say(search_db, "to be or not to be", "the of and", "something else")
    assert texts_found(search_db, "the") == ["the of and"]
    assert texts_found(search_db, '"to be or not to be"') == ["to be or not to be"]
    assert texts_found(search_db, "to be") == ["to be or not to be"]


def test_a_query_without_letters_and_digits_finds_nothing(store: SessionDB) -> None:
    say(store, "!!!", "\u2026", "%", "_", '"', "\U0001f642", "\ufffd")
    queries = [
        "",
        " ",
        "\t\n",
        "!!!",
        "***",
        '"',
        '""',
        '"""',
        "%",
        "_",
        "\\",
        "'",
        "()",
        "(",
        "-",
        "\0",
        "\ud800",
        "\udfff\0",
    ]
    for query in [*queries, "\u2026", "\U0001f642", "* * *", '"*"', "\u3000", "\ufeff", "' OR '", "%_%"]:
        assert store.search_messages(query) == [], query
        with pytest.raises(QuerySyntaxError):
            store.search_messages("".join(c for c in query if not c.isalnum()), strict=True)


def test_only_operators_raise_nothing_and_find_no_other_text(store: SessionDB) -> None:
    for query in ("AND", "OR", "NOT", "NOT NOT", "AND OR NOT", "OR " * 500):
        assert store.search_messages(query) == []
        with pytest.raises(QuerySyntaxError):
            store.search_messages(query, strict=True)


@pytest.mark.parametrize(
    "query",
    ["apple AND", "OR apple", "NOT apple", "apple NOT", "apple OR", "apple AND OR fig", 'apple "pear', '"', "", "* apple",
     "a" * 2049, "apple " * 400],
)  # fmt: skip
def test_strict_says_what_does_not_parse_and_where(store: SessionDB, query: str) -> None:
    store.search_messages(query)
    with pytest.raises(QuerySyntaxError) as caught:
        store.search_messages(query, strict=True)
    assert caught.value.query == query
    assert 0 <= caught.value.position <= len(query)
    assert caught.value.reason
    assert isinstance(caught.value, ValueError)


def test_a_long_query_is_cut(store: SessionDB) -> None:
    assert len(texts_found(store, "fell " * 2000)) == 1
    assert texts_found(store, "fell" + " " * 2044 + "nowhere") == ["the red apple fell"]
    assert texts_found(store, "fell" + " " * 2000 + "nowhere") == []
    # What the cut leaves of a word is no word.
    (row,) = say(store, " ".join(f"pasted{n}" for n in range(600)))
    text = str(store.get_messages("s")[-1]["content"])
    for start in range(9):
        assert found(store, f'"{text[: 3000 + start]}"') == found(store, text[: 3000 + start]) == [row]
    for query in ("x" * 10_000, "(" * 10_000, '"' * 10_000, "a b " * 2_500, "\u8bb0" * 10_000, "*" * 10_000):
        assert store.search_messages(query) == []


def test_many_operands_are_no_error(store: SessionDB) -> None:
    say(store, "\u8bb0\u5fc6")
    for text in ("a", "\u8bb0", '"red apple"', "fe*"):
        for joint in (" OR ", " NOT ", " "):
            store.search_messages(joint.join([text] * (2048 // len(text + joint))))
            store.search_messages(joint.join(f"{text}{n}" for n in range(2048 // len(text + joint + "999"))))
    assert "the red apple fell" in texts_found(store, " OR ".join([*(f"w{n}" for n in range(200)), "fell"]))


@pytest.mark.parametrize("query", [None, 7, b"apple", ["apple"], True])
def test_a_query_that_is_no_text_is_refused(store: SessionDB, query: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        store.search_messages(query)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("src/main.py", "src/main.py"), ("a@b.example", "a@b.example"), ("C:\\dir", "C:\\dir"), ("don't", "don't"),
        ("red, fox", '"red, fox"'), ("red fox", '"red fox"'), ("red fox", '"RED FOX"'), ("v1.2.3", "v1.2.3"),
        ("user_auth", "user_auth"), ("one two three four", '"one two three four"'),
    ],
)  # fmt: skip
def test_a_phrase_has_one_pair_of_marks(search_db: SessionDB, text: str, query: str) -> None:
    say(search_db, f"we saw {text} here")
    assert snippet(search_db, query) == f"we saw >>>{text}<<< here"


def test_the_searched_text_stands_in_the_snippet(search_db: SessionDB) -> None:
    """Signs at its edges may stand outside the marks."""
    for text in TEXTS:
        (row,) = say(search_db, f"left {text} right")
        hits = [hit for hit in search_db.search_messages(text, limit=1000) if hit["id"] == row]
        stored = text.replace("\0", "\ufffd").replace("\ud83d", "\ufffd")
        assert stored in plain(hits[0]["snippet"]), text
