"""Walks through lineages: tips, chains, roots, resuming (issue 3, item 3; known store, section 2.4, W8, W39)."""

from __future__ import annotations

import pytest

from hermes_state import InvalidArgumentError, SessionDB
from tests.support.builders import assistant, user
from tests.support.raw import RawSql
from tests.support.statements import QueryRecorder

LONG = 1_000


def insert(
    raw: RawSql, session_id: str, parent: str | None = None, *, ended: str | None = None, started: float = 1.0
) -> None:
    """A session as another program writes it: few columns, no kind, no root."""
    raw(
        "INSERT INTO sessions (id, source, parent_session_id, started_at, ended_at, end_reason)"
        " VALUES (?, 'cli', ?, ?, ?, ?)",
        session_id,
        parent,
        started,
        None if ended is None else started + 1,
        ended,
    )


def insert_chain(raw: RawSql, length: int) -> list[str]:
    ids = [f"c{i:04}" for i in range(length)]
    for i, session_id in enumerate(ids):
        ended = "compression" if i < length - 1 else None
        insert(raw, session_id, ids[i - 1] if i else None, ended=ended, started=float(i + 1))
    return ids


def continue_from(db: SessionDB, parent: str, child: str) -> None:
    db.publish_continuation(parent, child, [user(f"summary of {parent}")])


def test_a_lineage_runs_from_its_first_session_to_its_live_end(db: SessionDB, session: str) -> None:
    continue_from(db, "s", "s2")
    continue_from(db, "s2", "s3")
    for asked in ("s", "s2", "s3"):
        assert db.get_compression_lineage(asked) == ["s", "s2", "s3"]
        assert db.get_lineage(asked) == ["s", "s2", "s3"]
        assert db.get_compression_tip(asked) == "s3"
        assert db.get_conversation_root(asked) == "s"


def test_kind_and_root_are_kept_in_columns(db: SessionDB, raw: RawSql, session: str) -> None:
    continue_from(db, "s", "s2")
    continue_from(db, "s2", "s3")
    db.create_branch("s3", "b")
    db.create_session("d", "cli", parent_session_id="s3", model_config={"_delegate_from": "s3"})
    db.create_session("t", "tool", parent_session_id="s3")
    assert raw("SELECT id, kind, root_session_id FROM sessions ORDER BY id") == [
        ("b", "branch", None),
        ("d", "delegate", None),
        ("s", "root", None),
        ("s2", "continuation", "s"),
        ("s3", "continuation", "s"),
        ("t", "tool", None),
    ]


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ({"model_config": {"_delegate_from": "s", "_branched_from": "s"}}, "delegate"),
        ({"model_config": '{"_branched_from": "s"}'}, "branch"),
        ({"model_config": {"_reset_from": "s"}}, "root"),
        ({"source": "tool"}, "tool"),
        ({}, "continuation"),
    ],
)
def test_markers_of_older_stores_are_understood(
    db: SessionDB, raw: RawSql, session: str, keys: dict[str, str], kind: str
) -> None:
    db.create_session("child", **{"source": "cli", **keys}, parent_session_id="s")
    assert raw.value("SELECT kind FROM sessions WHERE id = 'child'") == kind


@pytest.mark.parametrize(
    ("config", "kind"),
    [('{"_delegate_from": "s"}', "delegate"), ('{"_branched_from": "s"}', "branch"), (None, "continuation")],
)
def test_markers_of_older_stores_are_understood_on_import(
    db: SessionDB, raw: RawSql, config: str | None, kind: str
) -> None:
    child = {"id": "child", "source": "cli", "parent_session_id": "s", "model_config": config}
    report = db.import_sessions([child, {"id": "s", "source": "cli", "end_reason": "compression"}])
    assert report["imported"] == 2
    assert raw.value("SELECT kind FROM sessions WHERE id = 'child'") == kind


def test_only_a_parent_that_was_ended_by_compression_is_followed(db: SessionDB, session: str) -> None:
    db.create_session("child", "cli", parent_session_id="s")
    assert db.get_compression_lineage("s") == ["s"]
    db.end_session("s", "compression")
    assert db.get_compression_lineage("s") == ["s", "child"]
    db.reopen_session("s")
    assert db.get_compression_lineage("child") == ["child"]
    assert db.get_conversation_root("child") == "s"


def test_branches_delegates_and_tool_runs_of_a_compressed_parent_are_not_followed(
    db: SessionDB, session: str
) -> None:
    db.create_branch("s", "b")
    db.create_session("d", "cli", parent_session_id="s", model_config={"_delegate_from": "s"})
    db.create_session("t", "tool", parent_session_id="s")
    db.end_session("s", "compression")
    assert db.get_compression_tip("s") == "s"
    for session_id in ("s", "b", "d", "t"):
        assert db.get_compression_lineage(session_id) == [session_id]
        assert db.get_conversation_root(session_id) == session_id


def test_a_chain_of_a_thousand_takes_one_statement(
    db: SessionDB, raw: RawSql, statements: QueryRecorder
) -> None:
    ids = insert_chain(raw, LONG)
    raw("INSERT INTO messages (session_id, role, content) VALUES (?, 'user', 'x')", ids[-1])
    statements.clear()
    assert db.get_compression_tip(ids[0]) == ids[-1]
    assert db.get_compression_lineage(ids[500]) == ids
    assert db.get_conversation_root(ids[-1]) == ids[0]
    assert len(statements.texts) == 3
    assert db.resolve_resume_session_id(ids[0]) == ids[-1]
    assert len(statements.texts) == 5
    assert db.set_session_archived(ids[700], True) is True
    assert len(statements.texts) == 7
    assert raw.value("SELECT count(*) FROM sessions WHERE archived") == LONG


def test_cycles_that_another_program_made_end(db: SessionDB, raw: RawSql) -> None:
    for session_id in ("a", "b", "c", "self"):
        insert(raw, session_id, ended="compression")
    for child, parent in (("a", "c"), ("b", "a"), ("c", "b"), ("self", "self")):
        raw("UPDATE sessions SET parent_session_id = ? WHERE id = ?", parent, child)
    assert db.get_compression_tip("a") == "c"
    assert db.get_compression_tip("self") == "self"
    assert db.get_compression_lineage("b") == ["c", "a", "b"]
    assert db.get_compression_lineage("self") == ["self"]
    assert db.get_conversation_root("a") == "b"
    assert db.resolve_resume_session_id("a") == "c"
    assert db.set_session_archived("a", True) is True
    assert raw.column("SELECT id FROM sessions WHERE archived ORDER BY id") == ["a", "b", "c"]
    assert len(db.list_sessions(include_children=True, include_archived=True)) == 4
    assert db.get_messages_as_conversation("a", include_ancestors=True) == []
    assert db.finalize_orphaned_compression_sessions() == 0


def test_a_cycle_through_a_branch_does_not_lead_astray(db: SessionDB, raw: RawSql) -> None:
    insert(raw, "a", ended="compression")
    insert(raw, "b", "a", ended="compression")
    raw("UPDATE sessions SET parent_session_id = 'b', kind = 'branch' WHERE id = 'a'")
    assert db.get_compression_tip("b") == "b"
    assert db.get_compression_lineage("b") == ["a", "b"]


def test_the_resume_goes_to_the_tip_and_on_to_its_newest_child_with_rows(
    db: SessionDB, raw: RawSql, session: str, statements: QueryRecorder
) -> None:
    continue_from(db, "s", "tip")
    for session_id, started in (("older", 10.0), ("newer", 20.0)):
        db.create_session(session_id, "cli", parent_session_id="tip")
        db.append_message(session_id, "user", "hello")
        raw("UPDATE sessions SET started_at = ? WHERE id = ?", started, session_id)
    assert db.resolve_resume_session_id("s") == "newer"
    db.create_session("empty", "cli", parent_session_id="newer")
    assert db.resolve_resume_session_id("s") == "newer"
    db.create_session("deepest", "cli", parent_session_id="empty")
    db.append_message("deepest", "user", "hello")
    statements.clear()
    assert db.resolve_resume_session_id("s") == "deepest"
    assert len(statements.texts) == 3
    assert db.resolve_resume_session_id("older") == "older"


def test_the_resume_never_goes_to_a_branch_a_delegate_a_tool_run_or_past_a_reset(
    db: SessionDB, session: str
) -> None:
    db.append_message("s", "user", "hello")
    db.create_branch("s", "b")
    others = {"d": {"_delegate_from": "s"}, "r": {"_reset_from": "s"}, "b2": {"_branched_from": "s"}}
    for session_id, config in others.items():
        db.create_session(session_id, "cli", parent_session_id="s", model_config=config)
        db.append_message(session_id, "user", "hello")
    db.create_session("t", "tool", parent_session_id="s")
    db.append_message("t", "user", "hello")
    db.end_session("s", "session_reset")
    assert db.resolve_resume_session_id("s") == "s"


def test_without_rows_the_resume_goes_to_the_tip(db: SessionDB, session: str) -> None:
    db.end_session("s", "compression")
    db.create_session("child", "cli", parent_session_id="s")
    assert db.resolve_resume_session_id("s") == "child"


def test_archiving_reaches_the_whole_compression_lineage_and_nothing_else(
    db: SessionDB, raw: RawSql, session: str
) -> None:
    continue_from(db, "s", "s2")
    continue_from(db, "s2", "s3")
    db.create_session("side", "cli", parent_session_id="s")
    db.create_branch("s2", "b")
    db.create_session("d", "cli", parent_session_id="s2", model_config={"_delegate_from": "s2"})
    db.create_session("t", "tool", parent_session_id="s2")
    db.create_session("later", "cli", parent_session_id="s3")
    db.create_session("other", "cli")
    assert db.set_session_archived("s2", True) is True
    archived = "SELECT id FROM sessions WHERE archived ORDER BY id"
    assert raw.column(archived) == ["s", "s2", "s3", "side"]
    raw("UPDATE sessions SET auto_archived = ?", True)
    assert db.set_session_archived("side", False) is True
    assert raw.column(archived) == []
    assert raw.column("SELECT id FROM sessions WHERE NOT auto_archived ORDER BY id") == [
        "s",
        "s2",
        "s3",
        "side",
    ]
    assert db.set_session_archived("b", True) is True
    assert raw.column(archived) == ["b"]


def test_archiving_takes_true_or_false(db: SessionDB, session: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        db.set_session_archived("s", 1)  # type: ignore[arg-type]
    assert caught.value.argument == "archived"


@pytest.mark.parametrize("session_id", ["unknown", "", "\0", "\ud800", "x" * 513])
def test_an_unknown_session_is_its_own_tip_and_nothing_more(db: SessionDB, session_id: str) -> None:
    assert db.get_compression_tip(session_id) == session_id
    assert db.resolve_resume_session_id(session_id) == session_id
    assert db.get_conversation_root(session_id) == session_id
    assert db.get_compression_lineage(session_id) == []
    assert db.set_session_archived(session_id, True) is False
    assert db.reopen_orphaned_compression_session(session_id) is False


def test_rows_of_other_programs_are_placed_by_their_parent(db: SessionDB, raw: RawSql) -> None:
    insert(raw, "a", ended="compression")
    insert(raw, "b", "a")
    assert db.get_compression_lineage("a") == ["a", "b"]
    assert db.get_conversation_root("b") == "a"


def test_a_closed_parent_that_nothing_continues_can_be_reopened(
    db: SessionDB, raw: RawSql, session: str
) -> None:
    assert db.reopen_orphaned_compression_session("s") is False
    db.end_session("s", "compression")
    db.create_branch("s", "b")
    assert db.reopen_orphaned_compression_session("s") is True
    assert raw("SELECT ended_at, end_reason FROM sessions WHERE id = 's'") == [(None, None)]
    db.append_message("s", "user", "goes on")


def test_a_parent_with_any_continuation_stays_closed(db: SessionDB, session: str) -> None:
    continue_from(db, "s", "child")
    db.end_session("child", "cli_close")
    assert db.reopen_orphaned_compression_session("s") is False


@pytest.mark.parametrize("reason", ["session_reset", "cli_close"])
def test_a_session_closed_for_another_reason_is_not_reopened(
    db: SessionDB, session: str, reason: str
) -> None:
    db.end_session("s", reason)
    assert db.reopen_orphaned_compression_session("s") is False


@pytest.mark.parametrize("kind", ["compression_lock", "session_turn_lease"])
def test_a_parent_that_somebody_holds_stays_closed_until_the_lease_has_expired(
    db: SessionDB, raw: RawSql, session: str, kind: str
) -> None:
    db.end_session("s", "compression")
    assert getattr(db, f"try_acquire_{kind}")("s", "worker") is True
    assert db.reopen_orphaned_compression_session("s") is False
    for table in ("compression_locks", "session_turn_leases"):
        raw(f"UPDATE {table} SET expires_at = 1.0")
    assert db.reopen_orphaned_compression_session("s") is True


def test_continuations_that_a_crash_left_open_are_ended(db: SessionDB, raw: RawSql, session: str) -> None:
    continue_from(db, "s", "orphan")
    db.create_session("p2", "cli")
    continue_from(db, "p2", "young")
    for name in ("used", "empty", "ended", "of_open_parent"):
        db.create_session(f"p_{name}", "cli")
        db.create_session(name, "cli", parent_session_id=f"p_{name}")
        if name != "empty":
            db.append_message(name, "user", "x")
        if name != "of_open_parent":
            db.end_session(f"p_{name}", "compression")
    raw("UPDATE sessions SET api_call_count = 1 WHERE id = 'used'")
    db.end_session("ended", "cli_close")
    raw("UPDATE sessions SET started_at = 5.0 WHERE id <> 'young'")
    assert db.finalize_orphaned_compression_sessions() == 1
    assert raw("SELECT id FROM sessions WHERE end_reason = 'orphaned_compression' AND ended_at > 1e9") == [
        ("orphan",)
    ]
    assert db.finalize_orphaned_compression_sessions() == 0


def test_of_several_continuations_the_compressed_then_the_open_then_the_most_active_is_the_tip(
    db: SessionDB, raw: RawSql, session: str
) -> None:
    for name in ("closed", "quiet", "busy"):
        db.create_session(name, "cli", parent_session_id="s")
        db.append_message(name, "assistant", "x", timestamp=1000.0)
    db.append_messages_batch("busy", [assistant("y", timestamp=2000.0)])
    db.append_messages_batch("closed", [assistant("y", timestamp=3000.0)])
    db.end_session("closed", "cli_close")
    db.end_session("s", "compression")
    assert db.get_compression_tip("s") == "busy"
    db.end_session("quiet", "compression")
    assert db.get_compression_tip("s") == "quiet"
