"""Any message comes back as CONTRACT.md section 2 says."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_state import SessionDB
from tests.support.strategies import expected_conversation, expected_row, is_carrier, messages, quick

_numbers = itertools.count()
batches = st.lists(messages, min_size=1, max_size=3).filter(lambda batch: sum(map(is_carrier, batch)) < 2)
# A repeated platform id is a second send of the same message, which is another property.
distinct = batches.filter(
    lambda batch: len({m.get("platform_message_id", i) for i, m in enumerate(batch)}) == len(batch)
)


@pytest.fixture
def written(db: SessionDB) -> Any:
    """Writes a batch into a new session and returns its id."""

    def write(batch: list[dict[str, Any]]) -> str:
        session_id = db.create_session(f"s{next(_numbers)}", "cli")
        assert db.append_messages_batch(session_id, [dict(m) for m in batch]) == len(batch)
        return session_id

    return write


def exact(value: Any) -> str:
    """A form in which 1, 1.0, True and differently ordered nested dicts differ; only the outermost keys are sorted."""
    return repr(sorted(value.items()) if isinstance(value, dict) else value)


@quick
@given(batch=distinct)
def test_whole_rows_hold_what_was_written(db: SessionDB, written: Any, batch: list[dict[str, Any]]) -> None:
    rows: list[dict[str, Any]] = [dict(row) for row in db.get_messages(written(batch))]
    expected = [expected_row(message) for message in batch]
    assert [exact({k: row[k] for k in want}) for row, want in zip(rows, expected, strict=True)] == list(
        map(exact, expected)
    )
    times = [(m.get("timestamp"), row["timestamp"]) for m, row in zip(batch, rows, strict=True)]
    assert all(repr(float(given)) == repr(stored + 0.0) for given, stored in times if given)


@quick
@given(batch=distinct)
def test_the_conversation_holds_what_was_written(
    db: SessionDB, written: Any, batch: list[dict[str, Any]]
) -> None:
    found: list[dict[str, Any]] = [dict(m) for m in db.get_messages_as_conversation(written(batch))]
    expected = [expected_conversation(message) for message in batch]
    assert all(isinstance(message.pop("timestamp"), float) for message in found)
    assert list(map(exact, found)) == list(map(exact, expected))


@quick
@given(batch=distinct)
def test_replacing_a_transcript_by_itself_changes_nothing_but_ids(
    db: SessionDB, written: Any, batch: list[dict[str, Any]]
) -> None:
    session_id = written(batch)
    before: list[Any] = db.get_messages(session_id)
    db.replace_messages(session_id, before)
    after: list[Any] = db.get_messages(session_id)
    assert [exact({**row, "id": 0}) for row in after] == [exact({**row, "id": 0}) for row in before]
    assert not {row["id"] for row in after} & {row["id"] for row in before}


@quick
@given(batch=distinct)
def test_an_exported_session_imports_as_the_same_messages(
    db: SessionDB, written: Any, batch: list[dict[str, Any]]
) -> None:
    session_id = written(batch)
    exported = db.export_session(session_id)
    assert exported is not None
    assert db.import_sessions([{**exported, "id": f"{session_id} copy"}])["ok"]
    pairs = zip(db.get_messages(session_id), db.get_messages(f"{session_id} copy"), strict=True)
    assert all(
        exact({**a, "id": 0, "session_id": ""}) == exact({**b, "id": 0, "session_id": ""}) for a, b in pairs
    )
