"""The verb that brings the result of a delegate into the conversation that waits for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes_state.records import DelegationDelivery
from hermes_state.repositories.deliveries import delivery_message
from hermes_state.store.core import StoreCore


class DeliveryVerbs(StoreCore):
    """Deliveries that may be repeated."""

    def append_delegation_delivery(
        self,
        session_id: str,
        delegation_id: str,
        content: Any,
        *,
        role: str = "user",
        display_kind: str | None = "delegation",
        display_metadata: Mapping[str, Any] | None = None,
    ) -> DelegationDelivery:
        """Appends the result of a delegation to the conversation, once: a repeated delivery changes nothing.

        It goes to the live end of the compression chain of ``session_id``. The delegation counts as delivered when any session of
        the conversation holds its message, in whatever state; the first content stays. ``display_metadata`` gets the key
        ``delegation_id`` (at most 501 characters). Returns where the message stands, and whether it ``is_new``.
        Raises ``SessionNotFoundError``, ``CompressionSessionClosedError`` for a closed end that nothing continues,
        ``InvalidMessageError`` and ``InvalidArgumentError``.
        """
        message = delivery_message(delegation_id, content, role, display_kind, display_metadata)
        self._encode(session_id, [message])  # a refused message waits for no write lock
        return self._write(lambda uow: uow.deliveries.append(session_id, message))
