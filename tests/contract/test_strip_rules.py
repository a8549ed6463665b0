"""CONTRACT.md section 4, rule by rule; the expectation is written out, never computed by the package."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from hermes_state import SessionDB
from tests.conftest import OpenDb
from tests.support.builders import (
    assert_counters_are_exact,
    assistant,
    carrier,
    checkpoint,
    items_of,
    reasoning,
    user,
)
from tests.support.raw import RawSql
from tests.support.statements import QueryRecorder

JUNK: list[Any] = [
    "compaction",
    None,
    1,
    1.5,
    True,
    {"type": None},
    {"type": ["compaction"]},
    [checkpoint("deep")],
]


def raw_insert(raw: RawSql, items: str | None, **columns: Any) -> int:
    """A row of another program; ``items`` is the JSON text of its reasoning items."""
    values = {"session_id": "s", "role": "assistant", "codex_reasoning_items": items} | columns
    names, places = ", ".join(values), ", ".join("?" * len(values))
    return int(raw.value(f"INSERT INTO messages ({names}) VALUES ({places}) RETURNING id", *values.values()))


def other_columns(raw: RawSql) -> list[tuple[Any, ...]]:
    columns = (
        "id, session_id, message_uid, role, content, timestamp, active, compacted, tool_calls, reasoning"
    )
    return raw(f"SELECT {columns} FROM messages ORDER BY id")


def test_a_newer_carrier_takes_the_checkpoints_of_older_ones_and_nothing_else(
    db: SessionDB, session: str, raw: RawSql
) -> None:
    db.append_messages_batch(
        session, [carrier("1", reasoning("a"), *JUNK), user(), carrier("2", reasoning("b"))]
    )
    before = other_columns(raw)
    db.append_messages_batch(session, [carrier("3", reasoning("c"))])
    assert items_of(raw) == [
        [reasoning("a"), *JUNK],
        None,
        [reasoning("b")],
        [reasoning("c"), checkpoint("3")],
    ]
    assert other_columns(raw)[: len(before)] == before


def test_a_list_of_checkpoints_only_becomes_null(db: SessionDB, session: str, raw: RawSql) -> None:
    db.append_messages_batch(session, [carrier("1"), carrier("2")])
    assert raw.column("SELECT codex_reasoning_items IS NULL FROM messages ORDER BY id") == [True, False]
    assert "codex_reasoning_items" not in db.get_messages_as_conversation(session)[0]


def test_of_one_batch_only_the_last_carrier_keeps_all_of_its_checkpoints(
    db: SessionDB, session: str, raw: RawSql
) -> None:
    last = assistant("last", codex_reasoning_items=[checkpoint("x"), reasoning("r"), checkpoint("y")])
    db.append_messages_batch(session, [carrier("1"), carrier("2", reasoning("m")), last, assistant("after")])
    assert items_of(raw) == [None, [reasoning("m")], last["codex_reasoning_items"], None]


def test_newest_is_by_id_and_not_by_timestamp(db: SessionDB, session: str, raw: RawSql) -> None:
    db.append_messages_batch(session, [carrier("late", timestamp=2e9), carrier("early", timestamp=1e9)])
    assert items_of(raw) == [None, [checkpoint("early")]]


def test_neighbours_keep_their_checkpoints(db: SessionDB, session: str, raw: RawSql) -> None:
    db.create_session("other", "cli")
    text = json.dumps([checkpoint("kept")])
    raw_insert(raw, text, active=False, compacted=True)
    raw_insert(raw, text, active=False)
    raw_insert(raw, text, role="user")
    raw_insert(raw, text, role="tool")
    raw_insert(raw, text, session_id="other")
    db.append_messages_batch(session, [carrier("old"), carrier("new")])
    kept = [[checkpoint("kept")]]
    assert items_of(raw) == [*kept * 4, None, [checkpoint("new")]]
    assert items_of(raw, "other") == kept


def test_rows_of_other_programs_are_found_without_any_flag(db: SessionDB, session: str, raw: RawSql) -> None:
    raw_insert(
        raw, '[ {"type" : "compaction", "x": 1.50}, {"type": "reasoning", "n": 12345678901234567890} ]'
    )
    db.append_messages_batch(session, [carrier("new")])
    assert items_of(raw)[0] == [{"type": "reasoning", "n": 12345678901234567890}]


@pytest.mark.parametrize("text", ['{"type": "compaction"}', '"compaction"', '["compaction"]', "null", "7"])
def test_values_without_a_real_checkpoint_stay_to_the_letter(
    db: SessionDB, session: str, raw: RawSql, text: str
) -> None:
    raw_insert(raw, text)
    assert db.append_messages_batch(session, [carrier("new")]) == 1
    assert raw.column("SELECT codex_reasoning_items FROM messages ORDER BY id")[0] == text


@pytest.mark.parametrize("text", ['[{"type": "compaction"', "compaction", "", '"compaction"]'])
def test_malformed_text_on_sqlite_stays_and_fails_nobody(
    db: SessionDB, session: str, raw: RawSql, backend: str, text: str
) -> None:
    if backend == "postgresql":
        with pytest.raises(Exception, match="invalid input syntax for type json"):
            raw_insert(raw, text)
        return
    raw_insert(raw, text)
    assert db.append_messages_batch(session, [carrier("new")]) == 1
    assert raw.column("SELECT codex_reasoning_items FROM messages ORDER BY id")[0] == text


def test_a_batch_without_a_carrier_issues_no_strip(
    db: SessionDB, session: str, statements: QueryRecorder, raw: RawSql
) -> None:
    db.append_messages_batch(session, [carrier("1")])
    statements.clear()
    db.append_messages_batch(session, [user(), assistant(codex_reasoning_items=[reasoning("r"), *JUNK])])
    assert statements.matching("UPDATE messages") == []
    assert items_of(raw)[0] == [checkpoint("1")]


def test_one_bulk_update_strips_whatever_the_number_of_shadowed_rows(
    db: SessionDB, session: str, statements: QueryRecorder, raw: RawSql
) -> None:
    for number in range(5):
        raw_insert(raw, json.dumps([checkpoint(str(number))]))
    statements.clear()
    db.append_messages_batch(session, [carrier("new")])
    assert len(statements.matching("UPDATE messages")) == 1
    assert items_of(raw) == [None] * 5 + [[checkpoint("new")]]


def test_every_path_that_brings_a_carrier_strips(db: SessionDB, session: str, raw: RawSql) -> None:
    pair = [carrier("1", reasoning("a")), carrier("2")]
    stripped = [[reasoning("a")], [checkpoint("2")]]
    db.replace_messages(session, pair)
    assert items_of(raw) == stripped
    db.archive_and_compact(session, pair)
    assert items_of(raw)[-2:] == stripped
    db.import_sessions([{"id": "imported", "messages": pair}])
    assert items_of(raw, "imported") == stripped
    db.create_session("single", "cli")
    for message in pair:
        db.append_message("single", **{k: v for k, v in message.items() if not k.startswith("_")})
    assert items_of(raw, "single") == stripped


def test_after_a_rewind_past_the_newest_carrier_the_next_one_works(
    db: SessionDB, session: str, raw: RawSql
) -> None:
    db.append_messages_batch(session, [user("1"), carrier("1"), user("2"), carrier("2")])
    raw("UPDATE messages SET active = ? WHERE id > (SELECT min(id) + 1 FROM messages)", False)
    assert items_of(raw) == [None, None, None, [checkpoint("2")]]
    db.append_messages_batch(session, [carrier("3")])
    assert items_of(raw)[-2:] == [[checkpoint("2")], [checkpoint("3")]]


def test_writers_that_land_carriers_at_once_leave_exactly_one(open_db: OpenDb, raw: RawSql) -> None:
    stores = [open_db() for _ in range(4)]
    stores[0].create_session("s", "cli")

    def write(store: SessionDB, name: str) -> None:
        for number in range(10):
            store.append_messages_batch("s", [user(), carrier(f"{name}-{number}", reasoning(name))])

    threads = [threading.Thread(target=write, args=(store, str(i))) for i, store in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored = [items for items in items_of(raw) if items is not None]
    assert [len(items) for items in stored] == [1] * 39 + [2]
    assert stored[-1][-1]["type"] == "compaction"
    assert_counters_are_exact(raw)
