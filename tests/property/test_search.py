"""Transcripts in mixed scripts, and queries made of pieces of them: what is there is found (issue 5, items 1 to 4)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_state import InvalidArgumentError, QuerySyntaxError, SessionDB
from tests.support.searching import END, START, plain

_names = itertools.count()
quick = settings(
    max_examples=15,
    derandomize=True,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
    ],
)
WORDS = [
    "apple", "red", "fox", "Run", "src", "main", "py", "don't", "x1", "42", "a", "I", "caf\u00e9", "\u00dcber", "AND", "OR", "NOT",
    "NEAR", "\u0441\u043b\u043e\u0432\u043e", "\u03bb\u03cc\u03b3\u03bf\u03c2", "\u05e9\u05dc\u05d5\u05dd", "\u0645\u0631\u062d\u0628\u0627",
    "\u0928\u092e\u0938\u094d\u0924\u0947", "\u8bb0\u5fc6", "\u65ad\u88c2", "\u8bb0", "\u6771\u4eac\u30bf\u30ef\u30fc", "\uc548\ub155\ud558\uc138\uc694",
    "\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01", "\U00020bb7\u91ce", "youer", "\uff21\uff22", "e\u0301t\u00e9", "\ufb01x", "\u0130x", "1\u00bd", "\u2167",
]  # fmt: skip
SIGNS = [" ", " ", " ", "", "/", ".", "_", "-", ": ", ", ", "(", ")", "*", "%", "#", "@", "\\", "'", "\n", "\t", "^", "+", "\U0001f642", "\u3002", "\0", "\ufeff", "\u200d", "&", "|", "!", "<", ">", "~", "$", "=", "`", "{", "}", "[", "]", ";", "?"]  # fmt: skip
pieces = st.lists(st.sampled_from([*WORDS, *SIGNS, *SIGNS]), min_size=1, max_size=9)
texts = pieces.map("".join).filter(lambda text: any(c.isalnum() for c in text))
odd_texts = st.one_of(texts, st.text(st.characters(codec="utf-8"), max_size=12))
rows = st.lists(
    st.tuples(texts, st.sampled_from(["active", "active", "compacted", "rewound", "hidden"]), st.sampled_from("abc")),
    min_size=1, max_size=6,
)  # fmt: skip
# What an untrusting person types: pieces, quotes anywhere, operators anywhere.
queries = st.lists(
    st.one_of(st.sampled_from([*WORDS, *SIGNS, '"', '"', " AND ", " OR ", " NOT ", "*"]), st.text(max_size=3)), max_size=14
).map("".join)  # fmt: skip


@pytest.fixture
def store(any_search_db: SessionDB) -> SessionDB:
    """With the index, with trigrams, and without any."""
    return any_search_db


def fill(db: SessionDB, listed: list[tuple[str, str, str]]) -> tuple[str, list[tuple[int, str, bool]]]:
    """Sessions of this example only; their source, and id, text and visibility of each row."""
    source = f"source{next(_names)}"
    made = []
    for name in "abc":
        session_id = db.create_session(f"{source}-{name}", source)
        # First what becomes compacted, then what is taken back, then what stays.
        for state in ("compacted", "rewound", "active", "hidden"):
            ids = []
            for text in (text for text, wanted, where in listed if (wanted, where) == (state, name)):
                keys: dict[str, Any] = {"display_kind": "hidden"} if state == "hidden" else {}
                ids.append(db.append_message(session_id, "user", text, **keys))
                made.append((ids[-1], text.replace("\0", "\ufffd"), state in ("active", "compacted")))
            if state == "compacted":
                db.archive_and_compact(session_id, [])
            if ids and state == "rewound":
                db.rewind_to_message(session_id, ids[0])
    return source, made


def hits(db: SessionDB, query: str, source: str, **options: Any) -> list[dict[str, Any]]:
    found = db.search_messages(query, **{"limit": 100, **options}, source_filter=[source])
    return [dict(hit) for hit in found]


@quick
@given(listed=rows)
def test_a_row_is_found_by_its_own_text_quoted_or_not(
    store: SessionDB, listed: list[tuple[str, str, str]]
) -> None:
    source, made = fill(store, listed)
    for row, text, is_visible in made:
        queries = [f'"{text}"'] + (
            [text] if not {"OR", "AND", "NOT"} & set(text.split()) and "*" not in text else []
        )
        for query in queries:
            found = hits(store, query, source)
            assert (row in [hit["id"] for hit in found]) == is_visible, (query, text)
            everything = hits(store, query, source, include_inactive=True)
            assert {hit["id"] for hit in found} <= {hit["id"] for hit in everything}


@quick
@given(listed=rows, data=st.data())
def test_a_row_is_found_by_any_run_of_its_words(
    store: SessionDB, listed: list[tuple[str, str, str]], data: st.DataObject
) -> None:
    """From a gap to a gap, quoted: signs in between stay as they are."""
    source, made = fill(store, listed)
    row, text, is_visible = data.draw(st.sampled_from(made))
    words = text.split(" ")
    start = data.draw(st.integers(0, len(words) - 1))
    piece = " ".join(words[start : data.draw(st.integers(start + 1, len(words)))])
    if any(c.isalnum() for c in piece):
        found = [hit["id"] for hit in hits(store, f'"{piece}"', source)]
        assert (row in found) == is_visible, (piece, text)


@quick
@given(listed=rows, queries=st.lists(queries, max_size=6))
def test_hidden_rows_are_never_found_and_hits_are_well_formed(
    store: SessionDB, listed: list[tuple[str, str, str]], queries: list[str]
) -> None:
    source, made = fill(store, listed)
    texts = {row: text for row, text, is_visible in made if is_visible}
    for query in [*queries, *(text.replace("\0", " ").split()[0] for text, _, _ in listed if text.split())]:
        for hit in hits(store, query, source):
            assert hit["id"] in texts
            assert hit["snippet"].count(START) - texts[hit["id"]].count(START) > 0
            assert hit["snippet"].count(START) - hit["snippet"].count(END) == 0
            assert plain(hit["snippet"]).strip() in texts[hit["id"]].replace(START, "").replace(END, "")


@quick
@given(query=st.one_of(queries, st.text(max_size=60), odd_texts))
def test_no_query_breaks_a_search(store: SessionDB, query: str) -> None:
    store.ensure_session("s", "cli")
    if not store.message_count("s"):
        store.append_message("s", "user", " ".join(WORDS))
    found = store.search_messages(query)
    assert any(c.isalnum() for c in query) or found == []
    try:
        same = store.search_messages(query, strict=True)
    except QuerySyntaxError as error:
        position = error.position
    else:
        position = 0
        assert same == found
    assert 0 <= position <= len(query)


@quick
@given(
    listed=rows,
    query=st.sampled_from(
        [
            "apple",
            "red OR fox",
            "\u8bb0",
            "\u8bb0\u5fc6 OR apple",
            "a OR i",
            "src NOT main",
            "x1 OR 42",
            "r* OR f*",
        ]
    ),
    size=st.integers(1, 4),
    sort=st.sampled_from([None, "newest", "oldest"]),
    group=st.booleans(),
)
def test_pages_are_disjoint_and_complete(
    store: SessionDB, listed: list[tuple[str, str, str]], query: str, size: int, sort: str | None, group: bool
) -> None:
    source, _ = fill(store, listed * 3)
    options: dict[str, Any] = {"sort": sort, "group_by_session": group}
    whole = [hit["id"] for hit in hits(store, query, source, **options)]
    pages = [
        hits(store, query, source, limit=size, offset=n, **options) for n in range(0, len(whole) + size, size)
    ]
    assert [hit["id"] for page in pages for hit in page] == whole
    assert len(set(whole)) == len(whole)
    sessions = [hit["session_id"] for page in pages for hit in page]
    assert not group or len(set(sessions)) == len(sessions)


@quick
@given(
    query=st.one_of(queries, st.none(), st.integers(), st.binary()),
    limit=st.one_of(st.integers(), st.none()),
    roles=st.lists(st.text(max_size=5)),
)
def test_arguments_of_any_kind_are_answered_or_refused(
    store: SessionDB, query: Any, limit: Any, roles: list[str]
) -> None:
    try:
        assert isinstance(store.search_messages(query, limit=limit, role_filter=roles), list)
    except InvalidArgumentError:
        assert not isinstance(query, str) or limit is None or roles or not 0 <= limit < 2**63
