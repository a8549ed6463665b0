"""Exports: the lineage, the whole store, parts of large sessions, what carries a message on (issue 4, item 3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hermes_state import InvalidArgumentError, SessionDB
from hermes_state.repositories import exporting
from tests.support.builders import assistant, caller, carrier, snapshot, user
from tests.support.raw import RawSql

RUNTIME = {
    "session_key": "key",
    "chat_id": "chat",
    "chat_type": "dm",
    "thread_id": "thread",
    "last_activity_at": 5.0,
    "last_activity_description": "typing",
    "last_activity_provenance": "tool",
    "compression_failure_cooldown_until": 9e9,
    "compression_failure_error": "boom",
    "compression_fallback_streak": 3,
    "compression_ineffective_count": 4,
    "compression_overload_streak": 5,
    "compression_recovery_deadline": 9e9,
}


def chain(db: SessionDB) -> None:
    """Session ``a``, compacted with a tail and continued by ``b`` with a late row; ``other`` beside them."""
    db.create_session("a", "cli", model_config={"k": [1.5, "é"]})
    db.append_messages_batch("a", [user(f"q{n}", message_uid=f"u{n}") for n in range(4)])
    tail = db.get_messages("a", latest=True, limit=2)
    db.archive_and_compact("a", [user("summary"), *tail], tail_count=2)
    watermark = db.get_active_message_watermark("a")
    db.append_message("a", "user", "late", message_uid="late")
    db.publish_continuation("a", "b", [user("hand-off")], watermark=watermark)
    db.append_messages_batch("b", [caller("x"), carrier("1")])
    db.create_session("other", "web")


def pointers(raw: RawSql) -> list[tuple[Any, ...]]:
    """What each superseded row and the row that carries it on say."""
    return raw(
        "SELECT o.session_id, o.content, n.session_id, n.content, n.message_uid FROM messages AS o "
        "JOIN messages AS n ON n.id = o.superseded_by ORDER BY o.session_id, o.id"
    )


def test_the_lineage_comes_first_to_last_and_of_an_unknown_session_nothing(db: SessionDB) -> None:
    chain(db)
    for session_id in ("a", "b"):
        assert [s["id"] for s in db.export_session_lineage(session_id)] == ["a", "b"]
    assert db.export_session_lineage("b")[1] == db.export_session("b")
    assert db.export_session_lineage("unknown") == []
    assert db.export_session_lineage("") == []


def test_everything_comes_by_id_whatever_its_kind_or_state(db: SessionDB, raw: RawSql) -> None:
    chain(db)
    db.create_session("delegate", "cli", model_config={"_delegate_from": "a"}, parent_session_id="a")
    raw("UPDATE sessions SET archived = ? WHERE id = 'other'", True)
    assert [s["id"] for s in db.export_all()] == ["a", "b", "delegate", "other"]
    assert [s["id"] for s in db.export_all(source="web")] == ["other"]
    assert db.export_all(source="100%") == []
    assert db.export_all() == list(db.iter_export())


def test_ids_that_are_given_come_in_their_order_and_unknown_ones_are_left_out(db: SessionDB) -> None:
    chain(db)
    assert [s["id"] for s in db.iter_export(["b", "unknown", "", "a", "a"])] == ["b", "a", "a"]
    assert [s["id"] for s in db.iter_export(["other", "a"], source="cli")] == ["a"]
    assert [s["id"] for s in db.iter_export(["other", "a"], source="cli", in_parts=True)] == ["a"]
    with pytest.raises(InvalidArgumentError):
        db.iter_export("ab")


def test_more_sessions_than_a_page_come_all_and_once(db: SessionDB, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "IDS_OF_A_PAGE", 3)
    ids = ["a", "B", "é", "Z", "a%", "a_", "10", "9"]
    for session_id in ids:
        db.create_session(session_id, "cli")
    assert [s["id"] for s in db.export_all()] == sorted(ids)


@pytest.mark.parametrize("bound", ["PART_MESSAGES", "PART_BYTES"])
def test_a_large_session_comes_in_parts_that_are_the_whole(
    db: SessionDB, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    chain(db)
    db.append_messages_batch("other", [user(f"text {n}" * 9) for n in range(150)])
    whole = db.export_session("other")
    monkeypatch.setattr(exporting, bound, 40)
    first, *rest = db.iter_export(["other"], in_parts=True)
    assert len(rest) > 1
    assert all(part.keys() == {"continues", "messages"} and part["continues"] == "other" for part in rest)
    assert all(part["messages"] for part in rest)
    assert {**first, "messages": first["messages"] + [m for part in rest for m in part["messages"]]} == whole
    assert db.export_session("other") == whole


def test_a_session_is_exported_as_it_stood_at_one_moment(
    db: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "PART_MESSAGES", 10)
    db.create_session("s", "cli")
    db.append_messages_batch("s", [user(f"q{n}") for n in range(60)])
    parts = db.iter_export(["s"], in_parts=True)
    first = next(parts)
    db.archive_and_compact("s", [user("summary")])
    db.end_session("s", "done")
    rest = list(parts)
    states = [m["active"] for part in (first, *rest) for m in part["messages"]]
    assert states == [True] * 60


def test_an_abandoned_export_gives_its_connection_back(
    db: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "PART_MESSAGES", 10)
    db.create_session("s", "cli")
    db.append_messages_batch("s", [user(f"q{n}") for n in range(60)])
    parts = db.iter_export(["s"], in_parts=True)
    next(parts)
    parts.close()  # type: ignore[attr-defined]
    db.append_message("s", "user", "more")


def test_what_a_running_program_notes_about_itself_is_left_out(db: SessionDB, raw: RawSql) -> None:
    chain(db)
    raw(f"UPDATE sessions SET {', '.join(f'{k} = ?' for k in RUNTIME)}", *RUNTIME.values())
    assert all(session.keys() & RUNTIME.keys() == set() for session in db.export_all())


def test_rows_of_other_programs_export_as_json(backend: str, db: SessionDB, raw: RawSql) -> None:
    chain(db)
    raw("UPDATE sessions SET model_config = '{broken', estimated_cost_usd = ?", float("inf"))
    raw("UPDATE messages SET timestamp = ? WHERE session_id = 'b'", 1e300)
    if backend == "sqlite":
        raw("UPDATE sessions SET title = CAST(x'ff6869' AS TEXT) WHERE id = 'b'")
        raw("UPDATE sessions SET cwd = x'ff6869'")
        raw("UPDATE messages SET content = x'ff6869', tool_calls = '[oops' WHERE session_id = 'a'")
    exported = db.export_all()
    assert json.loads(json.dumps(exported, allow_nan=False)) == exported
    assert exported[1]["estimated_cost_usd"] is None
    assert exported[1]["model_config"] == "{broken"
    assert list(db.iter_export(in_parts=True)) == exported


@pytest.mark.parametrize(
    ("table", "column", "value", "exported"),
    [
        ("sessions", "started_at", "'soon'", 0.0),
        ("sessions", "ended_at", "9e999", None),
        ("sessions", "input_tokens", "'many'", 0),
        ("sessions", "input_tokens", "-5", 0),
        ("sessions", "rewind_count", "2.5", 2),
        ("sessions", "title", "'a' || char(0)", "a\ufffd"),
        ("sessions", "model", "x'6dff'", "m\ufffd"),
        ("sessions", "pinned", "'yes'", True),
        ("sessions", "kind", "'nonsense'", None),
        ("messages", "timestamp", "'yesterday'", 0.0),
        ("messages", "timestamp", "1e300", 0.0),
        ("messages", "token_count", "'many'", None),
        ("messages", "token_count", "-1", None),
        ("messages", "platform_message_id", "''", None),
        ("messages", "content", "'a' || char(0)", "a\ufffd"),
        ("messages", "tool_name", "x'6dff'", "m\ufffd"),
        ("messages", "compacted", "1", True),
        ("messages", "superseded_by", "x'00'", None),
    ],
)
def test_what_another_program_stored_is_exported_as_an_import_takes_it(
    tmp_path: Path, table: str, column: str, value: str, exported: Any
) -> None:
    url = f"sqlite:///{tmp_path / 'spoiled.db'}"
    with SessionDB(url=url) as db:
        db.create_session("s", "cli")
        db.append_message("s", "user", "q")
        raw = RawSql(url)
        raw("PRAGMA ignore_check_constraints = ON")
        raw(f"UPDATE {table} SET {column} = {value}")
        raw.close()
        (session,) = db.export_all()
    found = session if table == "sessions" else session["messages"][0]
    assert found.get(column) == exported
    with SessionDB(":memory:") as other:
        assert other.import_sessions([session])["errors"] == []
        again = other.export_session("s")
    assert again is not None
    worked_out = {"kind": "root", "message_count": 0, "last_active_at": 0.0}
    assert {**again, **worked_out} == {**session, **worked_out}
    assert json.loads(json.dumps(session, allow_nan=False)) == session


def test_what_carries_a_message_on_survives_export_and_import(db: SessionDB, raw: RawSql) -> None:
    chain(db)
    before = pointers(raw)
    assert [row[:4] for row in before] == [
        ("a", "q2", "a", "q2"),
        ("a", "q3", "a", "q3"),
        ("a", "late", "b", "late"),
    ]
    exported = db.export_all()
    for listed in (exported, exported[::-1]):
        raw("DELETE FROM sessions")
        assert db.import_sessions(listed)["imported"] == 3
        assert db.export_all() == exported
        assert pointers(raw) == before


def test_a_message_whose_successor_stays_behind_is_still_no_message_to_restore(
    db: SessionDB, raw: RawSql
) -> None:
    chain(db)
    exported = db.export_session("a")
    raw("DELETE FROM sessions")
    db.import_sessions([exported])
    assert pointers(raw) == [("a", "q2", "a", "q2", "u2"), ("a", "q3", "a", "q3", "u3")]
    db.reopen_session("a")
    assert db.restore_rewound("a", 0) == 0
    again = db.export_session("a")
    assert again is not None
    raw("DELETE FROM sessions")
    db.import_sessions([again])
    assert db.export_session("a") == again


def test_an_own_key_of_that_name_is_kept_apart(db: SessionDB) -> None:
    db.create_session("s", "cli")
    db.append_message("s", "user", "a", superseded_by="mine")
    (exported,) = db.export_all()
    assert exported["messages"][0]["superseded_by"] == "mine"
    db.import_sessions([exported | {"id": "copy"}])
    assert [m["superseded_by"] for m in db.get_messages("copy")] == ["mine"]  # type: ignore[typeddict-item]


def test_an_export_writes_nothing(db: SessionDB, raw: RawSql, open_db: Any) -> None:
    chain(db)
    before = snapshot(raw)
    reader = open_db(read_only=True)
    assert reader.export_all() == db.export_all()
    assert list(reader.iter_export(in_parts=True)) == db.export_all()
    assert snapshot(raw) == before


def test_an_export_knows_assistant_rows_of_every_state(db: SessionDB, raw: RawSql) -> None:
    db.create_session("s", "cli")
    db.append_messages_batch("s", [user("q"), assistant("a", reasoning="r"), user("taken back")])
    last = db.latest_message_row_id("s")
    assert last is not None
    db.rewind_to_message("s", last)
    db.archive_and_compact("s", [user("summary")])
    exported = db.export_session("s")
    assert exported is not None
    assert [(m["active"], m["compacted"]) for m in exported["messages"]] == [
        (False, True),
        (False, True),
        (False, False),
        (True, False),
    ]


def test_what_is_no_list_of_ids_is_refused(db: SessionDB) -> None:
    for bad in ("ab", b"ab", 7):
        with pytest.raises(InvalidArgumentError):
            db.iter_export(bad)  # type: ignore[arg-type]
    assert list(db.iter_export([None, 7, "\0", ""])) == []  # type: ignore[list-item]
    with pytest.raises(InvalidArgumentError):
        db.export_all(source=7)  # type: ignore[arg-type]


def test_what_a_session_used_travels_with_it(db: SessionDB, raw: RawSql) -> None:
    chain(db)
    for model in ("é", "Z", "a", "_"):
        db.update_token_counts("a", input_tokens=5, output_tokens=2**40, model=model, estimated_cost_usd=0.1)
    db.record_auxiliary_usage("a", "title", input_tokens=1, model="small")
    tables = ("session_model_usage", "session_daily_usage")
    before = [sorted(raw(f"SELECT * FROM {table}"), key=repr) for table in tables]
    assert [len(rows) for rows in before] == [5, 1]
    exported = db.export_all()
    assert [[len(session.get(table, [])) for table in tables] for session in exported] == [
        [5, 1],
        [0, 0],
        [0, 0],
    ]
    assert list(db.iter_export(in_parts=True)) == exported
    raw("DELETE FROM sessions")
    db.import_sessions(json.loads(json.dumps(exported)))
    assert db.export_all() == exported
    assert [sorted(raw(f"SELECT * FROM {table}"), key=repr) for table in tables] == before
    db.import_sessions(exported, on_existing="rename")
    assert raw.value("SELECT count(*) FROM session_model_usage WHERE session_id = 'a-2'") == 5


def test_usage_that_another_program_stored_is_exported_as_an_import_takes_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'spoiled.db'}"
    with SessionDB(url=url) as db:
        db.create_session("s", "cli")
        db.update_token_counts("s", input_tokens=5, model="m")
        raw = RawSql(url)
        raw("PRAGMA ignore_check_constraints = ON")
        raw(
            "UPDATE session_model_usage SET input_tokens = 'x', output_tokens = -3, estimated_cost_usd = 9e999"
        )
        raw("UPDATE session_model_usage SET model = x'6dff', first_seen = 'then'")
        raw.close()
        exported = db.export_all()
    with SessionDB(":memory:") as other:
        assert other.import_sessions(exported)["errors"] == []
        assert other.export_all() == exported


def test_text_that_is_not_utf_8_deep_in_a_session_neither_repeats_nor_loses_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "PART_MESSAGES", 10)
    url = f"sqlite:///{tmp_path / 'spoiled.db'}"
    for spoiled in (0, 30, 99):
        with SessionDB(url=url) as db:
            db.ensure_session("s", "cli")
            db.replace_messages("s", [user(f"{n}") for n in range(100)])
        raw = RawSql(url)
        raw("UPDATE messages SET tool_name = CAST(x'6dff' AS TEXT) WHERE content = ?", f"{spoiled}")
        raw.close()
        with SessionDB(url=url) as db:
            first, *rest = list(db.iter_export(in_parts=True))
            messages = first["messages"] + [m for part in rest for m in part["messages"]]
            assert [m["content"] for m in messages] == [f"{n}" for n in range(100)]
            assert [m["content"] for m in messages if m["tool_name"] == "m\ufffd"] == [f"{spoiled}"]
            assert {part["continues"] for part in rest} == {"s"}
