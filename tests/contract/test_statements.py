"""How statements reach their rows: CONTRACT.md section 4, rule 7, and DESIGN.md, decision 10."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hermes_state import SessionDB
from tests.support.builders import Message, carrier, user
from tests.support.raw import RawSql
from tests.support.statements import QueryRecorder


def plan_of(raw: RawSql, statement: str, parameters: Any, backend: str) -> str:
    """How the database would run a recorded statement."""
    explain = "EXPLAIN QUERY PLAN" if backend == "sqlite" else "EXPLAIN"
    return "\n".join(
        str(row[-1]) for row in raw.conn.execute(f"{explain} {statement}", parameters).fetchall()
    )


def filled(db: SessionDB, session: str, raw: RawSql) -> None:
    db.append_messages_batch(session, [user(str(number)) for number in range(3_000)])
    for number in range(3):
        db.append_messages_batch(session, [carrier(str(number))])
    raw("ANALYZE")


def plan_of_the_strip(statements: QueryRecorder, raw: RawSql, backend: str) -> str:
    (strip,) = statements.matching("UPDATE messages SET codex_reasoning_items = (") or statements.matching(
        "UPDATE messages SET codex_reasoning_items = stripped"
    )
    return plan_of(raw, strip, statements.parameters[statements.texts.index(strip)], backend)


@pytest.mark.parametrize("in_place", [False, True], ids=["new carrier", "edited carrier"])
def test_the_strip_is_planned_through_the_carrier_index(
    db: SessionDB, session: str, raw: RawSql, statements: QueryRecorder, backend: str, *, in_place: bool
) -> None:
    filled(db, session, raw)
    message = carrier("new") | ({"_row_id": 1} if in_place else {})
    statements.clear()
    assert db.append_messages_batch(session, [message]) == (0 if in_place else 1)
    plan = plan_of_the_strip(statements, raw, backend)
    # Once for the shadowed rows; once more for the newest carrier where the write does not know it already.
    assert plan.count("ix_messages__carriers") >= (2 if in_place else 1)
    assert "SCAN messages" not in plan
    assert "Seq Scan on messages" not in plan


def test_a_repeated_uid_is_looked_up_through_its_own_index(
    db: SessionDB, session: str, raw: RawSql, statements: QueryRecorder, backend: str
) -> None:
    filled(db, session, raw)
    db.append_messages_batch(session, [user("twice", message_uid="u")])
    statements.clear()
    db.append_messages_batch(session, [user("twice", message_uid="u")])
    (lookup,) = statements.matching("FROM messages")[:1]
    plan = plan_of(raw, lookup, statements.parameters[statements.texts.index(lookup)], backend)
    assert "uq_messages__session_id_message_uid" in plan or "sqlite_autoindex_messages" in plan


def test_every_statement_on_messages_names_the_session(
    db: SessionDB, session: str, statements: QueryRecorder
) -> None:
    statements.clear()
    edited: Message = user("a", platform_message_id="p")
    db.append_messages_batch(session, [edited, carrier("1")])
    db.append_messages_batch(session, [edited | {"content": "b"}, user("u", message_uid="u"), carrier("2")])
    db.append_messages_batch(session, [user("u", message_uid="u")])
    db.get_messages(session, after_id=1, limit=2)
    db.get_messages_as_conversation(session, include_ancestors=True)
    db.replace_messages(session, db.get_messages(session))
    db.archive_and_compact(session, [user("summary")])
    exported = db.export_session(session)
    db.import_sessions([exported | {"id": "copy"}] if exported else [])
    db.message_count(session)
    db.clear_messages(session)
    on_messages = [text for text in statements.texts if re.search(r"\b(FROM|INTO|UPDATE) messages\b", text)]
    assert len(on_messages) > 15
    assert [text for text in on_messages if "session_id" not in text] == []
