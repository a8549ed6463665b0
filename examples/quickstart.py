"""The ten lines of the README: run it anywhere, it makes ``state.db`` in the current folder."""

from hermes_state import SessionDB

with SessionDB("state.db") as db:  # or SessionDB(url="postgresql+psycopg://user@host/agents")
    db.ensure_session("s1", source="cli", model="some-model")
    checkpoint = {"type": "compaction", "encrypted_content": "..."}
    question = {"role": "user", "content": "What is six times seven?"}
    answer = {"role": "assistant", "content": "42", "codex_reasoning_items": [checkpoint]}
    db.append_messages_batch("s1", [question, answer])  # all or none; older checkpoints are dropped
    with db.unit_of_work() as uow:  # several verbs, one transaction
        uow.messages.append("s1", "user", "Thank you.")
        uow.sessions.end("s1", "done")
    print(db.get_messages_as_conversation("s1"))
