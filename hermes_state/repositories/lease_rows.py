"""The rows of one lease table: who holds what, until when by the database's clock (issue 3, item 4).

A lease is one row. It is live until its expiry; after that its owner may still renew it, unless somebody else has
claimed the row meanwhile.
"""

from __future__ import annotations

import math
from typing import Any

import sqlalchemy as sa

from hermes_state.dialects import DialectOperations
from hermes_state.errors import InvalidArgumentError
from hermes_state.repositories.lease_holders import is_gone

KEPT_AFTER_EXPIRY_SECONDS = 24 * 3600.0
"""How long an expired row waits for its late owner before an acquisition sweeps it."""


def require_seconds(argument: str, value: Any, *, zero: bool = False) -> float:
    """``value`` as a float; ``InvalidArgumentError`` unless it is a finite number above 0, or 0 where ``zero`` allows."""
    if not isinstance(value, bool) and isinstance(value, (int, float)):
        try:
            seconds = float(value)
        except OverflowError:
            seconds = math.inf
        if math.isfinite(seconds) and (seconds > 0 or (zero and seconds == 0)):
            return seconds
    raise InvalidArgumentError(
        argument, f"it must be a finite number of seconds, {'not below' if zero else 'above'} 0"
    )


class LeaseRows:
    """The leases of one table, inside a transaction. Keys and holders are checked by the caller."""

    def __init__(self, conn: sa.Connection, operations: DialectOperations, table: sa.Table) -> None:
        self._conn = conn
        self._operations = operations
        self._table = table
        (self._key,) = table.primary_key.columns

    def take(self, key: str, holder: str, seconds: float) -> str | None:
        """Takes the lease, or extends the own one; returns ``None``, or the holder who is in the way.

        Exactly one of several at once gets it. An expired row is replaced, and so is one whose holder has provably
        ended. Rows that expired more than 24 hours ago are swept.
        """
        other = self._claim(key, holder, seconds)
        if other is not None and is_gone(other):
            self.release(key, other)
            other = self._claim(key, holder, seconds)
        self._sweep()
        return other

    def renew(self, key: str, holder: str, seconds: float) -> bool:
        """Lets the lease end ``seconds`` from now, also when it had expired; whether the row is still the holder's."""
        stmt = (
            sa.update(self._table)
            .where(self._key == key, self._table.c.holder == holder)
            .values(expires_at=self._operations.clock() + seconds)
            .returning(self._key)
        )
        return self._conn.execute(stmt).first() is not None

    def release(self, key: str, holder: str) -> None:
        """Ends the holder's own lease; nothing when it is not theirs."""
        self._conn.execute(sa.delete(self._table).where(self._key == key, self._table.c.holder == holder))

    def live_holder(self, key: str) -> str | None:
        """Who holds the unexpired lease, or ``None``; a process that has provably ended holds nothing."""
        is_live = self._table.c.expires_at > self._operations.clock()
        holder = self._conn.scalar(sa.select(self._table.c.holder).where(self._key == key, is_live))
        return None if holder is None or is_gone(holder) else str(holder)

    def keep(self, key: str, holder: str, seconds: float) -> bool:
        """Whether the row is the holder's; nobody can claim it before the transaction ends.

        A lease that had expired is renewed for ``seconds``, a live one stays as it is.
        """
        stmt = sa.select(self._table.c.expires_at <= self._operations.clock()).where(
            self._key == key, self._table.c.holder == holder
        )
        is_late = self._conn.scalar(stmt.with_for_update())
        if is_late is None:
            return False
        return self.renew(key, holder, seconds) if is_late else True

    def _claim(self, key: str, holder: str, seconds: float) -> str | None:
        table, now = self._table, self._operations.clock()
        end = now + seconds
        insert = self._operations.insert(table).values(
            {self._key.name: key, "holder": holder, "acquired_at": now, "expires_at": end}
        )
        is_own = table.c.holder == holder
        stmt = insert.on_conflict_do_update(
            index_elements=[self._key],
            set_={
                "holder": holder,
                "acquired_at": sa.case((is_own, table.c.acquired_at), else_=now),
                # Acquiring again with a shorter time must not take away what was granted.
                "expires_at": sa.case(
                    (sa.and_(is_own, table.c.expires_at > end), table.c.expires_at), else_=end
                ),
            },
            where=sa.or_(is_own, table.c.expires_at <= now),
        ).returning(table.c.holder)
        if self._conn.execute(stmt).first() is not None:
            return None
        # The statement locked the row that was in the way, so it is still there.
        return str(self._conn.scalars(sa.select(table.c.holder).where(self._key == key)).one())

    def _sweep(self) -> None:
        # Rows in use are left out: whoever works with one holds its lock, and waiting here could deadlock.
        old = (
            sa.select(self._key)
            .where(self._table.c.expires_at < self._operations.clock() - KEPT_AFTER_EXPIRY_SECONDS)
            .with_for_update(skip_locked=True)
        )
        self._conn.execute(sa.delete(self._table).where(self._key.in_(old)))
