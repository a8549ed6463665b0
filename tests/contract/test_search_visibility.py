"""Which rows are found at all, on every route that a query can take (issue 5, item 1; O6, O8)."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_state import SessionDB
from tests.support.builders import assistant, user
from tests.support.searching import found, say

# One text that every route finds: words, phrase, prefix, one, two and four characters of CJK, Latin glued to CJK, by signs.
TEXT = "a zebra crosses src/main.py \u4fee\u590d\u4e86\u8bb0\u5fc6\u65ad\u88c2\u95eeyouer\u9898"
ROUTES = [
    "zebra", '"zebra crosses"', "zeb*", "\u8bb0", "\u8bb0\u5fc6", "\u8bb0\u5fc6\u65ad\u88c2", "youer", "src/main.py",
    "zebra \u8bb0\u5fc6", "nowhere OR zebra", "nowhere OR \u8bb0", "zebra NOT nowhere", "\u8bb0\u5fc6 NOT nowhere",
]  # fmt: skip


@pytest.fixture
def store(any_search_db: SessionDB) -> SessionDB:
    """With the index, with trigrams, and without any: what is visible is the same."""
    return any_search_db


def assert_found(db: SessionDB, *rows: int, **options: Any) -> None:
    for query in ROUTES:
        assert found(db, query, **options) == sorted(rows), query


def test_active_and_compacted_rows_are_found_and_rewound_ones_are_not(store: SessionDB) -> None:
    compacted, rewound = say(store, TEXT, "x")[0], 0
    store.archive_and_compact("s", [user("summary")])
    active, rewound = say(store, TEXT, TEXT)
    store.rewind_to_message("s", rewound)
    assert_found(store, compacted, active)
    assert_found(store, compacted, active, rewound, include_inactive=True)
    store.restore_rewound("s", rewound)
    assert_found(store, compacted, active, rewound)


def test_rows_with_a_hidden_display_are_not_found(store: SessionDB) -> None:
    (shown,) = say(store, TEXT)
    say(store, TEXT, display_kind="hidden")
    (other,) = say(store, TEXT, display_kind="notice")
    assert_found(store, shown, other)
    store.set_latest_matching_message_display_kind("s", "user", TEXT, "hidden")
    assert_found(store, shown)


def test_a_message_that_a_compaction_carries_on_is_found_once(store: SessionDB) -> None:
    say(store, "old", TEXT)
    store.archive_and_compact("s", [user("summary"), user(TEXT)], tail_count=1)
    for query in ROUTES:
        assert len(found(store, query)) == 1, query


def test_rows_of_every_session_are_found_whatever_became_of_it(store: SessionDB) -> None:
    rows = []
    for name in ("open", "ended", "archived", "hidden", "compressed"):
        rows += say(store, TEXT, session_id=name)
    store.end_session("ended", "user_exit")
    store.set_session_archived("archived", True)
    store.set_session_hidden("hidden", True)
    store.publish_continuation("compressed", "next", [user("summary")])
    rows += say(store, TEXT, session_id="next")
    assert_found(store, *rows)


def test_a_hit_comes_from_the_session_that_holds_it(store: SessionDB) -> None:
    """Not from the root of its conversation, which may hold nothing of it."""
    say(store, "root", session_id="a")
    store.publish_continuation("a", "b", [user("summary")])
    store.publish_continuation("b", "c", [user("summary")])
    say(store, TEXT, session_id="c")
    for query in ROUTES:
        assert [hit["session_id"] for hit in store.search_messages(query)] == ["c"]
        assert store.search_messages(query, session_id="a") == []
        assert len(store.search_messages(query, session_id="c")) == 1


def test_every_text_of_a_row_is_searched_on_every_route(store: SessionDB) -> None:
    store.create_session("s", "cli")
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"q": "' + TEXT + '"}'}}
    rows = [store.append_message("s", "assistant", None, tool_calls=[call])]
    rows += say(store, "x", role="tool", tool_name=TEXT)
    rows += say(store, [{"type": "text", "text": "part"}, {"type": "text", "text": TEXT}])
    rows += [say(store, TEXT, role=role)[0] for role in ("system", "assistant", "tool", "developer")]
    assert_found(store, *rows)


def test_reasoning_is_found_when_it_is_asked_for(store: SessionDB) -> None:
    store.create_session("s", "cli")
    rows = [
        store.append_message("s", "assistant", "answer", **dict[str, Any]({key: TEXT}))
        for key in ("reasoning", "reasoning_content")
    ]
    store.append_messages_batch(
        "s", [user("x", reasoning=TEXT), assistant("hidden", reasoning=TEXT, display_kind="hidden")]
    )
    rewound = store.append_message("s", "user", "again")
    store.append_message("s", "assistant", "later", reasoning=TEXT)
    store.rewind_to_message("s", rewound)
    assert_found(store)
    assert_found(store, *rows, include_reasoning=True)
    for query in ROUTES:
        for hit in store.search_messages(query, include_reasoning=True):
            assert hit["snippet"]
    (said,) = say(store, TEXT)
    assert_found(store, said)
    assert_found(store, *rows, said, include_reasoning=True)


def test_wildcards_of_the_database_are_plain_signs(store: SessionDB) -> None:
    say(store, "userXauth", "1000", "\u8bb0\u5fc6\u65ad", "a\\b \u8bb0_\u65ad \u8bb0%\u65ad")
    assert found(store, "user_auth") == []
    assert found(store, "100%") == []
    rows = found(store, "\u65ad")
    assert found(store, "\u8bb0_\u65ad") == found(store, "\u8bb0%\u65ad") == rows[1:]
    assert found(store, '"\u8bb0_\u65ad"') == rows[1:]
