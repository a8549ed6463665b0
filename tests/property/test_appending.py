"""CONTRACT.md section 3: a batch equals single appends, and repeating one changes nothing."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hermes_state import SessionDB
from tests.support.builders import call, checkpoint, reasoning
from tests.support.raw import RawSql
from tests.support.strategies import messages, quick

_numbers = itertools.count()
COLUMNS = """role, content, content_parts, tool_call_id, tool_calls, tool_name, token_count, finish_reason, reasoning,
    reasoning_content, reasoning_details, codex_reasoning_items, codex_message_items, platform_message_id, observed,
    effect_disposition, api_content, display_kind, display_metadata, extra, active, compacted"""
small = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "assistant"]),
        "content": st.sampled_from(["a", "b", None]),
    },
    optional={
        "platform_message_id": st.sampled_from(["p1", "p2"]),
        "codex_reasoning_items": st.sampled_from(
            [[checkpoint("a")], [reasoning(), checkpoint("b")], [reasoning()]]
        ),
        "tool_calls": st.sampled_from([[call()], [call("x"), call("y")], None]),
    },
)
batches = st.one_of(st.lists(small, max_size=8), st.lists(messages, max_size=4))


def stored(raw: RawSql, session_id: str) -> list[Any]:
    """The rows of the session, column by column, ids, times and uids apart, and its counters."""
    rows = raw(f"SELECT {COLUMNS} FROM messages WHERE session_id = ? ORDER BY id", session_id)
    return [rows, raw("SELECT message_count, tool_call_count FROM sessions WHERE id = ?", session_id)]


def calls_in(raw: RawSql, session_id: str) -> int:
    """The calls of the session: the length of each list, one for any other value."""
    found = raw.column(
        "SELECT tool_calls FROM messages WHERE session_id = ? AND tool_calls IS NOT NULL", session_id
    )
    return sum(len(calls) if isinstance(calls, list) else 1 for calls in map(json.loads, found))


@quick
@given(batch=batches)
def test_a_batch_equals_single_appends(db: SessionDB, raw: RawSql, batch: list[dict[str, Any]]) -> None:
    together, one_by_one, verb = (db.create_session(f"{kind}{next(_numbers)}", "cli") for kind in "tov")
    inserted = db.append_messages_batch(together, [dict(m) for m in batch])
    assert inserted == sum(db.append_messages_batch(one_by_one, [dict(m)]) for m in batch)
    for message in batch:
        db.append_message(verb, **{"content": None, **message})
    assert stored(raw, together) == stored(raw, one_by_one) == stored(raw, verb)
    assert stored(raw, together)[1] == [(len(stored(raw, together)[0]), calls_in(raw, together))]


@quick
@given(data=st.data(), pool=st.lists(small, min_size=1, max_size=8))
def test_sub_batches_may_be_repeated_in_any_way(
    db: SessionDB, raw: RawSql, data: st.DataObject, pool: list[dict[str, Any]]
) -> None:
    session_id = db.create_session(f"r{next(_numbers)}", "cli")
    named = [
        {k: v for k, v in m.items() if k != "platform_message_id"} | {"message_uid": f"u{i}"}
        for i, m in enumerate(pool)
    ]
    seen: list[str] = []
    for places in data.draw(st.lists(st.lists(st.integers(0, len(pool) - 1), max_size=6), max_size=6)):
        new = list(dict.fromkeys(uid for place in places if (uid := f"u{place}") not in seen))
        assert db.append_messages_batch(session_id, [dict(named[place]) for place in places]) == len(new)
        seen += new
    uids = raw.column("SELECT message_uid FROM messages WHERE session_id = ? ORDER BY id", session_id)
    assert uids == seen
    assert stored(raw, session_id)[1] == [(len(seen), calls_in(raw, session_id))]
