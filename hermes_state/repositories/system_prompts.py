"""System prompts, kept once for all sessions that use them, under the hash of their text (docs/adr/0006)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import sqlalchemy as sa

from hermes_state.models import SessionRow, SystemPromptRow
from hermes_state.repositories.base import Transaction, table_of

PROMPTS = table_of(SystemPromptRow)
_SESSIONS = table_of(SessionRow)


def stored_hash(transaction: Transaction, prompt: str) -> str:
    """The hash under which ``prompt`` is stored, now and until the transaction ends."""
    digest = hashlib.sha256(prompt.encode()).hexdigest()
    insert = (
        transaction.operations.insert(PROMPTS).values(hash=digest, prompt=prompt).on_conflict_do_nothing()
    )
    # Shared, so that nobody drops it as unused before this transaction's session is visible to them.
    held = sa.select(PROMPTS.c.hash).where(PROMPTS.c.hash == digest).with_for_update(read=True)
    while True:
        transaction.conn.execute(insert)
        if transaction.conn.execute(held).first() is not None:
            return digest


def drop_unused(transaction: Transaction, hashes: Iterable[str | None]) -> None:
    """Deletes those prompts among ``hashes`` that no session uses any more."""
    operations, conn = transaction.operations, transaction.conn
    wanted = operations.list_value(sorted({digest for digest in hashes if digest is not None}))
    is_wanted = operations.is_any_of(PROMPTS.c.hash, "wanted")
    # Locked first, by a statement of its own: whoever has just stored one of them is waited for, and then seen.
    locked = sa.select(PROMPTS.c.hash).where(is_wanted).order_by(PROMPTS.c.hash).with_for_update()
    if conn.execute(locked, {"wanted": wanted}).first() is None:
        return
    is_used = sa.exists().where(_SESSIONS.c.system_prompt_hash == PROMPTS.c.hash)
    conn.execute(sa.delete(PROMPTS).where(is_wanted, ~is_used), {"wanted": wanted})
