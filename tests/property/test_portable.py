"""Export -> import -> export is identical, on either database and across them (issue 4, item 3)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_state import SessionDB
from tests.support import strategies
from tests.support.pairs import PAIRS, store_urls
from tests.support.raw import RawSql

IDS = ["a", "b", "c", "é", "%"]
messages = st.builds(
    lambda message, state, uid: {**message, **state, "message_uid": uid},
    strategies.messages,
    st.sampled_from(
        [
            {},
            {"active": False, "compacted": True},
            {"active": False},
            {"active": False, "_superseded_by": {"session_id": "b", "message_uid": "u1"}},
            {"active": False, "_superseded_by": {"session_id": "a", "message_uid": "u2"}},
        ]
    ),
    st.sampled_from([f"u{n}" for n in range(9)]),
)
sessions = st.fixed_dictionaries(
    {"id": st.sampled_from(IDS), "started_at": st.floats(0, 7e9)},
    optional={
        "parent_session_id": st.sampled_from([*IDS, "missing"]),
        "source": strategies.texts,
        "title": strategies.texts,
        "system_prompt": strategies.texts,
        "model_config": st.one_of(
            strategies.texts, st.dictionaries(strategies.texts, strategies.json_values)
        ),
        "kind": st.sampled_from(["root", "continuation", "branch", "delegate", "tool"]),
        "end_reason": st.sampled_from(["compression", "user_exit"]),
        "estimated_cost_usd": st.floats(allow_nan=False, allow_infinity=False),
        "input_tokens": st.integers(0, 2**63 - 1),
        "archived": st.booleans(),
        "messages": st.lists(messages, max_size=5, unique_by=lambda message: message["message_uid"]),
    },
)
lists = st.lists(sessions, max_size=5, unique_by=lambda session: session["id"])


@pytest.fixture(params=PAIRS)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[tuple[SessionDB, RawSql]]]:
    """Two empty stores and raw SQL beside each."""
    with store_urls(request.param, request, tmp_path) as urls:
        opened = [(SessionDB(url=url), RawSql(url)) for url in urls]
        yield opened
        for db, raw in opened:
            raw.close()
            db.close()


def exact(value: Any) -> Any:
    """A form in which 1, 1.0 and True differ, and dicts by the order of their keys."""
    if isinstance(value, dict):
        return [(key, exact(item)) for key, item in value.items()]
    return [exact(item) for item in value] if isinstance(value, list) else repr(value)


@settings(strategies.quick, max_examples=15)
@given(listed=lists)
def test_export_import_export_is_identical(
    pair: list[tuple[SessionDB, RawSql]], listed: list[dict[str, Any]]
) -> None:
    for _, raw in pair:
        raw("DELETE FROM sessions")
    (first, _), (second, _) = pair
    report = first.import_sessions(listed)
    assert report["errors"] == []
    exported = first.export_all()
    assert {session["id"] for session in exported} == {session["id"] for session in listed}
    assert second.import_sessions(exported)["errors"] == []
    assert exact(second.export_all()) == exact(exported)
    parts: list[Any] = list(second.iter_export(in_parts=True))
    assert exact(parts) == exact(exported)
