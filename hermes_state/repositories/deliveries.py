"""Results of delegates on their way into the conversation that waits for them (known store, section 2.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from hermes_state.errors import CompressionSessionClosedError, InvalidArgumentError
from hermes_state.records import DelegationDelivery
from hermes_state.repositories import rows
from hermes_state.repositories.appending import BatchAppend
from hermes_state.repositories.base import Repository, Transaction, require_id
from hermes_state.repositories.counters import SessionCounters
from hermes_state.repositories.message_writes import landed_row
from hermes_state.repositories.messages import MessageRepository
from hermes_state.repositories.sessions import SessionRepository
from hermes_state.text import MAX_ID_CHARACTERS

_MESSAGES = rows.MESSAGES
_UID_PREFIX = "delegation:"
_KEY = "delegation_id"


def delivery_message(
    delegation_id: str,
    content: Any,
    role: str = "user",
    display_kind: str | None = "delegation",
    display_metadata: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The message of a delivery; its uid says of which delegation. Raises ``InvalidArgumentError``."""
    most = MAX_ID_CHARACTERS - len(_UID_PREFIX)
    if len(require_id("delegation_id", delegation_id)) > most:
        raise InvalidArgumentError("delegation_id", f"it is longer than {most} characters")
    if display_metadata is not None and not isinstance(display_metadata, Mapping):
        raise InvalidArgumentError("display_metadata", "it must be a dict")
    return {
        "role": role,
        "content": content,
        "message_uid": _UID_PREFIX + delegation_id,
        "display_kind": display_kind,
        "display_metadata": {**(display_metadata or {}), _KEY: delegation_id},
    }


class DeliveryRepository(Repository):
    """Deliveries inside the unit of work."""

    def __init__(self, transaction: Transaction) -> None:
        super().__init__(transaction)
        self._sessions = SessionRepository(transaction)
        self._messages = MessageRepository(transaction)

    def append(self, session_id: str, message: Mapping[str, Any]) -> DelegationDelivery:
        """Appends a ``delivery_message`` at the live end of the conversation, unless any of its sessions holds it.

        See ``SessionDB.append_delegation_delivery``.
        """
        with self._transaction.verb():
            tip = self._locked_tip(session_id)
            found = self._delivered(tip, message["message_uid"])
            if found is not None:
                return DelegationDelivery(found.session_id, found.id, is_new=False)
            batch = BatchAppend(self._transaction, tip, self._messages.encode(tip, [message]))
            batch.run()
        return DelegationDelivery(tip, landed_row(batch.landed[0]).row_id, is_new=True)

    def _locked_tip(self, session_id: str) -> str:
        """The live end, its row locked; a compaction that publishes the next one at the same moment moves it."""
        tip = self._sessions.compression_tip(session_id)
        while True:
            try:
                SessionCounters(self._transaction.conn, self._operations, tip).lock()
            except CompressionSessionClosedError:
                moved = self._sessions.compression_tip(session_id)
                if moved == tip:
                    raise
                tip = moved
            else:
                return tip

    def _delivered(self, tip: str, uid: str) -> sa.Row[Any, Any] | None:
        """The row of the delivery in the session or in one that it continues, the newest one, whatever its state."""
        is_in = self._operations.is_any_of(_MESSAGES.c.session_id, "chain")
        stmt = sa.select(_MESSAGES.c.session_id, _MESSAGES.c.id).where(is_in, _MESSAGES.c.message_uid == uid)
        chain = self._operations.list_value(self._sessions.ancestors(tip))
        found = self._transaction.conn.execute(stmt, {"chain": chain}).all()
        return max(found, key=lambda row: row.id, default=None)
