"""CONTRACT.md section 2, rules 2 and 4, and the list of keys."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_state import InvalidMessageError, MessageRecord, SessionDB
from tests.support.builders import assistant, reasoning, user
from tests.support.raw import RawSql

PICTURE = "data:image/png;base64," + "iVBORw0KGgo" * 50
PARTS = [
    ([{"type": "text", "text": "one"}, {"type": "image_url", "image_url": {"url": PICTURE}}], "one"),
    ([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "one\ntwo"),
    ({"type": "text", "text": "one"}, "one"),
    ([{"type": "image_url", "image_url": {"url": PICTURE}}], None),
    ([], None),
    ({}, None),
]
ASSISTANT_ONLY = {
    "reasoning": "why",
    "reasoning_content": "why",
    "reasoning_details": [{"a": 1}],
    "codex_reasoning_items": [reasoning()],
    "codex_message_items": [{"b": 2}],
}
PATHS = ["append", "batch", "replace", "compact", "update", "import"]


@pytest.mark.parametrize(("content", "text"), PARTS)
def test_parts_come_back_exactly_and_outside_readers_see_their_text(
    db: SessionDB, session: str, raw: RawSql, content: Any, text: str | None
) -> None:
    db.append_message(session, "user", content)
    assert raw("SELECT content FROM messages") == [(text,)]
    assert db.get_messages(session)[0]["content"] == content
    assert db.get_messages_as_conversation(session)[0]["content"] == content


@pytest.mark.parametrize("content", [0, 7, -1.5, 2**70, False, True])
def test_numbers_come_back_as_the_numbers_they_were(db: SessionDB, session: str, content: Any) -> None:
    db.append_message(session, "user", content)
    stored = db.get_messages(session)[0]["content"]
    assert (stored, type(stored)) == (content, type(content))


def test_absent_content_is_null(db: SessionDB, session: str, raw: RawSql) -> None:
    db.append_messages_batch(session, [{"role": "assistant"}, {"role": "assistant", "content": None}])
    assert raw("SELECT content, content_parts FROM messages") == [(None, None)] * 2
    assert [m["content"] for m in db.get_messages(session)] == [None, None]


def test_plain_text_never_uses_the_json_column(db: SessionDB, session: str, raw: RawSql) -> None:
    db.append_message(session, "user", '[{"type": "text", "text": "typed by hand"}]')
    assert raw("SELECT content_parts FROM messages") == [(None,)]
    assert db.get_messages(session)[0]["content"] == '[{"type": "text", "text": "typed by hand"}]'


def test_base64_never_reaches_the_text_column(db: SessionDB, session: str, raw: RawSql) -> None:
    parts = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": PICTURE}}]
    db.append_message(session, "user", parts)
    assert raw("SELECT count(*) FROM messages WHERE content LIKE '%base64%'") == [(0,)]


@pytest.mark.parametrize("role", ["user", "tool", "assistant "])
@pytest.mark.parametrize("path", PATHS)
def test_assistant_only_keys_are_dropped_on_other_roles_in_every_write_path(
    db: SessionDB, session: str, raw: RawSql, role: str, path: str
) -> None:
    _write(db, session, path, {"role": role, "content": "x", **ASSISTANT_ONLY})
    columns = ", ".join(ASSISTANT_ONLY)
    assert raw(f"SELECT {columns} FROM messages WHERE active") == [(None,) * len(ASSISTANT_ONLY)]


@pytest.mark.parametrize("path", PATHS)
def test_assistant_rows_keep_them_in_every_write_path(db: SessionDB, session: str, path: str) -> None:
    _write(db, session, path, {"role": "assistant", "content": "x", **ASSISTANT_ONLY})
    row: dict[str, Any] = dict(_last_row(db, session))
    assert {key: row[key] for key in ASSISTANT_ONLY} == ASSISTANT_ONLY


def test_a_non_assistant_message_is_not_refused_for_a_key_that_is_dropped(
    db: SessionDB, session: str
) -> None:
    db.append_messages_batch(session, [user(codex_reasoning_items="no json at all", reasoning=7)])
    assert db.get_messages(session)[0]["codex_reasoning_items"] is None


@pytest.mark.parametrize("role", ["user", "assistant", "tool", "system", "x" * 64, "anything at all"])
def test_any_short_text_is_a_role(db: SessionDB, session: str, raw: RawSql, role: str) -> None:
    db.append_message(session, role, "x")
    assert raw("SELECT role FROM messages") == [(role,)]


@pytest.mark.parametrize(
    "message", [{}, {"content": "x"}, *({"role": r} for r in (None, "", "x" * 65, 5, ["user"]))]
)
def test_a_message_without_a_usable_role_is_refused(
    db: SessionDB, session: str, raw: RawSql, message: dict[str, Any]
) -> None:
    with pytest.raises(InvalidMessageError, match="role") as refused:
        db.append_messages_batch(session, [user(), message])
    assert (refused.value.index, refused.value.field) == (1, "role")
    assert raw("SELECT 1 FROM messages") == []


@pytest.mark.parametrize("message", [None, "text", 5, ["role", "user"], b"x"])
def test_what_is_no_dict_is_refused(db: SessionDB, session: str, raw: RawSql, message: Any) -> None:
    with pytest.raises(InvalidMessageError) as refused:
        db.append_messages_batch(session, [user(), message])
    assert (refused.value.index, refused.value.field) == (1, None)
    assert raw("SELECT 1 FROM messages") == []


def test_read_only_keys_are_ignored_on_write(db: SessionDB, session: str, raw: RawSql) -> None:
    db.append_messages_batch(session, [user(id=77, session_id="other", active=False, compacted=True)])
    assert raw("SELECT session_id, active, compacted FROM messages") == [(session, True, False)]
    assert raw("SELECT id FROM messages") != [(77,)]


def test_keys_with_an_underscore_are_the_callers_own(db: SessionDB, session: str, raw: RawSql) -> None:
    message = user(_mine=object(), _also_mine={1, 2})
    db.append_messages_batch(session, [message])
    assert raw("SELECT extra FROM messages") == [(None,)]
    assert {"_mine", "_also_mine"} <= message.keys()


def test_unknown_keys_live_in_one_json_column_and_are_spread_back(
    db: SessionDB, session: str, raw: RawSql
) -> None:
    db.append_messages_batch(session, [user(name="bob", refusal=None, score=0, tags=[], deep={"a": [1]})])
    assert raw.json("SELECT extra FROM messages") == [
        {"name": "bob", "refusal": None, "score": 0, "tags": [], "deep": {"a": [1]}}
    ]
    row: dict[str, Any] = dict(db.get_messages(session)[0])
    assert (row["name"], row["refusal"], row["score"], row["tags"], row["deep"]) == (
        "bob",
        None,
        0,
        [],
        {"a": [1]},
    )
    conversation: dict[str, Any] = dict(db.get_messages_as_conversation(session)[0])
    assert conversation["name"] == "bob"
    assert "extra" not in row


def test_a_caller_may_have_unknown_keys_that_are_named_like_columns(db: SessionDB, session: str) -> None:
    db.append_messages_batch(session, [user(extra={"a": 1}, content_parts=[1])])
    row: dict[str, Any] = dict(db.get_messages(session)[0])
    assert (row["extra"], row["content_parts"], row["content"]) == ({"a": 1}, [1], "question")


def test_message_id_is_an_alias_of_the_platform_id(db: SessionDB, session: str, raw: RawSql) -> None:
    db.append_messages_batch(
        session, [user(message_id="p1"), user(message_id="p2", platform_message_id="p2")]
    )
    assert raw("SELECT platform_message_id FROM messages ORDER BY id") == [("p1",), ("p2",)]
    assert [m["platform_message_id"] for m in db.get_messages(session)] == ["p1", "p2"]
    assert [m["message_id"] for m in db.get_messages_as_conversation(session)] == ["p1", "p2"]


@pytest.mark.parametrize("swapped", [False, True])
def test_two_different_platform_ids_are_refused(db: SessionDB, session: str, swapped: bool) -> None:
    keys = {"message_id": "p1", "platform_message_id": "p2"}
    ordered = dict(reversed(keys.items())) if swapped else keys
    with pytest.raises(InvalidMessageError):
        db.append_messages_batch(session, [user(**ordered)])


@pytest.mark.parametrize(
    ("given", "stored"), [(True, True), (False, False), (1, True), (0, False), (None, False)]
)
def test_observed_is_a_boolean(db: SessionDB, session: str, given: Any, stored: bool) -> None:
    db.append_messages_batch(session, [user(observed=given)])
    assert db.get_messages(session)[0]["observed"] is stored


@pytest.mark.parametrize("observed", [2, -1, "yes", 1.0])
def test_observed_refuses_anything_else_on_both_databases(db: SessionDB, session: str, observed: Any) -> None:
    with pytest.raises(InvalidMessageError) as refused:
        db.append_messages_batch(session, [user(observed=observed)])
    assert refused.value.field == "observed"


@pytest.mark.parametrize("count", [0, 1, 3_000_000_000, 2**63 - 1])
def test_token_counts_are_64_bits_wide(db: SessionDB, session: str, raw: RawSql, count: int) -> None:
    db.append_messages_batch(session, [assistant(token_count=count)])
    assert raw("SELECT token_count FROM messages") == [(count,)]


@pytest.mark.parametrize("count", ["abc", "7", 1.5, True, 2**63, -1, [1]])
def test_token_counts_that_are_no_counts_are_refused(db: SessionDB, session: str, count: Any) -> None:
    with pytest.raises(InvalidMessageError) as refused:
        db.append_messages_batch(session, [assistant(token_count=count)])
    assert refused.value.field == "token_count"


def test_texts_of_any_length_fit_every_text_column(db: SessionDB, session: str) -> None:
    db.append_messages_batch(session, [assistant(finish_reason="x" * 5_000, tool_name="y" * 5_000)])
    assert db.get_messages(session)[0]["finish_reason"] == "x" * 5_000


def _write(db: SessionDB, session: str, path: str, message: dict[str, Any]) -> None:
    if path == "append":
        db.append_message(session, **message)
    elif path == "batch":
        db.append_messages_batch(session, [message])
    elif path == "replace":
        db.replace_messages(session, [message])
    elif path == "compact":
        db.archive_and_compact(session, [message])
    elif path == "update":
        row_id = db.append_message(session, message["role"], "old")
        db.append_messages_batch(session, [{**message, "_row_id": row_id}])
    else:
        db.import_sessions([{"id": "imported", "source": "cli", "messages": [message]}])


def _last_row(db: SessionDB, session: str) -> MessageRecord:
    return (db.get_messages(session) or db.get_messages("imported"))[-1]
