"""The verb that takes back a turn by its number."""

from __future__ import annotations

from typing import Any

from hermes_state.records import RewindResult
from hermes_state.store.core import StoreCore


class TurnVerbs(StoreCore):
    """Rewinding as a person counts questions."""

    def rewind_user_turn(
        self,
        session_id: str,
        ordinal: int,
        *,
        warm_history: list[Any] | None = None,
        turn_lease_holder: str | None = None,
        compression_lock_holder: str | None = None,
    ) -> RewindResult:
        """``rewind_to_message`` for the active user message number ``ordinal``: 0 is the first one, -1 the latest.

        Messages of ``display_kind="hidden"`` do not count. ``warm_history`` is the agent's live list: after the commit it ends
        before that message, found by ``_row_id``, or by number and content in dicts without one. Raises
        ``InvalidArgumentError`` when there is no such message, ``RewindConflictError`` when the live list does not hold it (then
        nothing is changed on either side), and the errors of ``rewind_to_message``.
        """
        return self._write(
            lambda uow: uow.messages.rewind_user_turn(
                session_id,
                ordinal,
                warm_history=warm_history,
                turn_lease_holder=turn_lease_holder,
                compression_lock_holder=compression_lock_holder,
            )
        )
