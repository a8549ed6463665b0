"""Verbs on compaction locks, cool-downs and turn leases (issue 3, item 4)."""

from __future__ import annotations

from collections.abc import Callable

import tenacity

from hermes_state.errors import LeaseHeldError
from hermes_state.repositories.compression_state import CompressionCooldown, CompressionCounters
from hermes_state.repositories.lease_rows import require_seconds
from hermes_state.repositories.leases import DEFAULT_TTL_SECONDS
from hermes_state.store.core import StoreCore

_PAUSE = tenacity.wait_random(0.02, 0.2)


class LeaseVerbs(StoreCore):
    """Who may compact a session, who may run a turn of a conversation. Errors: see ``LeaseRepository``."""

    def try_acquire_compression_lock(
        self, session_id: str, holder: str, ttl_seconds: float = DEFAULT_TTL_SECONDS
    ) -> bool:
        """Takes the session's compaction lock for ``ttl_seconds`` if it is free or expired; the own one is extended.

        The lock of a process of this machine that has provably ended is free too. The session need not exist yet.
        """
        return self._write(
            lambda uow: uow.leases.try_acquire_compression_lock(session_id, holder, ttl_seconds)
        )

    def refresh_compression_lock(
        self, session_id: str, holder: str, ttl_seconds: float = DEFAULT_TTL_SECONDS
    ) -> bool:
        """Lets the own lock end ``ttl_seconds`` from now; an expired one too, as long as nobody claimed it."""
        return self._write(lambda uow: uow.leases.refresh_compression_lock(session_id, holder, ttl_seconds))

    def release_compression_lock(self, session_id: str, holder: str) -> None:
        """Gives the own lock back; does nothing when it is not the holder's."""
        self._write(lambda uow: uow.leases.release_compression_lock(session_id, holder))

    def get_compression_lock_holder(self, session_id: str) -> str | None:
        """Who holds the unexpired compaction lock, or ``None``."""
        return self._read(lambda uow: uow.leases.get_compression_lock_holder(session_id))

    def record_compression_failure_cooldown(
        self, session_id: str, cooldown_until: float, error: str | None = None
    ) -> None:
        """Keeps compaction off until ``cooldown_until`` (epoch seconds); a longer deadline stays, with its error."""
        self._write(
            lambda uow: uow.leases.record_compression_failure_cooldown(session_id, cooldown_until, error)
        )

    def get_compression_failure_cooldown(self, session_id: str) -> CompressionCooldown | None:
        """The running cool-down, ``None`` when there is none or it is past."""
        return self._read(lambda uow: uow.leases.get_compression_failure_cooldown(session_id))

    def clear_compression_failure_cooldown(self, session_id: str) -> None:
        """Ends the cool-down and forgets its error."""
        self._write(lambda uow: uow.leases.clear_compression_failure_cooldown(session_id))

    def get_compression_counters(self, session_id: str) -> CompressionCounters | None:
        """The compactor's counters and recovery deadline; ``None`` for an unknown session."""
        return self._read(lambda uow: uow.leases.get_compression_counters(session_id))

    def set_compression_counter(self, session_id: str, name: str, value: float | None) -> None:
        """Sets one of the names of ``CompressionCounters``; values below 0 become 0."""
        self._write(lambda uow: uow.leases.set_compression_counter(session_id, name, value))

    def increment_compression_counter(self, session_id: str, name: str, by: int = 1) -> int:
        """Adds to a counter in one atomic UPDATE; returns the new value, never below 0; 0 for an unknown session."""
        return self._write(lambda uow: uow.leases.increment_compression_counter(session_id, name, by))

    def try_acquire_session_turn_lease(
        self, session_id: str, holder: str, ttl_seconds: float = DEFAULT_TTL_SECONDS
    ) -> bool:
        """Takes the turn lease of the session's conversation for ``ttl_seconds`` if it is free; never waits.

        A continuation shares the lease of the session that it continues. Free are also an expired lease and that of
        a process of this machine that has provably ended; the own lease is extended.
        """
        return self._take_turn_lease(session_id, holder, ttl_seconds) is None

    def acquire_session_turn_lease(
        self,
        session_id: str,
        holder: str,
        ttl_seconds: float = DEFAULT_TTL_SECONDS,
        *,
        wait_seconds: float = 30.0,
        on_wait: Callable[[str], None] | None = None,
        should_abort: Callable[[], bool] | None = None,
    ) -> None:
        """Takes the turn lease, waiting up to ``wait_seconds`` for its holder to release it.

        Between attempts nothing of the database is held, no transaction and no connection. Before each pause
        ``on_wait`` is called with the present holder. Raises ``LeaseHeldError``, which names that holder, when the
        time is up or ``should_abort()`` is true; it is asked around each pause. Errors of either callback propagate.
        Inside a unit of work of the same thread it raises ``UnitOfWorkOpenError``.
        """
        limit = require_seconds("wait_seconds", wait_seconds, zero=True)
        is_late = tenacity.stop_before_delay(limit)
        other: str | None = None

        def is_aborted() -> bool:
            return should_abort is not None and should_abort()

        def announce(_state: tenacity.RetryCallState) -> None:
            if on_wait is not None and other is not None:
                on_wait(other)

        def attempt() -> str | None:
            nonlocal other
            if other is None:
                other = self._take_turn_lease(session_id, holder, ttl_seconds)
            elif not is_aborted():
                other = self._take_when_free(session_id, holder, ttl_seconds)
            return other

        tenacity.Retrying(
            retry=tenacity.retry_if_result(lambda in_the_way: in_the_way is not None),
            stop=lambda state: is_late(state) or is_aborted(),
            wait=_PAUSE,
            before_sleep=announce,
            retry_error_callback=lambda _state: None,
        )(attempt)
        if other is not None:
            raise LeaseHeldError(session_id, other)

    def refresh_session_turn_lease(
        self, session_id: str, holder: str, ttl_seconds: float = DEFAULT_TTL_SECONDS
    ) -> bool:
        """Lets the own lease end ``ttl_seconds`` from now; an expired one too, as long as nobody claimed it."""
        return self._write(lambda uow: uow.leases.refresh_session_turn_lease(session_id, holder, ttl_seconds))

    def release_session_turn_lease(self, session_id: str, holder: str) -> None:
        """Gives the own lease back; does nothing when it is not the holder's."""
        self._write(lambda uow: uow.leases.release_session_turn_lease(session_id, holder))

    def has_live_session_turn_lease(self, session_id: str) -> bool:
        """Whether anybody holds an unexpired lease of the session's conversation."""
        return self._read(lambda uow: uow.leases.get_session_turn_lease_holder(session_id)) is not None

    def _take_turn_lease(self, session_id: str, holder: str, ttl_seconds: float) -> str | None:
        return self._write(lambda uow: uow.leases.take_session_turn_lease(session_id, holder, ttl_seconds))

    def _take_when_free(self, session_id: str, holder: str, ttl_seconds: float) -> str | None:
        """Looks before it writes: whoever waits must not queue up for the write lock again and again."""
        other = self._read(lambda uow: uow.leases.get_session_turn_lease_holder(session_id))
        if other is not None and other != holder:
            return other
        return self._take_turn_lease(session_id, holder, ttl_seconds)
