"""The mark of an unfinished store: a table that is there until a copy or an adoption has proved that it is complete.

As long as it is there, ``SessionDB`` refuses to open the store (``StoreIncompleteError``), see
``upgrades.check_schema``. It also holds how far the operation came and who is at it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import sqlalchemy as sa

from hermes_state.errors import HermesStateError
from hermes_state.repositories.lease_holders import is_gone, local_lease_holder
from hermes_state.upgrades import INCOMPLETE_TABLE

_NOTES = sa.Table(
    INCOMPLETE_TABLE,
    sa.MetaData(),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)
UNPROVABLE_SECONDS = 600.0
"""How long a holder that cannot be looked at (another machine) counts as alive after its last sign."""


class OperationRunningError(HermesStateError, RuntimeError):
    """Another process is filling the store."""

    transient = True

    def __init__(self, holder: str) -> None:
        self.holder = holder
        super().__init__(f"another process is filling this store ({holder}); wait until it has ended")


class OtherOperationError(HermesStateError, ValueError):
    """The store is the unfinished target of another operation or source."""

    def __init__(self, operation: str, source: str) -> None:
        self.operation = operation
        self.source = source
        super().__init__(
            f"the target is the unfinished one of `hermes-state {operation}` from {source}; finish that, "
            "start over with --restart, or give another target"
        )


class SourceChangedError(HermesStateError, RuntimeError):
    """The source no longer gives what an earlier run took from it; the target stays incomplete, nothing of it is lost."""

    def __init__(self) -> None:
        super().__init__(
            "what an earlier run copied is no longer what the source, or an option of this run, gives; "
            "start over with --restart"
        )


class LostTargetError(HermesStateError, RuntimeError):
    """Somebody else took the target over, or removed it."""

    def __init__(self) -> None:
        super().__init__("another process took the target over; nothing more was written to it")


# The runs of this process: one that failed to say so (the disk was full) has ended all the same.
_running: set[str] = set()


@contextmanager
def running(operation: str) -> Iterator[str]:
    """The name of a run, which counts as alive as long as the block lasts."""
    holder = local_lease_holder(f"{operation} {uuid4().hex}")
    _running.add(holder)
    try:
        yield holder
    finally:
        _running.discard(holder)


def _is_alive(holder: str) -> bool:
    if holder.startswith(local_lease_holder()):
        return holder in _running
    return bool(holder) and not is_gone(holder)


class IncompleteMark:
    """The mark in one store, for one of the ``running`` operations; every call runs in the caller's transaction."""

    def __init__(self, conn: sa.Connection, holder: str) -> None:
        self._conn = conn
        self._holder = holder

    def notes(self) -> dict[str, str]:
        """What the mark says; empty for a store without one."""
        if not sa.inspect(self._conn).has_table(INCOMPLETE_TABLE):
            return {}
        return {row.key: row.value for row in self._conn.execute(sa.select(_NOTES.c.key, _NOTES.c.value))}

    def create(self, operation: str, source: str, now: float) -> None:
        """Marks the store."""
        _NOTES.create(self._conn)
        named = {"operation": operation, "source": source, "holder": self._holder, "seen_at": repr(now)}
        self._conn.execute(sa.insert(_NOTES), [{"key": k, "value": v} for k, v in named.items()])

    def take_over(self, notes: dict[str, str], operation: str, source: str | None, now: float) -> None:
        """Goes on with what another process began; ``source=None``: whatever it was.

        Raises ``OperationRunningError`` while that process is alive, ``OtherOperationError`` when it did something else.
        """
        holder = notes.get("holder", "")
        is_old = now - float(notes.get("seen_at", "0")) > UNPROVABLE_SECONDS
        if _is_alive(holder) and not is_old:
            raise OperationRunningError(holder)
        if notes.get("operation") != operation or (source is not None and notes.get("source") != source):
            raise OtherOperationError(notes.get("operation", "copy"), notes.get("source", "an unknown store"))
        self._put("holder", self._holder)
        self._put("seen_at", repr(now))

    def put(self, key: str, value: Any, now: float) -> None:
        """Keeps a JSON value beside what was written; ``LostTargetError`` when the target is no longer ours."""
        own = sa.select(_NOTES.c.value).where(_NOTES.c.key == "holder", _NOTES.c.value == self._holder)
        if not sa.inspect(self._conn).has_table(INCOMPLETE_TABLE) or self._conn.scalar(own) is None:
            raise LostTargetError
        self._put(key, json.dumps(value))
        self._put("seen_at", repr(now))

    def release(self, now: float) -> None:
        """Nobody is at it any more; another run may go on at once."""
        self.put("seen_at", now, now)
        self._put("holder", "")

    def remove(self) -> None:
        """The store is complete."""
        _NOTES.drop(self._conn)

    def _put(self, key: str, value: str) -> None:
        if self._conn.execute(sa.update(_NOTES).where(_NOTES.c.key == key).values(value=value)).rowcount == 0:
            self._conn.execute(sa.insert(_NOTES).values(key=key, value=value))
