"""How statements reach their rows: CONTRACT.md section 4, rule 7, and DESIGN.md, decision 10."""

from __future__ import annotations

import re

from hermes_state import SessionDB
from tests.support.builders import Message, carrier, user
from tests.support.raw import RawSql
from tests.support.statements import QueryRecorder


def plan_of(raw: RawSql, statement: str, session_id: str, backend: str) -> str:
    """How the database would run a recorded statement whose only parameter is the session id."""
    if backend == "sqlite":
        rows = raw(f"EXPLAIN QUERY PLAN {statement}", *[session_id] * statement.count("?"))
        return "\n".join(str(row[-1]) for row in rows)
    text = re.sub(r"%\(session_id\)s", f"'{session_id}'", statement).replace("%%", "%")
    return "\n".join(row[0] for row in raw.conn.execute(f"EXPLAIN {text}".encode()).fetchall())


def filled(db: SessionDB, session: str, raw: RawSql) -> None:
    db.append_messages_batch(session, [user(str(number)) for number in range(3_000)])
    for number in range(3):
        db.append_messages_batch(session, [carrier(str(number))])
    raw("ANALYZE")


def test_the_strip_is_planned_through_the_carrier_index(
    db: SessionDB, session: str, raw: RawSql, statements: QueryRecorder, backend: str
) -> None:
    filled(db, session, raw)
    statements.clear()
    db.append_messages_batch(session, [carrier("new")])
    (strip,) = statements.matching("UPDATE messages")
    plan = plan_of(raw, strip, session, backend)
    assert plan.count("ix_messages__carriers") == 2
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
    if backend == "sqlite":
        plan = raw(f"EXPLAIN QUERY PLAN {lookup}", session, '["u"]')
        assert "uq_messages__session_id_message_uid" in str(plan) or "sqlite_autoindex_messages" in str(plan)
        return
    text = lookup.replace("%(session_id)s", f"'{session}'").replace("%(wanted)s", "'{u}'")
    plan = raw.conn.execute(f"EXPLAIN {text}".encode()).fetchall()
    assert "uq_messages__session_id_message_uid" in str(plan)


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
