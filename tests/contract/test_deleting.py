"""Deleting sessions (issue 6, item 4; known-store.md 2.12; field reports L1 to L4, L11)."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from hermes_state import InvalidArgumentError, SessionDB, SessionNotFoundError
from tests.conftest import OpenDb
from tests.support.builders import user
from tests.support.raw import RawSql

DEPENDENT = {
    "messages": "session_id",
    "message_reactions": "session_id",
    "session_model_usage": "session_id",
    "session_daily_usage": "session_id",
    "compression_locks": "session_id",
    "session_turn_leases": "conversation_id",
}


def ids(raw: RawSql) -> list[str]:
    return sorted(raw.column("SELECT id FROM sessions"))


def filled(db: SessionDB, session_id: str) -> None:
    """A session with a row in every table that knows of it."""
    db.create_session(session_id, "cli", system_prompt=f"prompt of {session_id}")
    row_id = db.append_message(session_id, "user", "text")
    db.set_message_reaction(session_id, row_id, "+")
    db.update_token_counts(session_id, 1, model="m")
    db.try_acquire_compression_lock(session_id, "me")
    db.acquire_session_turn_lease(session_id, "me")


def test_nothing_of_a_deleted_session_stays(db: SessionDB, raw: RawSql) -> None:
    for name in ("gone", "kept"):
        filled(db, name)
    for table, column in DEPENDENT.items():
        assert sorted(raw.column(f"SELECT {column} FROM {table}")) == ["gone", "kept"], table
    assert db.delete_session("gone") is True
    assert ids(raw) == ["kept"]
    for table, column in DEPENDENT.items():
        assert raw.column(f"SELECT {column} FROM {table}") == ["kept"], table
    assert raw.column("SELECT prompt FROM system_prompts") == ["prompt of kept"]
    assert db.delete_session("gone") is False
    with pytest.raises(SessionNotFoundError):
        db.append_message("gone", "user", "late")


def test_a_prompt_goes_with_the_last_session_that_uses_it(db: SessionDB, raw: RawSql) -> None:
    for name in "abc":
        db.create_session(name, "cli", system_prompt="shared")
    db.delete_sessions(["a", "b"])
    assert raw.column("SELECT prompt FROM system_prompts") == ["shared"]
    db.delete_session("c")
    assert raw.column("SELECT prompt FROM system_prompts") == []


def test_delegates_go_with_their_parent_at_any_depth_and_branches_stay(db: SessionDB, raw: RawSql) -> None:
    db.create_session("p", "cli")
    db.create_session("d", "cli", parent_session_id="p", model_config={"_delegate_from": "p"})
    db.create_session("dd", "cli", parent_session_id="d", model_config={"_delegate_from": "d"})
    both = {"_delegate_from": "p", "_branched_from": "p"}
    db.create_session("both", "cli", parent_session_id="p", model_config=both)
    db.create_session("tool", "tool", parent_session_id="p")
    db.create_branch("p", "branch")
    db.create_session("under-branch", "cli", parent_session_id="branch", model_config={"_delegate_from": "x"})
    raw(
        "INSERT INTO sessions (id, parent_session_id, model_config) VALUES ('raw', 'p', ?)",
        json.dumps({"_delegate_from": "p"}),
    )
    raw("INSERT INTO sessions (id, parent_session_id, model_config) VALUES ('broken', 'p', '{')")
    targets = db.get_session_delete_targets("p")
    assert targets[0] == "p"
    assert sorted(targets) == ["d", "dd", "p", "raw"]
    assert ids(raw).count("p") == 1  # looking deletes nothing
    assert db.delete_sessions(["p"]) == 1
    assert ids(raw) == ["both", "branch", "broken", "tool", "under-branch"]
    left = dict(raw("SELECT id, parent_session_id FROM sessions"))
    assert left == {"both": None, "branch": None, "broken": None, "tool": None, "under-branch": "branch"}
    assert dict(raw("SELECT id, kind FROM sessions"))["branch"] == "branch"


@pytest.mark.parametrize(
    ("deleted", "left"),
    [
        (["a", "b"], {"c": (None, "root", None), "d": ("c", "continuation", "c")}),
        (
            ["b"],
            {"a": (None, "root", None), "c": (None, "root", None), "d": ("c", "continuation", "c")},
        ),
        (["a", "c"], {"b": (None, "root", None), "d": (None, "root", None)}),
        (
            ["d"],
            {"a": (None, "root", None), "b": ("a", "continuation", "a"), "c": ("b", "continuation", "a")},
        ),
    ],
)
def test_what_continues_a_deleted_session_begins_anew(
    db: SessionDB, raw: RawSql, deleted: list[str], left: dict[str, Any]
) -> None:
    db.create_session("a", "cli")
    for parent, child in ("ab", "bc", "cd"):
        db.append_message(parent, "user", parent)
        db.publish_continuation(parent, child, [user(child)])
    assert db.delete_sessions(deleted) == len(deleted)
    found = raw("SELECT id, parent_session_id, kind, root_session_id FROM sessions")
    assert {row[0]: row[1:] for row in found} == left
    assert {row[0] for row in raw("SELECT session_id FROM messages")} == set(left)
    listed = [session["id"] for session in db.list_sessions()]
    assert sorted(listed) == sorted(name for name, place in left.items() if place[1] == "root")


def test_circles_of_parents_end_and_nobody_above_goes(db: SessionDB, raw: RawSql) -> None:
    for name in "abc":
        db.create_session(name, "cli")
    raw("UPDATE sessions SET kind = 'delegate'")
    for name, parent in (("a", "c"), ("b", "a"), ("c", "b")):
        raw("UPDATE sessions SET parent_session_id = ? WHERE id = ?", parent, name)
    assert db.delete_session("a") is True
    assert ids(raw) == ["b", "c"]
    raw("UPDATE sessions SET kind = 'continuation', parent_session_id = NULL")
    raw("UPDATE sessions SET parent_session_id = 'c' WHERE id = 'b'")
    raw("UPDATE sessions SET parent_session_id = 'b' WHERE id = 'c'")
    assert db.delete_session("b") is True
    assert raw("SELECT id, kind, parent_session_id FROM sessions") == [("c", "root", None)]


def test_unknown_empty_and_unfit_ids_are_passed_over(db: SessionDB, raw: RawSql) -> None:
    for name in ("a", "b", "c", "%", "'"):
        db.create_session(name, "cli")
    wanted: list[Any] = ["a", "", None, 7, True, b"b", ["c"], "\0", "\ud800", "nobody", "a", "%", "x" * 600]
    assert db.delete_sessions(wanted) == 2
    assert ids(raw) == ["'", "b", "c"]
    assert db.delete_sessions(each for each in ["b"]) == 1
    assert db.delete_sessions([]) == 0
    for single in ("c", b"c", None, 7, {"c": 1}):
        with pytest.raises(InvalidArgumentError):
            db.delete_sessions(single)  # type: ignore[arg-type]
    for unfit in ("", None, 7, "\0", "%%"):
        assert db.delete_session(unfit) is False  # type: ignore[arg-type]
        assert db.get_session_delete_targets(unfit) == []  # type: ignore[arg-type]
        assert db.delete_session_if_empty(unfit) is False  # type: ignore[arg-type]
    assert ids(raw) == ["'", "c"]


def test_seventy_thousand_ids_are_one_call(db: SessionDB, raw: RawSql) -> None:
    for number in range(5):
        db.create_session(f"s-{number}", "cli")
    assert db.delete_sessions(f"s-{number}" for number in range(1, 70_000)) == 4
    assert ids(raw) == ["s-0"]


def test_only_a_session_without_rows_title_and_children_is_empty(db: SessionDB, raw: RawSql) -> None:
    for name in ("empty", "live", "rewound", "titled", "parent"):
        db.create_session(name, "cli")
    db.append_message("live", "user", "x")
    raw("INSERT INTO messages (session_id, role, active) VALUES ('rewound', 'user', ?)", False)
    db.set_session_title("titled", "t")
    db.create_session("child", "cli", parent_session_id="parent")
    for name in ("live", "rewound", "titled", "parent"):
        assert db.delete_session_if_empty(name) is False
    assert db.delete_session_if_empty("empty") is True
    assert ids(raw) == ["child", "live", "parent", "rewound", "titled"]


def test_the_sweep_takes_ended_sessions_that_never_had_a_message(db: SessionDB, raw: RawSql) -> None:
    names = ("gone", "open", "rows", "taken back", "archived", "pinned", "parent", "boss")
    for name in names:
        db.create_session(name, "cli")
    db.append_message("rows", "user", "x")
    raw("INSERT INTO messages (session_id, role, active) VALUES ('taken back', 'user', ?)", False)
    raw("UPDATE sessions SET archived = ? WHERE id = 'archived'", True)
    raw("UPDATE sessions SET pinned = ? WHERE id = 'pinned'", True)
    raw("UPDATE sessions SET ended_at = 1 WHERE id <> 'open'")
    db.create_session("child", "cli", parent_session_id="parent")
    db.create_session("worker", "cli", parent_session_id="boss", model_config={"_delegate_from": "boss"})
    assert db.count_empty_sessions() == 2
    assert db.delete_empty_sessions() == 2
    assert db.count_empty_sessions() == 0
    assert ids(raw) == sorted({*names, "child", "worker"} - {"gone", "parent"})
    assert raw("SELECT parent_session_id, kind FROM sessions WHERE id = 'child'") == [(None, "root")]


def test_files_of_deleted_sessions_go_and_no_others(db: SessionDB, tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    for name in ("a", "a_b", "a*", "../out"):
        db.create_session(name, "cli")
    db.create_session("d", "cli", parent_session_id="a", model_config={"_delegate_from": "a"})
    own = ["a.json", "a.jsonl", "request_dump_a_1.json", "request_dump_a_2026_01.json", "d.jsonl"]
    others = [
        "a_b.json",
        "request_dump_a_b_1.json",
        "request_dump_a.json",
        "ab.json",
        "a.txt",
        "request_dump_ab_1.json",
    ]
    for name in [*own, *others]:
        (folder / name).write_text("x")
    (folder / "a*.json").mkdir()  # cannot be removed as a file
    outside = tmp_path / "out.json"
    outside.write_text("x")
    assert db.delete_session("a", sessions_dir=folder) is True
    assert sorted(path.name for path in folder.iterdir()) == sorted([*others, "a*.json"])
    assert db.delete_sessions(["a*", "../out"], sessions_dir=str(folder)) == 2
    assert outside.exists()
    assert sorted(path.name for path in folder.iterdir()) == sorted([*others, "a*.json"])
    assert db.delete_session("a_b", sessions_dir=tmp_path / "missing") is True
    db.create_session("e", "cli")
    for unfit in (7, b"x", "", "\0"):
        with pytest.raises(InvalidArgumentError):
            db.delete_session("e", sessions_dir=unfit)  # type: ignore[arg-type]
    assert db.get_session("e") is not None


def test_a_file_that_may_belong_to_two_sessions_is_that_of_the_longest_id(
    db: SessionDB, tmp_path: Path
) -> None:
    for name in ("s", "request_dump_s_1", "s_1"):
        db.create_session(name, "cli")
    for name in ("request_dump_s_1.json", "request_dump_s_2.json", "request_dump_s_1_2.json", "s_1.json"):
        (tmp_path / name).write_text("x")

    def left() -> list[str]:
        return sorted(path.name for path in tmp_path.glob("*.json"))

    db.delete_session("s", tmp_path)
    assert left() == ["request_dump_s_1.json", "request_dump_s_1_2.json", "s_1.json"]
    db.delete_session("s_1", tmp_path)
    assert left() == ["request_dump_s_1.json"]
    db.delete_session("request_dump_s_1", tmp_path)
    assert left() == []


@pytest.mark.parametrize(
    "session_id", ["../x", "a/b", "*", "?", "[a-c]bc", "..", ".", "~", "\\x", "-rf", "x\n", "%s", "x'y", "/x"]
)
def test_no_id_reaches_the_file_of_another(db: SessionDB, tmp_path: Path, session_id: str) -> None:
    folder = tmp_path / "in"
    (folder / "a").mkdir(parents=True)
    kept = [
        tmp_path / "x.json",
        folder / "a" / "b.json",
        folder / "b.json",
        folder / "abc.json",
        folder / "x.json",
    ]
    kept += [folder / "request_dump_abc_1.json", folder / ".json"]
    for path in kept:
        path.write_text("x")
    db.create_session(session_id, "cli")
    assert db.delete_session(session_id, folder) is True
    assert all(path.exists() for path in kept)


def test_without_a_folder_no_file_is_touched_and_a_failure_leaves_them(
    db: SessionDB, raw: RawSql, tmp_path: Path
) -> None:
    db.create_session("a", "cli")
    (tmp_path / "a.json").write_text("x")
    with pytest.raises(InvalidArgumentError):
        db.delete_sessions("a", sessions_dir=tmp_path)
    assert (tmp_path / "a.json").exists()
    assert db.delete_session("a") is True
    assert (tmp_path / "a.json").exists()


def test_a_delete_in_a_unit_of_work_is_undone_with_it(db: SessionDB, raw: RawSql) -> None:
    db.create_session("a", "cli", system_prompt="p")
    with pytest.raises(SessionNotFoundError), db.unit_of_work() as uow:
        uow.messages.append("nobody" if uow.deleting.delete(["a"]) == (1, ["a"]) else "a", "user", "x")
    assert ids(raw) == ["a"]
    assert raw.column("SELECT prompt FROM system_prompts") == ["p"]


def test_delegates_made_while_the_parent_is_deleted_leave_nothing_behind(
    open_db: OpenDb, raw: RawSql
) -> None:
    """Each delegate was there in time and went, or came too late and was refused: none is left without its parent."""
    db = open_db()
    for turn in range(5):
        db.create_session("p", "cli")
        refused: list[Exception] = []

        def work(turn: int = turn, refused: list[Exception] = refused) -> None:
            for number in range(10):
                try:
                    config = {"_delegate_from": "p"}
                    db.create_session(f"{turn}-{number}", "cli", parent_session_id="p", model_config=config)
                except LookupError as error:
                    refused.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        db.delete_session("p")
        thread.join()
        assert ids(raw) == []


def test_an_empty_session_that_somebody_holds_is_kept(db: SessionDB, raw: RawSql) -> None:
    for name in ("turn", "lock", "late", "free"):
        db.create_session(name, "cli")
    db.acquire_session_turn_lease("turn", "somebody")
    assert db.try_acquire_compression_lock("lock", "somebody")
    db.acquire_session_turn_lease("late", "somebody")
    raw("UPDATE session_turn_leases SET expires_at = 1 WHERE conversation_id = 'late'")
    raw("UPDATE sessions SET ended_at = 5")
    assert db.count_empty_sessions() == 2
    assert db.delete_empty_sessions() == 2
    assert sorted(raw.column("SELECT id FROM sessions")) == ["lock", "turn"]
