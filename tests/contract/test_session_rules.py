"""Sessions: creating, filling, classifying, ending, resolving, listing (DESIGN.md, decision 4; field reports M, A4)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hermes_state import InvalidArgumentError, ParentNotFoundError, SessionDB
from tests.support.builders import REPLACEMENT, SURROGATE, snapshot, user
from tests.support.raw import RawSql


def columns(raw: RawSql, session_id: str, *names: str) -> tuple[Any, ...]:
    return raw(f"SELECT {', '.join(names)} FROM sessions WHERE id = ?", session_id)[0]


def test_a_later_create_fills_what_is_missing_and_overwrites_nothing(db: SessionDB, raw: RawSql) -> None:
    db.create_session("s", "cli", model="first")
    db.create_session("s", "web", model="second", user_id="u", cwd="/w", system_prompt="be kind")
    assert columns(raw, "s", "source", "model", "user_id", "cwd") == ("cli", "first", "u", "/w")
    db.create_session("s", "unknown", user_id="other", system_prompt="be cruel")
    stored = db.get_session("s")
    assert stored is not None
    assert (stored["user_id"], stored["system_prompt"]) == ("u", "be kind")


def test_the_placeholder_source_is_replaced_and_only_it(db: SessionDB, raw: RawSql) -> None:
    db.ensure_session("s")
    assert columns(raw, "s", "source", "created_source") == ("unknown", "unknown")
    db.create_session("s", "telegram")
    db.create_session("s", "cli")
    assert columns(raw, "s", "source", "created_source") == ("telegram", "telegram")


def test_creating_twice_is_no_error_and_writes_nothing(db: SessionDB, raw: RawSql) -> None:
    assert db.create_session("s", "cli", model="m") == "s"
    before = snapshot(raw)
    assert db.create_session("s", "cli", model="m") == "s"
    assert snapshot(raw) == before


def test_counters_start_at_0(db: SessionDB, session: str, raw: RawSql) -> None:
    assert columns(raw, session, "message_count", "tool_call_count", "last_active_at") == (0, 0, None)


def test_model_config_text_is_kept_to_the_letter(db: SessionDB) -> None:
    text = '{ "b": 1.50,\n "a" : "\\u0041" }'
    db.create_session("s", "cli", model_config=text)
    stored = db.get_session("s")
    assert stored is not None
    assert stored["model_config"] == text


@pytest.mark.parametrize("bad", ["{", "[1]", "7", [1], {1: 2}, {"x": {1, 2}}])
def test_a_model_config_that_is_no_json_object_is_refused(db: SessionDB, raw: RawSql, bad: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        db.create_session("s", "cli", model_config=bad)
    assert snapshot(raw) == []


def test_an_empty_model_config_is_null(db: SessionDB, raw: RawSql) -> None:
    db.create_session("s", "cli", model_config={})
    assert columns(raw, "s", "model_config") == (None,)


def test_a_system_prompt_is_stored_once_and_read_in_full(db: SessionDB, raw: RawSql) -> None:
    for number in range(3):
        db.create_session(f"s{number}", "cli", system_prompt="long prompt")
    assert raw("SELECT prompt FROM system_prompts") == [("long prompt",)]
    raw("INSERT INTO sessions (id, system_prompt) VALUES ('foreign', 'inline')")
    found = [db.get_session(session_id) for session_id in ("s2", "foreign")]
    assert [session["system_prompt"] for session in found if session] == ["long prompt", "inline"]


@pytest.mark.parametrize("key", ["model", "user_id", "session_key", "chat_id", "cwd", "system_prompt"])
def test_nul_and_surrogates_become_the_replacement_character(db: SessionDB, key: str) -> None:
    db.create_session("s", "cli", **{key: f"a\0b{SURROGATE}"})
    stored: Any = db.get_session("s")
    assert stored[key] == f"a{REPLACEMENT}b{REPLACEMENT}"


@pytest.mark.parametrize("bad", ["", "a\0b", SURROGATE, "x" * 513, None, 7])
def test_what_cannot_be_an_id_is_refused_on_create_and_unknown_elsewhere(db: SessionDB, bad: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        db.create_session(bad, "cli")
    assert db.get_session(bad) is None
    assert db.get_messages(bad) == []
    assert db.resolve_session_id(bad) is None
    assert db.message_count(bad) == 0 if bad is not None else True
    db.end_session(bad, "x")


@pytest.mark.parametrize("session_id", ["x" * 512, "汉" * 512, "with space/%_\\'\""])
def test_any_other_text_of_512_characters_is_an_id(db: SessionDB, session_id: str) -> None:
    db.create_session(session_id, "cli")
    db.append_message(session_id, "user", "x", message_uid="u" * 512)
    assert db.resolve_session_id(session_id) == session_id
    assert db.get_messages(session_id)[0]["session_id"] == session_id


@pytest.mark.parametrize(
    ("source", "config", "end_reason", "kind"),
    [
        ("cli", {"_delegate_from": "p", "_branched_from": "p"}, None, "delegate"),
        ("cli", {"_branched_from": "p", "_reset_from": "p"}, None, "branch"),
        ("tool", {"_reset_from": "p"}, None, "root"),
        ("tool", None, None, "tool"),
        ("cli", None, "branched", "branch"),
        ("cli", None, "compression", "continuation"),
        ("cli", None, None, "continuation"),
    ],
)
def test_the_kind_of_a_child_follows_its_markers_and_its_parent(
    db: SessionDB, raw: RawSql, source: str, config: Any, end_reason: str | None, kind: str
) -> None:
    db.create_session("p", "cli")
    if end_reason:
        db.end_session("p", end_reason)
    db.create_session("c", source, model_config=config, parent_session_id="p")
    root = "p" if kind == "continuation" else None
    assert columns(raw, "c", "kind", "root_session_id") == (kind, root)


def test_without_a_parent_a_session_is_a_root_whatever_its_source(db: SessionDB, raw: RawSql) -> None:
    db.create_session("s", "tool")
    assert columns(raw, "s", "kind") == ("root",)


def test_a_parent_filled_in_later_moves_the_whole_chain_below(db: SessionDB, raw: RawSql) -> None:
    db.create_session("b", "cli")
    db.create_session("c", "cli", parent_session_id="b")
    db.create_session("d", "cli", parent_session_id="c")
    db.create_session("a", "cli")
    db.create_session("b", "cli", parent_session_id="a")
    assert raw("SELECT id, root_session_id FROM sessions ORDER BY id") == [
        ("a", None),
        ("b", "a"),
        ("c", "a"),
        ("d", "a"),
    ]


def test_a_parent_must_exist_and_must_not_descend_from_its_child(db: SessionDB, raw: RawSql) -> None:
    with pytest.raises(ParentNotFoundError):
        db.create_session("s", "cli", system_prompt="p", parent_session_id="nobody")
    assert raw("SELECT * FROM system_prompts") == []
    with pytest.raises(InvalidArgumentError):
        db.create_session("s", "cli", parent_session_id="s")
    db.create_session("a", "cli")
    db.create_session("b", "cli", parent_session_id="a")
    with pytest.raises(InvalidArgumentError):
        db.create_session("a", "cli", parent_session_id="b")


def test_the_first_end_reason_wins_and_reopening_is_explicit(
    db: SessionDB, session: str, raw: RawSql
) -> None:
    db.end_session(session, "compression")
    first = columns(raw, session, "ended_at", "end_reason")
    db.end_session(session, "cli_close")
    assert columns(raw, session, "ended_at", "end_reason") == first
    db.reopen_session(session)
    assert columns(raw, session, "ended_at", "end_reason") == (None, None)


def test_prefixes_are_literal_and_case_counts(db: SessionDB) -> None:
    for session_id in ("abc-1", "abc_2", "Abd", "a%c", "日本語"):
        db.create_session(session_id, "cli")
    expected = {
        "abc-1": "abc-1",
        "abc_": "abc_2",
        "A": "Abd",
        "a%": "a%c",
        "日": "日本語",
        "abc": None,
        "_": None,
    }
    assert {prefix: db.resolve_session_id(prefix) for prefix in expected} == expected
    assert db.resolve_session_id("%") is None
    db.create_session("abc", "cli")
    assert db.resolve_session_id("abc") == "abc"


def test_lists_go_from_the_most_recently_active_with_ties_by_id(db: SessionDB, raw: RawSql) -> None:
    for session_id in ("a", "B", "c", "d"):
        db.create_session(session_id, "cli")
    raw("UPDATE sessions SET started_at = 100")
    db.append_messages_batch("a", [user(timestamp=200)])
    found = [session["id"] for session in db.list_sessions()]
    assert found == ["a", "d", "c", "B"]
    assert [session["id"] for session in db.list_sessions(limit=2, offset=1)] == found[1:3]
    assert db.list_sessions(limit=0) == []


def test_children_and_archived_sessions_are_left_out_unless_asked_for(db: SessionDB, raw: RawSql) -> None:
    db.create_session("root", "cli")
    db.create_session("next", "cli", parent_session_id="root")
    db.create_session("branch", "cli", parent_session_id="root", model_config={"_branched_from": "root"})
    db.create_session("hidden", "cli")
    raw("UPDATE sessions SET archived = ? WHERE id = 'hidden'", True)
    assert {session["id"] for session in db.list_sessions()} == {"root", "branch"}
    every = db.list_sessions(include_children=True, include_archived=True)
    assert {session["id"] for session in every} == {"root", "next", "branch", "hidden"}


def test_the_source_filter_is_literal(db: SessionDB) -> None:
    for source in ("cli", "c%", "Cli"):
        db.create_session(source, source)
    assert [session["id"] for session in db.list_sessions(source="c%")] == ["c%"]
    assert db.list_sessions(source="nobody") == []


def test_one_odd_row_of_another_program_breaks_no_list(
    db: SessionDB, session: str, raw: RawSql, backend: str
) -> None:
    raw("INSERT INTO sessions (id, model_config, parent_session_id) VALUES ('odd', '{not json', ?)", session)
    if backend == "sqlite":
        raw(
            "INSERT INTO sessions (id, title, started_at) VALUES ('bytes', CAST(x'ff41' AS TEXT), 'no number')"
        )
    listed = {found["id"] for found in db.list_sessions(include_children=True)}
    assert {"odd", session} <= listed
    odd = db.get_session("odd")
    assert odd is not None
    assert odd["kind"] == "continuation"
    assert json.dumps(db.list_sessions(include_children=True))
