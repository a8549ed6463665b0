"""Adopting older stores: what arrives, and what is left as it was (issue 4, item 1)."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state import SessionDB
from hermes_state.transfer.adoption import AdoptReport, adopt_store
from hermes_state.transfer.copying import copy_store
from tests.support.builders import assert_counters_are_exact, checkpoint, items_of, reasoning
from tests.support.older_stores import START, OldStore, parts
from tests.support.raw import RawSql

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "hermes-v17.db"
TEXT_COLUMNS = ("role", "tool_call_id", "tool_name", "finish_reason", "reasoning", "reasoning_content")
JSON_COLUMNS = ("tool_calls", "reasoning_details", "codex_message_items")
SESSION_COLUMNS = (
    "source", "user_id", "session_key", "chat_id", "chat_type", "thread_id", "model", "model_config", "parent_session_id",
    "started_at", "ended_at", "end_reason", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens",
    "reasoning_tokens", "cwd", "git_branch", "git_repo_root", "billing_provider", "billing_base_url", "billing_mode",
    "estimated_cost_usd", "actual_cost_usd", "cost_status", "cost_source", "pricing_version", "title", "api_call_count",
    "rewind_count",
)  # fmt: skip


@pytest.fixture
def old(tmp_path: Path) -> Iterator[OldStore]:
    store = OldStore(tmp_path / "old.db")
    store.session()
    yield store
    store.close()


def adopt(old: OldStore, store_url: str, **options: Any) -> AdoptReport:
    return adopt_store(old.path, store_url, **options)


def assert_equal(old: sqlite3.Connection, raw: RawSql, *, checkpoints_too: bool = False) -> None:
    """Both stores, compared row by row in SQL; only what docs/moving.md names may differ."""
    old.row_factory = sqlite3.Row
    rows = old.execute("SELECT * FROM messages ORDER BY id").fetchall()
    names = [
        "id",
        "session_id",
        "content",
        "content_parts",
        "codex_reasoning_items",
        "timestamp",
        *TEXT_COLUMNS,
    ]
    names += [*JSON_COLUMNS, "active", "compacted", "platform_message_id", "observed", "token_count"]
    stored = raw(f"SELECT {', '.join(names)} FROM messages ORDER BY id")
    assert [row["id"] for row in rows] == [values[0] for values in stored]
    for row, values in zip(rows, stored, strict=True):
        new = dict(zip(names, values, strict=True))
        for name in ("session_id", "timestamp", "platform_message_id", "token_count", *TEXT_COLUMNS):
            assert new[name] == row[name], (row["id"], name)
        for name in ("active", "compacted", "observed"):
            assert bool(new[name]) == bool(row[name]), (row["id"], name)
        for name in JSON_COLUMNS:
            assert decoded(new[name]) == (decoded(row[name]) or None), (row["id"], name)
        if row["content"] is not None and row["content"].startswith("\0json:"):
            assert json.loads(new["content_parts"]) == json.loads(row["content"][6:])
        else:
            assert (new["content"], new["content_parts"]) == (row["content"], None)
        if checkpoints_too:
            assert decoded(new["codex_reasoning_items"]) == (decoded(row["codex_reasoning_items"]) or None)
    sessions = old.execute(f"SELECT id, {', '.join(SESSION_COLUMNS)} FROM sessions ORDER BY id").fetchall()
    assert raw(f"SELECT id, {', '.join(SESSION_COLUMNS)} FROM sessions ORDER BY id") == [
        tuple(s) for s in sessions
    ]
    prompts = (
        "SELECT s.id, p.prompt FROM sessions AS s JOIN system_prompts AS p ON p.hash = s.system_prompt_hash"
    )
    inline = "SELECT id, system_prompt FROM sessions WHERE system_prompt IS NOT NULL"
    assert sorted(raw(prompts)) == sorted(tuple(row) for row in old.execute(inline))
    notes = [tuple(row) for row in old.execute("SELECT key, value FROM state_meta ORDER BY key")]
    assert raw("SELECT key, value FROM state_meta ORDER BY key") == notes


def decoded(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def fill(old: OldStore) -> None:
    """A session with one message of every kind."""
    calls = json.dumps([{"id": "c1", "type": "function", "function": {"name": "sh", "arguments": "{}"}}])
    old.message(content="plain, 修复了")
    old.message(role="assistant", content=None, tool_calls=calls, finish_reason="tool_calls", reasoning="hm")
    old.message(role="tool", content="output", tool_call_id="c1", tool_name="sh", token_count=7)
    old.message(
        content=parts({"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "data:,"}})
    )
    old.message(
        role="assistant",
        reasoning_content="",
        reasoning_details='[{"a": 1.0}]',
        codex_message_items='[{"b": 2}]',
    )
    old.message(content="overheard", observed=1, platform_message_id="p1")
    old.message(content="summarised", active=0, compacted=1)
    old.message(content="taken back", active=0, compacted=0)


def test_everything_arrives_as_it_was(old: OldStore, store_url: str, raw: RawSql) -> None:
    old.session("full", source="telegram", user_id="u", session_key="k", chat_id="c", chat_type="dm", thread_id="t",
                model="m", model_config='{"temperature": 0.50}', system_prompt="You help.", ended_at=START + 9.25,
                end_reason="cli_close", input_tokens=2**40, cwd="/w", git_branch="main", git_repo_root="/w",
                billing_provider="b", estimated_cost_usd=0.125, cost_status="final", title="Title", rewind_count=2,
                archived=1)  # fmt: skip
    fill(old)
    old.conn.execute("INSERT INTO state_meta VALUES ('last_auto_prune', '1780000000')")
    old.conn.execute("INSERT INTO compression_locks VALUES ('s', 'h', 1, 2)")
    report = adopt(old, store_url)
    assert (report.version, report.sessions, report.messages, report.notes) == (17, 2, 8, 1)
    assert report.conversion_counts == {}
    assert_equal(old.conn, raw)
    assert raw("SELECT archived FROM sessions ORDER BY id") == [(True,), (False,)]
    assert raw.value("SELECT count(*) FROM compression_locks") == 0
    assert_counters_are_exact(raw)
    assert raw.value("SELECT last_active_at FROM sessions WHERE id = 's'") == START + 8


def test_the_real_store_of_version_17_arrives_message_by_message(
    store_url: str, raw: RawSql, tmp_path: Path
) -> None:
    source = tmp_path / "old.db"
    if SHARED.exists():
        shutil.copy(SHARED, source)
    else:
        made = OldStore(source)
        made.session()
        fill(made)
        made.close()
    report = adopt_store(source, store_url, keep_checkpoints=True)
    assert report.conversion_counts == {}
    copy = sqlite3.connect(source)
    assert_equal(copy, raw, checkpoints_too=True)
    for (session_id,) in copy.execute("SELECT id FROM sessions"):
        assert_counters_are_exact(raw, session_id)
    copy.close()


def test_an_adopted_store_works_on(old: OldStore, store_url: str, raw: RawSql) -> None:
    fill(old)
    adopt(old, store_url)
    with SessionDB(url=store_url) as db:
        new_id = db.append_message("s", "user", "next")
        assert new_id > max(raw.column("SELECT id FROM messages WHERE content <> 'next'"))
        texts = [message["content"] for message in db.get_messages_as_conversation("s")]
        assert texts[0] == "plain, 修复了"
        assert texts[-2:] == ["overheard", "next"]
        assert db.get_messages("s")[3]["content"][0] == {"type": "text", "text": "see"}


def test_it_makes_the_store_it_copies_into(old: OldStore, tmp_path: Path, fresh_postgres_url: str) -> None:
    fill(old)
    for target in (str(tmp_path / "new" / "state.db"), fresh_postgres_url):
        assert adopt_store(old.path, target).messages == 8
        with SessionDB(target) as db:
            assert len(db.get_messages("s", include_inactive=True)) == 8


def test_lineages_become_typed(old: OldStore, store_url: str, raw: RawSql) -> None:
    """Children may stand before their parents."""
    old.session("tip", parent_session_id="mid", started_at=START + 2)
    old.session(
        "mid", parent_session_id="root", started_at=START + 1, end_reason="compression", ended_at=START + 2
    )
    old.session("root", end_reason="compression", ended_at=START + 1)
    old.session("branch", parent_session_id="root", model_config='{"_branched_from": "root"}')
    old.session("delegate", parent_session_id="root", model_config='{"_delegate_from": "root"}')
    old.session("fresh", parent_session_id="root", model_config='{"_reset_from": "root"}')
    old.session("tool", source="tool", parent_session_id="root")
    adopt(old, store_url)
    found = {
        row[0]: row[1:] for row in raw("SELECT id, kind, parent_session_id, root_session_id FROM sessions")
    }
    assert found == {
        "s": ("root", None, None),
        "root": ("root", None, None),
        "mid": ("continuation", "root", "root"),
        "tip": ("continuation", "mid", "root"),
        "branch": ("branch", "root", None),
        "delegate": ("delegate", "root", None),
        "fresh": ("root", "root", None),
        "tool": ("tool", "root", None),
    }
    with SessionDB(url=store_url) as db:
        assert db.get_compression_tip("root") == "tip"


def carrier_row(old: OldStore, name: str, **columns: Any) -> int:
    items = json.dumps([reasoning(name), checkpoint(name)])
    return old.message(role="assistant", content=name, codex_reasoning_items=items, **columns)


def test_shadowed_checkpoints_stay_behind(old: OldStore, store_url: str, raw: RawSql) -> None:
    carrier_row(old, "a")
    old.message(role="assistant", codex_reasoning_items=json.dumps([checkpoint("only")]))
    carrier_row(old, "archived", active=0, compacted=1)
    carrier_row(old, "newest")
    old.message(role="assistant", codex_reasoning_items=json.dumps([reasoning("later"), "compaction", None]))
    old.session("other")
    carrier_row(old, "other", session_id="other")
    report = adopt(old, store_url)
    kept: list[Any] = [[reasoning("a")], None, [reasoning("archived"), checkpoint("archived")]]
    kept += [[reasoning("newest"), checkpoint("newest")], [reasoning("later"), "compaction", None]]
    assert items_of(raw) == kept
    assert items_of(raw, "other") == [[reasoning("other"), checkpoint("other")]]
    assert report.stripped_messages == 2
    assert report.stripped_bytes > len(json.dumps(checkpoint("a")))


def test_checkpoints_can_be_kept(old: OldStore, store_url: str, raw: RawSql) -> None:
    for name in ("a", "b"):
        carrier_row(old, name)
    report = adopt(old, store_url, keep_checkpoints=True)
    assert items_of(raw) == [[reasoning(name), checkpoint(name)] for name in ("a", "b")]
    assert report.stripped_messages == 0


@pytest.mark.parametrize("version", [17, 18, 20, 22, 23, 25, 26, 30, 31])
def test_every_version_is_recognised(version: int, store_url: str, raw: RawSql, tmp_path: Path) -> None:
    old = OldStore(tmp_path / "old.db", version)
    old.session()
    fill(old)
    report = adopt(old, store_url)
    assert report.version == version
    assert report.conversion_counts == {}
    assert_equal(old.conn, raw)
    old.close()


def test_what_later_versions_brought_arrives(store_url: str, raw: RawSql, tmp_path: Path) -> None:
    old = OldStore(tmp_path / "old.db", 31)
    old.conn.execute("INSERT INTO system_prompts VALUES ('h1', 'You help.')")
    old.conn.execute("INSERT INTO system_prompts VALUES ('h2', '[\"sh\"]')")
    old.session(created_source="cron", title="T", title_source="llm", system_prompt_hash="h1", tool_names="h2", pinned=1,
                hidden=1, last_read_at=START, auto_archived=1, compression_overload_streak=3, last_activity_at=START)  # fmt: skip
    old.session("inline", system_prompt="Inline.", tool_names='["ls"]')
    row_id = old.message(effect_disposition="done", api_content="sent", display_kind="hidden", message_uid="u1",
                display_metadata='{"reactions": []}', display_identity=b"\x00" * 32, display_order=1,
                _compressed_summary=1, absorbed_message_uids='["u0"]')  # fmt: skip
    report = adopt(old, store_url)
    assert report.conversion_counts == {}
    assert raw("SELECT created_source, title_source, tool_names, pinned, hidden, last_read_at, auto_archived, "
               "compression_overload_streak, last_activity_at FROM sessions WHERE id = 's'") == [
        ("cron", "llm", '["sh"]', True, True, START, True, 3, START)
    ]  # fmt: skip
    names = "effect_disposition, api_content, display_kind, message_uid, display_metadata, id"
    assert raw(f"SELECT {names} FROM messages") == [
        ("done", "sent", "hidden", "u1", '{"reactions":[]}', row_id)
    ]
    assert raw.json("SELECT extra FROM messages") == [
        {"compressed_summary": 1, "absorbed_message_uids": '["u0"]'}
    ]
    with SessionDB(url=store_url) as db:
        sessions = [db.get_session(session_id) for session_id in ("s", "inline")]
        assert [found and found["system_prompt"] for found in sessions] == ["You help.", "Inline."]
    old.close()


def test_columns_without_a_place_are_kept_as_notes_and_tables_are_named(
    old: OldStore, store_url: str, raw: RawSql
) -> None:
    old.session("h", handoff_state="pending", handoff_platform="telegram")
    old.conn.execute("CREATE TABLE gateway_routing (a TEXT)")
    old.conn.execute("INSERT INTO gateway_routing VALUES ('x')")
    old.conn.execute("INSERT INTO state_meta VALUES ('fts_layout', '2')")
    report = adopt(old, store_url)
    assert report.left_tables == {"gateway_routing": 1}
    assert raw("SELECT key, value FROM state_meta") == [
        ("adopted:h", '{"handoff_state":"pending","handoff_platform":"telegram"}')
    ]
    assert {(found.table, found.id, found.column) for found in report.conversions} == {
        ("sessions", "h", "handoff_state"),
        ("sessions", "h", "handoff_platform"),
        ("state_meta", "fts_layout", "value"),
    }


def test_the_source_and_its_wal_stay_as_they_are_and_rows_of_the_wal_arrive(
    old: OldStore, store_url: str, raw: RawSql
) -> None:
    old.conn.execute("PRAGMA wal_autocheckpoint = 0")
    fill(old)
    wal = old.path.with_name("old.db-wal")
    before = (old.path.read_bytes(), wal.read_bytes())
    assert len(before[1]) > 0
    assert adopt(old, store_url).messages == 8
    assert (old.path.read_bytes(), wal.read_bytes()) == before
    assert raw.value("SELECT count(*) FROM messages") == 8


def test_what_is_written_meanwhile_does_not_show(old: OldStore, store_url: str, raw: RawSql) -> None:
    fill(old)

    def write(phase: str, _done: int, _total: int) -> None:
        old.message(content=phase)
        old.conn.execute("DELETE FROM messages WHERE content = 'summarised'")

    assert adopt(old, store_url, progress=write).messages == 8
    assert raw.value("SELECT count(*) FROM messages WHERE content = 'summarised'") == 1


def test_progress_is_told_to_the_end(old: OldStore, store_url: str) -> None:
    old.messages(("s", "user", f"text {number}", None) for number in range(4_500))
    told: list[tuple[str, int, int]] = []
    adopt(old, store_url, progress=lambda *call: told.append(call))
    assert [call for call in told if call[0] == "messages"] == [
        ("messages", done, 4_500) for done in (2_000, 4_000, 4_500)
    ]
    assert told[0] == ("sessions", 0, 1)
    assert told[-1][0] == "finishing"
    assert told[-1][1] == told[-1][2]


def test_an_adopted_store_moved_to_another_database_and_back_is_identical(
    old: OldStore, store_url: str, tmp_path: Path
) -> None:
    fill(old)
    carrier_row(old, "newest")
    first, back = tmp_path / "adopted.db", tmp_path / "back.db"
    adopt_store(old.path, first)
    copy_store(first, store_url)
    copy_store(store_url, back)
    found = []
    for path in (first, back):
        conn = sqlite3.connect(path)
        names = [
            name for (name,) in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")
        ]
        found.append(
            {name: conn.execute(f"SELECT * FROM {name}").fetchall() for name in names if "stat" not in name}
        )
        conn.close()
    assert found[0] == found[1]
    assert len(found[0]["messages"]) == 9
