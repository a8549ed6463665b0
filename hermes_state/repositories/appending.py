"""Appending a batch: the hot path of the package (CONTRACT.md section 3).

A plain batch is two statements: one UPDATE of the session (lock, guards, counters) and one INSERT that hands back
the ids by uid. A carrier adds the strip, platform ids one look-up, messages that name their row two and a lock;
never does the number depend on the size of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from hermes_state.codec import MESSAGE_COLUMNS, EncodedMessage
from hermes_state.errors import MessageConflictError, StoreBusyError
from hermes_state.payloads import same_payload, tool_call_count
from hermes_state.repositories import rows
from hermes_state.repositories.base import Transaction
from hermes_state.repositories.counters import SessionCounters

_UID = MESSAGE_COLUMNS.index("message_uid")
_TIMESTAMP = MESSAGE_COLUMNS.index("timestamp")
_ACTIVE, _COMPACTED = MESSAGE_COLUMNS.index("active"), MESSAGE_COLUMNS.index("compacted")
_TOOL_CALLS = MESSAGE_COLUMNS.index("tool_calls")
_PLATFORM_ID = MESSAGE_COLUMNS.index("platform_message_id")
_PLATFORM_KEY = tuple(
    MESSAGE_COLUMNS.index(name) for name in ("role", "content", "content_parts", "platform_message_id")
)


@dataclass(slots=True)
class Landed:
    """Where a message stands: its row id and the row's timestamp in epoch seconds."""

    row_id: int
    timestamp: float


class BatchAppend:
    """One batch on its way into one session; ``run`` sets ``rows_inserted`` and, for each message, ``landed``."""

    def __init__(self, transaction: Transaction, session_id: str, batch: Sequence[EncodedMessage]) -> None:
        self._transaction = transaction
        self._operations = transaction.operations
        self._session_id = session_id
        self._batch = batch
        self._counters = SessionCounters(transaction.conn, transaction.operations, session_id)
        self._changed: dict[int, EncodedMessage] = {}
        self._call_change = 0
        self._found: set[int] = set()
        self.rows_inserted = 0
        self.landed: list[Landed | None] = [None] * len(batch)

    def run(self, turn_lease_holder: str | None = None, turn_lease_ttl_seconds: float = 300.0) -> None:
        """Writes the batch. Raises the errors of the guards and ``MessageConflictError``."""
        if turn_lease_holder is not None or any(m.row_id is not None for m in self._batch):
            self._counters.lock(turn_lease_holder, turn_lease_ttl_seconds)
            self._settle_known_rows()
        same_as = self._repeated_uids()
        new = [i for i, at in enumerate(self.landed) if at is None and i not in same_as]
        if new or self._changed:
            self._count(new)
            self._write(new, same_as)
        for index in same_as:
            first = index
            while first in same_as:  # a repeated uid may lead to a repeated platform id
                first = same_as[first]
            self.landed[index] = self.landed[first]

    def _settle_known_rows(self) -> None:
        """Messages that carry the id of an active row of this session update it in place where they differ.

        When several name one row, the last of them decides. Ids of other rows count as absent.
        """
        last = {m.row_id: i for i, m in enumerate(self._batch) if m.row_id is not None}
        if not last:
            return
        stored = rows.active_by_id(self._transaction, self._session_id, last)
        carriers = [row_id for row_id in stored if self._batch[last[row_id]].is_carrier]
        for row_id, row in stored.items():
            self._settle_known_row(last[row_id], row, shadowed=row_id < max(carriers, default=0))
        for index, message in enumerate(self._batch):
            if message.row_id in stored:
                self.landed[index] = self.landed[last[message.row_id]]
        self._part_from_inactive_rows([m for m in self._batch if m.row_id and m.row_id not in stored])

    def _part_from_inactive_rows(self, messages: Sequence[EncodedMessage]) -> None:
        """A message whose row was taken back, or was summarised away before an edit, is a new one with a uid of its own.

        One that reads as its summarised row stays that row: an agent that hands over its whole transcript after each
        compaction must not store it again (field report F3).
        """
        by_uid = {m.values[_UID]: m for m in messages if m.uid_is_the_stores}
        if not by_uid:
            return
        for uid, (_, *values) in rows.by_uid(self._transaction, self._session_id, by_uid).items():
            is_summarised = values[_COMPACTED] and same_payload(by_uid[uid].values, values)
            if not values[_ACTIVE] and not is_summarised:
                by_uid[uid].values[_UID] = token_hex(16)

    def _settle_known_row(self, index: int, row: Sequence[Any], *, shadowed: bool) -> None:
        message = self._batch[index]
        if shadowed:
            # A newer row of this batch keeps its checkpoint, so the strip would take this one out again: an agent
            # that hands over its whole transcript each turn must not write 120 KB for every old carrier.
            message = message.without_checkpoints()
        stored = row[1:]
        values = message.values
        values[_UID] = stored[_UID]
        if not message.has_own_timestamp:
            values[_TIMESTAMP] = stored[_TIMESTAMP]
        self.landed[index] = Landed(row[0], values[_TIMESTAMP])
        if values != list(stored):
            self._changed[row[0]] = message
            self._call_change += message.tool_call_count - tool_call_count(stored[_TOOL_CALLS])

    def _repeated_uids(self) -> dict[int, int]:
        """Positions of messages that repeat the uid of an earlier one, with that earlier position."""
        first: dict[str, int] = {}
        same_as: dict[int, int] = {}
        for index, message in enumerate(self._batch):
            if self.landed[index] is not None:
                continue
            uid = message.values[_UID]
            at = first.setdefault(uid, index)
            if at == index:
                continue
            if not same_payload(self._batch[at].values, message.values):
                raise MessageConflictError(self._session_id, uid, index, None)
            same_as[index] = at
        return same_as

    def _count(self, new: Sequence[int]) -> None:
        """Counts every new message; it is this UPDATE that locks the session and applies the guards."""
        calls = sum(self._batch[i].tool_call_count for i in new) + self._call_change
        newest = self._batch[new[-1]].values[_TIMESTAMP] if new else None
        self._counters.add(len(new), calls, newest)

    def _write(self, new: Sequence[int], same_as: dict[int, int]) -> None:
        self._settle_platform_ids(new, same_as)
        fresh = [i for i in new if self.landed[i] is None and i not in same_as]
        newest = self._insert(fresh) if fresh else None
        if self.rows_inserted < len(new):
            inserted = {i for i in fresh if i not in self._found}
            skipped = [i for i in new if i not in inserted]
            self._counters.take_back(len(skipped), sum(self._batch[i].tool_call_count for i in skipped))
        if self._changed:
            rows.update(self._transaction, self._session_id, self._changed)
        if newest is not None or any(m.is_carrier for m in self._changed.values()):
            self._operations.strip_shadowed_checkpoints(self._transaction.conn, self._session_id, newest)

    def _settle_platform_ids(self, new: Sequence[int], same_as: dict[int, int]) -> None:
        """A second send of an active message with the same role, content and platform id inserts nothing."""
        waiting = [i for i in new if self._batch[i].values[_PLATFORM_ID] is not None]
        if not waiting:
            return
        ids = {self._batch[i].values[_PLATFORM_ID] for i in waiting}
        stored: dict[tuple[Any, ...], Landed] = {}
        for row in rows.active_by_platform_id(self._transaction, self._session_id, ids):
            stored.setdefault(_platform_key(row[1:]), Landed(row[0], row[1 + _TIMESTAMP]))
        first: dict[tuple[Any, ...], int] = {}
        for index in waiting:
            key = _platform_key(self._batch[index].values)
            self.landed[index] = stored.get(key)
            if self.landed[index] is None and first.setdefault(key, index) != index:
                same_as[index] = first[key]

    def _insert(self, new: Sequence[int]) -> int | None:
        """Inserts the messages at ``new``; the row id of the last carrier among those that were not there already."""
        batch = self._batch
        ids = self._operations.insert_messages(self._transaction.conn, [batch[i].values for i in new])
        self.rows_inserted = len(ids)
        missing = []
        for index in new:
            values = batch[index].values
            row_id = ids.get(values[_UID])
            if row_id is None:
                missing.append(index)
            else:
                self.landed[index] = Landed(row_id, values[_TIMESTAMP])
        if missing:
            self._settle_duplicates(missing)
        carriers = (ids.get(batch[i].values[_UID], 0) for i in new if batch[i].is_carrier)
        return max(carriers, default=0) or None

    def _settle_duplicates(self, missing: Sequence[int]) -> None:
        """Messages whose uid is there already: the same message yields its row, another one is a conflict."""
        uids = [self._batch[i].values[_UID] for i in missing]
        stored = rows.by_uid(self._transaction, self._session_id, uids)
        for index in missing:
            values = self._batch[index].values
            row = stored.get(values[_UID])
            if row is None:
                raise StoreBusyError("a row with the same uid was deleted at the same moment")
            if not same_payload(values, row[1:]):
                raise MessageConflictError(self._session_id, values[_UID], index, row[0])
            self.landed[index] = Landed(row[0], row[1 + _TIMESTAMP])
            self._found.add(index)


def _platform_key(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(values[i] for i in _PLATFORM_KEY)
