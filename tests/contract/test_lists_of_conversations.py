"""Filters, flags and cursors mean the whole conversation and any value (issue 6, item 1; field report P)."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from hermes_state import InvalidArgumentError, SessionDB
from tests.support.builders import assistant, user
from tests.support.raw import RawSql


def ids(sessions: list[Any]) -> list[str]:
    return [session["id"] for session in sessions]


@pytest.fixture
def chain(db: SessionDB) -> SessionDB:
    """A conversation "one" -> "two" -> "three" whose parts differ in title, id and size, and a plain session "other"."""
    db.create_session("one", "cli")
    db.append_messages_batch("one", [user("q"), assistant("a")])
    db.publish_continuation("one", "two", [user("summary")])
    db.publish_continuation("two", "three", [user("summary"), *[user(str(n)) for n in range(6)]])
    db.create_session("other", "cli")
    return db


@pytest.mark.parametrize(
    "filters", [{"search_query": "Garden"}, {"id_query": "HREE"}, {"min_message_count": 5}, {"search_query": "three"}]
)  # fmt: skip
def test_a_conversation_is_found_by_what_any_of_its_sessions_is(
    chain: SessionDB, filters: dict[str, Any]
) -> None:
    chain.set_session_title("three", "the garden")
    assert ids(chain.list_sessions_rich(**filters)) == ["three"]
    assert chain.session_count(**filters) == 1
    assert ids(chain.list_sessions_rich(include_children=True, **filters)) == ["three"]


def test_the_words_of_a_search_are_in_one_session(chain: SessionDB) -> None:
    chain.set_session_title("one", "red")
    chain.set_session_title("three", "blue")
    assert ids(chain.list_sessions_rich(search_query="red")) == ["three"]
    assert chain.list_sessions_rich(search_query="red blue") == []


@pytest.mark.parametrize("name", ["one", "two", "three"])
@pytest.mark.parametrize("flag", ["pinned", "hidden", "archived"])
def test_a_flag_is_set_for_the_whole_conversation_by_any_of_its_ids(
    chain: SessionDB, raw: RawSql, name: str, flag: str
) -> None:
    setter = getattr(chain, f"set_session_{flag}")
    assert setter(name, True)
    assert raw.column(f"SELECT id FROM sessions WHERE {flag} ORDER BY id") == ["one", "three", "two"]
    assert ids(chain.list_sessions_rich()) == (["other", "three"] if flag == "pinned" else ["other"])
    only: dict[str, Any] = {"archived_only" if flag == "archived" else flag: True}
    assert ids(chain.list_sessions_rich(**only)) == ["three"]
    assert chain.session_count(**only) == 1
    assert setter("two", False)
    assert raw.column(f"SELECT id FROM sessions WHERE {flag}") == []


@pytest.mark.parametrize("flag", ["pinned", "hidden", "archived"])
def test_what_continues_a_conversation_takes_its_flags_over(chain: SessionDB, flag: str) -> None:
    getattr(chain, f"set_session_{flag}")("one", True)
    chain.publish_continuation("three", "four", [user("summary")])
    chain.create_branch("three", "branch")
    only: dict[str, Any] = {"archived_only" if flag == "archived" else flag: True}
    assert ids(chain.list_sessions_rich(**only)) == ["four"]


def test_hidden_conversations_can_be_asked_for(chain: SessionDB) -> None:
    chain.set_session_hidden("other", True)
    assert ids(chain.list_sessions_rich(hidden=True)) == ["other"]
    assert ids(chain.list_sessions_rich(hidden=False, include_hidden=True)) == ["three"]
    assert chain.session_count(include_hidden=True) == 2


@pytest.mark.parametrize(
    ("title", "query", "is_found"),
    [
        ("Ärger im Büro", "Ärger", True), ("Ärger im Büro", "ärger", False), ("ÇA VA", "ÇA", True), ("ÇA VA", "Ça", True),
        ("ПРИВЕТ", "ПРИВЕТ", True), ("user_auth", "userauth", True), ("don't", "dont", True), ("100% sure", "%", False),
        ("İstanbul", "İstanbul", True), ("Kelvin K", "\u212a", False), ("修复 记忆", "记忆", True),
    ],
)  # fmt: skip
def test_letters_are_found_as_written_and_case_counts_beyond_a_to_z(
    db: SessionDB, title: str, query: str, is_found: bool
) -> None:
    db.create_session("s", "cli")
    db.set_session_title("s", title)
    assert ids(db.list_sessions_rich(search_query=query)) == (["s"] if is_found else [])


@pytest.mark.parametrize("query", ["Ä1", "ä1"])
def test_ids_with_capital_letters_beyond_ascii_are_found_as_written(db: SessionDB, query: str) -> None:
    db.create_session(query, "cli")
    assert ids(db.search_sessions_by_id(query)) == [query]
    assert ids(db.list_sessions_rich(id_query=query)) == [query]


@pytest.mark.parametrize("children", [True, False])
@pytest.mark.parametrize("by_activity", [True, False])
def test_a_cursor_goes_on_behind_times_of_any_type(
    db: SessionDB, raw: RawSql, backend: str, by_activity: bool, children: bool
) -> None:
    for name in ("a", "b", "c", "d", "e", "f"):
        db.create_session(name, "cli")
    if backend == "sqlite":
        for name, odd in (
            ("b", "'yesterday'"),
            ("c", "x'ff00'"),
            ("d", "'\u00e4'"),
            ("e", "-7"),
            ("f", "7"),
        ):
            raw(f"UPDATE sessions SET started_at = {odd}, last_active_at = {odd} WHERE id = '{name}'")
    options: dict[str, Any] = {"order_by_last_active": by_activity, "include_children": children}
    found: list[str] = []
    cursor = None
    for _ in range(10):
        page = db.list_sessions_page(limit=1, cursor=cursor, **options)
        found += ids(page["sessions"])
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == ids(db.list_sessions_rich(**options))
    assert len(found) == 6


@pytest.mark.parametrize(
    "value",
    [
        [1.0, "\ud800"], [float("nan"), "a"], [10**400, "a"], [1.0, None], [1.0, 7], [None, "a"], [1.0], [{"blob": "zz"}, "a"],
        [{}, "a"], [[1.0], "a"], {"a": 1}, [1.0, "a", "b"],
    ],
)  # fmt: skip
def test_a_crafted_cursor_is_refused(chain: SessionDB, value: Any) -> None:
    cursor = base64.urlsafe_b64encode(json.dumps(value).encode()).decode()
    with pytest.raises(InvalidArgumentError, match="next_cursor"):
        chain.list_sessions_page(cursor=cursor)


def test_no_cursor_escapes_the_typed_errors(chain: SessionDB) -> None:
    for value in (
        [1.0, "\0"],
        [1e999, "a"],
        ["text", "a"],
        [{"blob": "ff"}, "a"],
        [True, "a"],
        [1.0, "x" * 100_000],
    ):
        cursor = base64.urlsafe_b64encode(json.dumps(value).encode()).decode()
        try:
            page = chain.list_sessions_page(cursor=cursor)
        except InvalidArgumentError:
            continue
        assert {session["id"] for session in page["sessions"]} <= {"three", "other"}
    nested = base64.urlsafe_b64encode(b"[" * 100_000).decode()
    with pytest.raises(InvalidArgumentError):
        chain.list_sessions_page(cursor=nested)


@pytest.mark.parametrize(
    "options",
    [
        {"pinned": 2}, {"pinned": "yes"}, {"include_archived": "no"}, {"archived_only": 1}, {"include_hidden": 0},
        {"hidden": "true"}, {"include_children": []}, {"sources": 7}, {"sources": b"cli"}, {"exclude_sources": 7}, {"id_query": 0},
        {"search_query": False}, {"cwd_prefix": b""}, {"min_message_count": True},
    ],
)  # fmt: skip
def test_a_filter_of_another_type_is_refused(chain: SessionDB, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        chain.list_sessions_rich(**options)
    with pytest.raises(InvalidArgumentError):
        chain.session_count(**options)


@pytest.mark.parametrize("given", [None, "one", b"one", 7])
def test_a_list_of_ids_is_a_list(chain: SessionDB, given: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        chain.session_lifecycle_statuses(given)
    with pytest.raises(InvalidArgumentError):
        chain.last_user_assistant_message_times(given)
