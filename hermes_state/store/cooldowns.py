"""Verbs that undo what a failed attempt to compact has left behind."""

from __future__ import annotations

from hermes_state.repositories.compression_state import CooldownSnapshot
from hermes_state.store.core import StoreCore


class CooldownVerbs(StoreCore):
    """The cool-down as it is stored, for whoever must be able to put it back."""

    def snapshot_compression_failure_cooldown(self, session_id: str) -> CooldownSnapshot | None:
        """The cool-down as it is stored, past or not; ``None`` for an unknown session."""
        return self._read(lambda uow: uow.leases.snapshot_compression_failure_cooldown(session_id))

    def restore_compression_failure_cooldown(self, session_id: str, snapshot: CooldownSnapshot) -> None:
        """Stores exactly what the snapshot holds, a shorter cool-down too.

        Raises ``InvalidArgumentError`` for a time that is no finite number and for a text above the limit.
        """
        self._write(lambda uow: uow.leases.restore_compression_failure_cooldown(session_id, snapshot))
