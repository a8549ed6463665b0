"""What children take over, and the setters of a session (known store, section 2.2; DESIGN.md, decision 4)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from hermes_state import InvalidArgumentError, SessionDB
from tests.conftest import OpenDb
from tests.support.builders import user
from tests.support.raw import RawSql

WORKSPACE = {"cwd": "/work", "git_branch": "main", "git_repo_root": "/work"}
ROUTING = {"user_id": "u", "session_key": "k", "chat_id": "c", "chat_type": "dm", "thread_id": "t"}


def columns(raw: RawSql, names: Any, session_id: str) -> dict[str, Any]:
    ((*values,),) = raw(f"SELECT {', '.join(names)} FROM sessions WHERE id = ?", session_id)
    return dict(zip(names, values, strict=True))


def lineage_columns(raw: RawSql, session_id: str) -> tuple[Any, ...]:
    return raw("SELECT kind, root_session_id FROM sessions WHERE id = ?", session_id)[0]


@pytest.fixture
def parent(db: SessionDB) -> str:
    return db.create_session("s", "cli", **WORKSPACE, **ROUTING)


def test_a_child_works_where_its_parent_does(db: SessionDB, raw: RawSql, parent: str) -> None:
    db.create_session("child", "cli", parent_session_id="s")
    assert columns(raw, WORKSPACE, "child") == WORKSPACE
    assert columns(raw, ROUTING, "child") == dict.fromkeys(ROUTING)


def test_what_a_child_is_given_wins(db: SessionDB, raw: RawSql, parent: str) -> None:
    db.create_session("child", "cli", parent_session_id="s", git_branch="topic")
    assert columns(raw, WORKSPACE, "child") == {**WORKSPACE, "git_branch": "topic"}


def test_branch_and_root_of_another_directory_are_not_taken_over(
    db: SessionDB, raw: RawSql, parent: str
) -> None:
    db.create_session("child", "cli", parent_session_id="s", cwd="/elsewhere")
    assert columns(raw, WORKSPACE, "child") == {
        "cwd": "/elsewhere",
        "git_branch": None,
        "git_repo_root": None,
    }


def test_a_continuation_of_a_compressed_parent_talks_to_the_same_people(
    db: SessionDB, raw: RawSql, parent: str
) -> None:
    db.end_session("s", "compression")
    db.create_session("child", "cli", parent_session_id="s", thread_id="own")
    assert columns(raw, ROUTING, "child") == {**ROUTING, "thread_id": "own"}


def test_a_delegate_of_a_compressed_parent_talks_to_nobody(db: SessionDB, raw: RawSql, parent: str) -> None:
    db.end_session("s", "compression")
    db.create_session("d", "cli", parent_session_id="s", model_config={"_delegate_from": "s"})
    assert columns(raw, ROUTING, "d") == dict.fromkeys(ROUTING)
    assert columns(raw, WORKSPACE, "d") == WORKSPACE


def test_a_parent_that_is_filled_in_later_is_inherited_from_too(
    db: SessionDB, raw: RawSql, parent: str
) -> None:
    db.create_session("child", "cli", git_branch="topic")
    db.create_session("child", "cli", parent_session_id="s")
    assert columns(raw, WORKSPACE, "child") == {**WORKSPACE, "git_branch": "topic"}
    assert lineage_columns(raw, "child") == ("continuation", "s")


def test_the_directory_is_set_and_git_data_of_another_one_goes(
    db: SessionDB, raw: RawSql, parent: str
) -> None:
    db.update_session_cwd("s", "/work", git_branch="topic")
    assert columns(raw, WORKSPACE, "s") == {**WORKSPACE, "git_branch": "topic"}
    db.update_session_cwd("s", "/work", git_branch="", git_repo_root=None)
    assert columns(raw, WORKSPACE, "s") == {**WORKSPACE, "git_branch": "topic"}
    db.update_session_cwd("s", "/else", git_repo_root="/else")
    assert columns(raw, WORKSPACE, "s") == {"cwd": "/else", "git_branch": None, "git_repo_root": "/else"}
    db.update_session_cwd("s", None)
    assert columns(raw, WORKSPACE, "s") == dict.fromkeys(WORKSPACE)


@pytest.mark.parametrize("text", ["{", "[]", "1", '"x"', "nul", b"{}", 5, ["a"], {"a": float("nan")}])
def test_a_config_that_is_no_json_object_is_refused(
    db: SessionDB, raw: RawSql, parent: str, text: Any
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        db.update_session_meta("s", text)
    assert caught.value.argument == "model_config_json"
    assert columns(raw, ["model_config"], "s") == {"model_config": None}


def test_a_config_is_kept_as_it_was_given_and_the_model_unless_it_is_given(
    db: SessionDB, raw: RawSql, parent: str
) -> None:
    db.update_session_model("s", "m1")
    db.update_session_meta("s", '{"b": 1,   "a": 2}')
    assert columns(raw, ["model_config", "model"], "s") == {
        "model_config": '{"b": 1,   "a": 2}',
        "model": "m1",
    }
    db.update_session_meta("s", {}, model="m2")
    assert columns(raw, ["model_config", "model"], "s") == {"model_config": None, "model": "m2"}


def test_replacing_the_config_tears_nothing_out_of_its_lineage(
    db: SessionDB, raw: RawSql, parent: str
) -> None:
    db.create_session("b", "cli", parent_session_id="s", model_config={"_branched_from": "s"})
    db.update_session_meta("b", '{"temperature": 1}')
    assert lineage_columns(raw, "b") == ("branch", None)


def test_a_marker_in_a_new_config_decides_and_what_continues_the_session_follows(
    db: SessionDB, raw: RawSql, parent: str
) -> None:
    db.create_session("a", "cli", parent_session_id="s")
    db.create_session("a2", "cli", parent_session_id="a")
    db.create_session("a3", "cli", parent_session_id="a2")
    assert lineage_columns(raw, "a3") == ("continuation", "s")
    db.update_session_meta("a", '{"_branched_from": "s"}')
    assert lineage_columns(raw, "a") == ("branch", None)
    assert [lineage_columns(raw, name) for name in ("a2", "a3")] == [("continuation", "a")] * 2
    assert db.get_conversation_root("a3") == "a"


def test_a_branch_stays_one_when_its_config_is_filled_in(db: SessionDB, raw: RawSql, parent: str) -> None:
    db.create_branch("s", "b", source="unknown")
    db.create_session("b", "telegram", model_config={"temperature": 1})
    assert lineage_columns(raw, "b") == ("branch", None)


def test_a_patch_sets_and_removes_single_keys(db: SessionDB, raw: RawSql, parent: str) -> None:
    db.patch_session_model_config("s", {"a": {"deep": 1}, "b": 2, "c": None})
    db.patch_session_model_config("s", {"a": {"other": 2}, "b": None})
    assert json.loads(columns(raw, ["model_config"], "s")["model_config"]) == {"a": {"other": 2}}
    db.patch_session_model_config("s", {"a": None})
    assert columns(raw, ["model_config"], "s") == {"model_config": None}


def test_a_patch_replaces_what_another_program_left_malformed(
    db: SessionDB, raw: RawSql, parent: str
) -> None:
    raw("UPDATE sessions SET model_config = '{broken' WHERE id = 's'")
    db.patch_session_model_config("s", {"a": 1})
    assert json.loads(columns(raw, ["model_config"], "s")["model_config"]) == {"a": 1}


@pytest.mark.parametrize("patch", ["{}", None, ["a"], {"a": object()}, {1: 2}])
def test_what_is_no_patch_is_refused(db: SessionDB, parent: str, patch: Any) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        db.patch_session_model_config("s", patch)
    assert caught.value.argument == "patch"


def test_a_system_prompt_is_stored_once_per_text(db: SessionDB, raw: RawSql, parent: str) -> None:
    db.create_session("other", "cli", system_prompt="be kind")
    db.update_system_prompt("s", "be kind")
    session = db.get_session("s")
    assert session is not None
    assert session["system_prompt"] == "be kind"
    assert raw.value("SELECT count(*) FROM system_prompts") == 1
    db.update_system_prompt("s", None)
    assert columns(raw, ["system_prompt", "system_prompt_hash"], "s") == {
        "system_prompt": None,
        "system_prompt_hash": None,
    }


def test_a_prompt_of_another_program_is_replaced(db: SessionDB, raw: RawSql, parent: str) -> None:
    raw("UPDATE sessions SET system_prompt = 'old' WHERE id = 's'")
    db.update_system_prompt("s", "new")
    session = db.get_session("s")
    assert session is not None
    assert session["system_prompt"] == "new"


def test_another_model_takes_the_prompt_away_the_same_one_does_not(
    db: SessionDB, raw: RawSql, parent: str
) -> None:
    db.update_session_model("s", "m1")
    db.update_system_prompt("s", "for m1")
    db.update_session_model("s", "m1", provider="p")
    names = ["model", "model_config", "system_prompt_hash"]
    same = columns(raw, names, "s")
    assert (same["model"], json.loads(same["model_config"])) == ("m1", {"provider": "p"})
    assert same["system_prompt_hash"] is not None
    db.update_session_model("s", "m2")
    assert columns(raw, names, "s") == {**same, "model": "m2", "system_prompt_hash": None}


def test_the_billing_route_is_set_and_its_mode_kept(db: SessionDB, raw: RawSql, parent: str) -> None:
    db.update_session_billing_route("s", provider="p", base_url="u", billing_mode="flat")
    db.update_session_billing_route("s", provider="p2", base_url=None)
    names = ["billing_provider", "billing_base_url", "billing_mode"]
    assert columns(raw, names, "s") == {
        "billing_provider": "p2",
        "billing_base_url": None,
        "billing_mode": "flat",
    }


def test_setters_clean_their_text_and_refuse_what_is_none(db: SessionDB, raw: RawSql, parent: str) -> None:
    db.update_session_cwd("s", "/a\0b\ud800")
    assert columns(raw, ["cwd"], "s") == {"cwd": "/a\ufffdb\ufffd"}
    unfit: Any = 1
    changes: list[Callable[[], None]] = [
        lambda: db.update_session_cwd("s", unfit),
        lambda: db.update_system_prompt("s", unfit),
        lambda: db.update_session_model("s", unfit),
        lambda: db.update_session_billing_route("s", provider=unfit, base_url=None),
    ]
    for change in changes:
        with pytest.raises(InvalidArgumentError):
            change()


@pytest.mark.parametrize("session_id", ["unknown", "", "\0", "\ud800"])
def test_setters_of_an_unknown_session_do_nothing(db: SessionDB, raw: RawSql, session_id: str) -> None:
    db.update_session_cwd(session_id, "/x")
    db.update_session_meta(session_id, "{}", "m")
    db.patch_session_model_config(session_id, {"a": 1})
    db.update_system_prompt(session_id, "p")
    db.update_session_model(session_id, "m", "p")
    db.update_session_billing_route(session_id, provider="p", base_url="u")
    assert raw("SELECT id FROM sessions") == []


def test_setters_are_no_activity(db: SessionDB, raw: RawSql, parent: str) -> None:
    db.append_messages_batch("s", [user("x", timestamp=50.0)])
    db.update_session_cwd("s", "/x")
    db.patch_session_model_config("s", {"a": 1})
    db.update_session_model("s", "m")
    db.set_session_archived("s", True)
    assert columns(raw, ["last_active_at"], "s") == {"last_active_at": 50.0}


def test_a_prompt_that_nobody_uses_any_more_goes(db: SessionDB, raw: RawSql) -> None:
    for name in ("a", "b"):
        db.create_session(name, "cli", model="m", system_prompt="shared")
    db.update_system_prompt("a", "own")
    assert raw.column("SELECT prompt FROM system_prompts ORDER BY prompt") == ["own", "shared"]
    db.update_session_model("b", "other model")
    assert raw.column("SELECT prompt FROM system_prompts") == ["own"]
    db.update_system_prompt("a", "own")
    assert raw.column("SELECT prompt FROM system_prompts") == ["own"]
    db.update_system_prompt("a", None)
    assert raw.column("SELECT prompt FROM system_prompts") == []


def test_a_prompt_is_not_lost_to_a_session_that_takes_it_up_at_the_same_time(
    open_db: OpenDb, raw: RawSql
) -> None:
    db = open_db()
    for _ in range(10):
        db.create_session("last user", "cli", system_prompt="shared")
        db.update_system_prompt("last user", "shared")
        barrier = threading.Barrier(2)

        def take_up(barrier: threading.Barrier = barrier) -> None:
            barrier.wait(10)
            db.create_session("new user", "cli", system_prompt="shared")

        thread = threading.Thread(target=take_up)
        thread.start()
        barrier.wait(10)
        db.update_system_prompt("last user", None)
        thread.join()
        session = db.get_session("new user")
        assert session is not None
        assert session["system_prompt"] == "shared"
        raw("DELETE FROM sessions WHERE id = 'new user'")
