"""Lists of sessions (issue 6, item 1; known-store.md 2.5 and 8; weak points W6 to W8, W10, W11, W26; field reports H2, L8, P)."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_state import InvalidArgumentError, SessionDB
from tests.support.builders import assistant, user
from tests.support.raw import RawSql
from tests.support.statements import QueryRecorder


def ids(sessions: list[Any]) -> list[str]:
    return [session["id"] for session in sessions]


def at(raw: RawSql, session_id: str, started: float, active: float | None = None) -> None:
    raw("UPDATE sessions SET started_at = ?, last_active_at = ? WHERE id = ?", started, active, session_id)


@pytest.fixture
def store(db: SessionDB, raw: RawSql) -> SessionDB:
    """Roots a to d, of which b was compressed twice and a has a branch, a delegate and a tool run."""
    for number, name in enumerate("abcd"):
        db.create_session(name, "cli" if name != "d" else "telegram", cwd=f"/w/{name}")
        db.append_messages_batch(name, [user(f"question of {name}"), assistant("answer")])
        at(raw, name, 100.0 + number, 200.0 + number)
    db.publish_continuation("b", "b2", [user("summary one")])
    db.publish_continuation("b2", "b3", [user("summary two"), user("more")])
    db.create_branch("a", "branch")
    db.create_session("delegate", "cli", parent_session_id="a", model_config={"_delegate_from": "a"})
    db.create_session("run", "tool", parent_session_id="a")
    for number, name in enumerate(("b2", "b3", "branch", "delegate", "run")):
        at(raw, name, 110.0 + number, 300.0 + number)
    return db


def test_roots_and_branches_are_listed_by_their_start(store: SessionDB) -> None:
    assert ids(store.list_sessions_rich(project_compression_tips=False)) == ["branch", "d", "c", "b", "a"]
    assert store.session_count() == 5
    everything = ids(store.list_sessions_rich(include_children=True))
    assert everything == ["run", "delegate", "branch", "b3", "b2", "d", "c", "b", "a"]
    assert store.session_count(exclude_children=False) == 9


def test_a_compressed_session_is_shown_as_its_live_end(store: SessionDB) -> None:
    shown = next(s for s in store.list_sessions_rich() if s.get("_lineage_root_id") == "b")
    assert shown["id"] == "b3"
    assert (shown["started_at"], shown["message_count"], shown["end_reason"]) == (101.0, 2, None)
    assert shown["preview"] == "summary two"
    assert shown["last_active"] == 301.0
    assert all("_lineage_root_id" not in s for s in store.list_sessions_rich() if s["id"] != "b3")


def test_a_conversation_counts_at_its_most_recently_active_session(store: SessionDB, raw: RawSql) -> None:
    assert ids(store.list_sessions_rich(order_by_last_active=True)) == ["branch", "b3", "d", "c", "a"]
    raw("UPDATE sessions SET last_active_at = 999 WHERE id = 'b2'")
    found = store.list_sessions_rich(order_by_last_active=True)
    assert ids(found) == ["b3", "branch", "d", "c", "a"]
    assert found[0]["last_active"] == 999.0
    raw("UPDATE sessions SET last_active_at = NULL WHERE id = 'd'")
    assert ids(store.list_sessions_rich(order_by_last_active=True))[-1] == "d"
    assert ids(store.search_sessions(limit=2)) == ["b2", "run"]


@pytest.mark.parametrize("by_activity", [True, False])
@pytest.mark.parametrize("children", [True, False])
def test_pages_by_offset_and_by_cursor_hold_every_session_once(
    store: SessionDB, raw: RawSql, by_activity: bool, children: bool
) -> None:
    raw("UPDATE sessions SET started_at = 5, last_active_at = 5 WHERE id IN ('c', 'd', 'branch', 'run')")
    options: dict[str, Any] = {"order_by_last_active": by_activity, "include_children": children}
    whole = ids(store.list_sessions_rich(limit=100, **options))
    assert len(whole) == len(set(whole)) == store.session_count(exclude_children=not children)
    by_offset = [ids(store.list_sessions_rich(limit=2, offset=n, **options)) for n in range(0, 10, 2)]
    assert [each for page in by_offset for each in page] == whole
    by_cursor: list[str] = []
    cursor = None
    while True:
        page = store.list_sessions_page(limit=2, cursor=cursor, **options)
        by_cursor += ids(page["sessions"])
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert by_cursor == whole


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "bm9wZQ==", "W10=", "W1tdLCAiYSJd", "WyJcdWQ4MDAiLCAieCJd", "W3RydWUsICJ4Il0=", 7, "\ud800"],
)
def test_a_bogus_cursor_is_refused(store: SessionDB, cursor: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        store.list_sessions_page(cursor=cursor)


def test_filters_of_lists_and_counts_are_the_same(store: SessionDB, raw: RawSql) -> None:
    raw("UPDATE sessions SET archived = ? WHERE id = 'c'", True)
    raw("UPDATE sessions SET hidden = ? WHERE id = 'd'", True)
    store.set_session_pinned("a", True)
    filters: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ["branch", "b", "a"]),
        ({"include_archived": True}, ["branch", "c", "b", "a"]),
        ({"archived_only": True}, ["c"]),
        ({"include_hidden": True}, ["branch", "d", "b", "a"]),
        ({"source": "telegram", "include_hidden": True}, ["d"]),
        ({"sources": []}, []),
        ({"sources": ["cli", "nope"]}, ["branch", "b", "a"]),
        ({"exclude_sources": ["cli"], "include_hidden": True}, ["d"]),
        ({"exclude_sources": []}, ["branch", "b", "a"]),
        ({"min_message_count": 3}, []),
        ({"min_message_count": 1}, ["branch", "b", "a"]),
        ({"pinned": True}, ["a"]),
        ({"pinned": False}, ["branch", "b"]),
        ({"cwd_prefix": "/w/b"}, ["b"]),
        ({"cwd_prefix": "/w/"}, ["branch", "b", "a"]),
        ({"id_query": "B3"}, ["b"]),
        ({"id_query": "%"}, []),
        ({"session_key": "k"}, []),
    ]
    for given, wanted in filters:
        found = ids(store.list_sessions_rich(project_compression_tips=False, **given))
        assert found == wanted, given
        assert store.session_count(**given) == len(wanted), given
        assert store.session_count_ge(len(wanted), **given)
        assert not store.session_count_ge(len(wanted) + 1, **given)
        assert sum(store.session_count_by_source(**given).values()) == len(wanted)


@pytest.mark.parametrize(
    ("cwd", "prefix", "is_in"),
    [
        ("/w/my_proj", "/w/my_proj", True), ("/w/myXproj", "/w/my_proj", False), ("/w/my_proj/sub", "/w/my_proj", True),
        ("/w/my_proj2", "/w/my_proj", False), ("C:\\dir\\f", "C:\\dir", True), ("C:dirX", "C:\\dir", False),
        ("/w/100%/a", "/w/100%", True), ("/w/1000/a", "/w/100%", False), ("/w", "/w/", True), ("/W", "/w", False),
    ],
)  # fmt: skip
def test_a_folder_is_literal_and_ends_at_a_separator(
    db: SessionDB, cwd: str, prefix: str, is_in: bool
) -> None:
    db.create_session("s", "cli", cwd=cwd)
    assert ids(db.list_sessions_rich(cwd_prefix=prefix)) == (["s"] if is_in else [])


def test_words_of_a_search_ignore_case_and_punctuation(db: SessionDB) -> None:
    for name, title in (("s-1", "Fix: user_auth (again)"), ("s-2", "user auth"), ("s-3", None)):
        db.create_session(name, "cli")
        db.set_session_title(name, title)
    assert ids(db.list_sessions_rich(search_query="USER-auth")) == ["s-2", "s-1"]
    assert ids(db.list_sessions_rich(search_query="auth, fix")) == ["s-1"]
    assert ids(db.list_sessions_rich(search_query="s 3")) == ["s-3"]
    assert ids(db.list_sessions_rich(search_query="%")) == []


def test_a_preview_is_the_first_shown_user_text_in_one_line(db: SessionDB, raw: RawSql) -> None:
    texts = {
        "long": "x" * 61,
        "exact": "y" * 60,
        "lines": " a\n\tb  c ",
        "parts": [{"type": "text", "text": "words"}],
    }
    for name, content in texts.items():
        db.create_session(name, "cli")
        db.append_message(name, "system", "no preview")
        db.append_message(name, "user", "scaffolding", display_kind="hidden")
        taken_back = db.append_message(name, "user", "taken back")
        db.rewind_to_message(name, taken_back)
        db.append_message(name, "user", content)
        db.append_message(name, "user", "second")
    db.create_session("empty", "cli")
    previews = {s["id"]: s["preview"] for s in db.list_sessions_rich()}
    assert previews == {
        "long": "x" * 60 + "...",
        "exact": "y" * 60,
        "lines": "a b c",
        "parts": "words",
        "empty": "",
    }


def test_odd_rows_of_other_programs_break_no_list(db: SessionDB, raw: RawSql, backend: str) -> None:
    db.create_session("good", "cli")
    raw("INSERT INTO sessions (id) VALUES ('bare')")
    raw("INSERT INTO sessions (id, model_config, started_at) VALUES ('broken', '{', 1e300)")
    raw("INSERT INTO sessions (id, parent_session_id, end_reason) VALUES ('x', 'bare', 'compression')")
    raw("INSERT INTO sessions (id, parent_session_id, end_reason) VALUES ('y', 'x', 'compression')")
    raw(
        "UPDATE sessions SET parent_session_id = 'y', kind = 'root', end_reason = 'compression' WHERE id = 'x'"
    )
    if backend == "sqlite":
        raw("INSERT INTO sessions (id, started_at, last_active_at) VALUES ('text', 'yesterday', 'now')")
        raw(
            "INSERT INTO messages (session_id, role, content) VALUES ('bare', 'user', CAST('caf\u00e9' AS BLOB))"
        )
    variants: list[dict[str, Any]] = [{}, {"order_by_last_active": True}, {"include_children": True}]
    for options in variants:
        found = ids(db.list_sessions_rich(limit=100, **options))
        assert {"good", "bare", "broken"} <= set(found)


def test_a_page_is_three_statements(store: SessionDB, statements: QueryRecorder) -> None:
    for limit in (1, 50):
        statements.clear()
        store.list_sessions_rich(limit=limit, order_by_last_active=True)
        assert len(statements.texts) <= 3
    assert store.list_sessions_rich(limit=0) == []


def test_ids_are_searched_exact_first_then_by_beginning_then_inside(db: SessionDB, raw: RawSql) -> None:
    for name in ("xAB", "ab", "abc", "100%", "other"):
        db.create_session(name, "cli")
    raw("UPDATE sessions SET archived = ? WHERE id = 'abc'", True)
    assert ids(db.search_sessions_by_id("AB")) == ["ab", "abc", "xAB"]
    assert ids(db.search_sessions_by_id("ab", include_archived=False)) == ["ab", "xAB"]
    assert ids(db.search_sessions_by_id("%")) == ["100%"]
    for nothing in ("", "\0", None, 7, "\ud800"):
        assert db.search_sessions_by_id(nothing) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {"limit": -1}, {"offset": -1}, {"limit": "1"}, {"limit": True}, {"min_message_count": -1}, {"source": 7},
        {"sources": "cli"}, {"exclude_sources": "cli"}, {"exclude_sources": [7]}, {"cwd_prefix": 7}, {"id_query": b"x"},
        {"search_query": ["x"]}, {"limit": 2**63},
    ],
)  # fmt: skip
def test_an_unfit_option_is_refused(store: SessionDB, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        store.list_sessions_rich(**options)


def test_an_unknown_filter_is_a_programming_error(store: SessionDB) -> None:
    with pytest.raises(TypeError):
        store.session_count(colour="red")


def test_queries_with_nul_and_surrogates_find_nothing(store: SessionDB) -> None:
    for name in ("source", "cwd_prefix", "id_query", "search_query", "session_key"):
        for text in ("\0", "\ud800"):
            options: dict[str, Any] = {name: text}
            assert store.list_sessions_rich(**options) == []


def test_the_state_of_sessions_follows_their_last_live_row(db: SessionDB, raw: RawSql) -> None:
    for name in ("done", "asked", "calling", "failed", "empty", "rewound"):
        db.create_session(name, "cli")
    db.append_messages_batch("done", [user(), assistant("a")])
    db.append_messages_batch("asked", [user()])
    db.append_message("calling", "assistant", None, tool_calls=[{"id": "1"}])
    db.append_message("failed", "assistant", "x", finish_reason="error")
    db.rewind_to_message("rewound", db.append_message("rewound", "user", "x"))
    wanted: list[Any] = [
        "done",
        "asked",
        "calling",
        "failed",
        "empty",
        "rewound",
        "nobody",
        "",
        None,
        7,
        "\0",
    ]
    assert db.session_lifecycle_statuses(wanted) == {
        "done": "complete", "asked": "interrupted", "calling": "interrupted", "failed": "error", "empty": "empty",
        "rewound": "empty",
    }  # fmt: skip
    times = db.last_user_assistant_message_times(wanted)
    assert times["empty"] == {"user": None, "assistant": None}
    assert times["asked"]["user"] is not None
    assert times["asked"]["assistant"] is None


def test_marks_of_the_owner_never_go_back_in_time(db: SessionDB, session: str, raw: RawSql) -> None:
    assert db.set_session_last_read(session, 500.0)
    assert db.set_session_last_read(session, 400.0)
    assert db.touch_session_activity(session, "thinking", "agent", 500.0)
    assert db.touch_session_activity(session, "late news", "agent", 400.0)
    assert raw("SELECT last_read_at, last_activity_at, last_activity_description FROM sessions") == [
        (500.0, 500.0, "thinking")
    ]
    assert db.set_session_pinned(session, True)
    assert db.set_session_hidden(session, True)
    assert db.list_sessions_rich() == []
    for unknown in ("nobody", "", "\0"):
        assert not db.set_session_pinned(unknown, True)
        assert not db.touch_session_activity(unknown)
    for bad in ("x", float("nan"), -1, 1e300):
        with pytest.raises(InvalidArgumentError):
            db.touch_session_activity(session, at=bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError):
        db.set_session_pinned(session, 2)  # type: ignore[arg-type]


def test_folders_are_counted(store: SessionDB, raw: RawSql) -> None:
    raw("UPDATE sessions SET cwd = '/w/a' WHERE id = 'b'")
    found = store.distinct_session_cwds()
    assert {each["cwd"]: each["sessions"] for each in found}["/w/a"] >= 2
    assert [each["last_active"] for each in found] == sorted(
        (each["last_active"] for each in found), reverse=True
    )
