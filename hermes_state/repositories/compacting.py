"""Compaction in place: live rows give way to a summary and what is carried on (issue 3, item 1; known-store.md 2.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from hermes_state.codec import PLACE, EncodedMessage
from hermes_state.errors import InvalidArgumentError
from hermes_state.payloads import same_payload
from hermes_state.repositories import rows
from hermes_state.repositories.appending import Landed
from hermes_state.repositories.base import require_count
from hermes_state.repositories.carrying import (
    Candidate,
    Original,
    Originals,
    candidates,
    own_row_ids,
    own_uid,
)
from hermes_state.repositories.counters import SessionCounters
from hermes_state.repositories.leases import LeaseRepository
from hermes_state.repositories.message_writes import MessageWrites
from hermes_state.repositories.session_updates import SessionUpdates
from hermes_state.repositories.session_values import checked_patch
from hermes_state.types import FreshUid

_MESSAGES = rows.MESSAGES
_ID = _MESSAGES.c.id
_UID, _TIMESTAMP = PLACE["message_uid"], PLACE["timestamp"]


class MessageCompaction(MessageWrites):
    """Compaction. It takes the lock of the session row before anything else."""

    def archive_and_compact(
        self,
        session_id: str,
        compacted: Sequence[Any],
        *,
        watermark: int | None = None,
        lock_holder: str | None = None,
        tail_count: int = 0,
        carried_messages: Sequence[Any] | None = None,
        model_config_patch: Mapping[str, Any] | None = None,
    ) -> int:
        """Archives the live rows as compacted and inserts ``compacted`` as the live ones; returns their number.

        See ``SessionDB.archive_and_compact`` for the arguments and the errors.
        """
        encoded = self.encode(session_id, compacted)
        carried = list(carried_messages or ())
        declared = list(zip(carried, self.encode(session_id, carried), strict=True))
        if require_count("tail_count", tail_count) > len(encoded):
            raise InvalidArgumentError("tail_count", f"there are only {len(encoded)} compacted messages")
        wanted = candidates(compacted, encoded, tail_count, declared)
        patch = checked_patch("model_config_patch", model_config_patch or {})
        if watermark is not None:
            require_count("watermark", watermark)
        with self._transaction.verb() as conn:
            counters = SessionCounters(conn, self._operations, session_id)
            counters.lock()
            if lock_holder is not None:
                LeaseRepository(self._transaction).check_compression_lock(session_id, lock_holder)
            if watermark is not None and watermark > self._number("compacting.highest", _highest, session_id):
                raise InvalidArgumentError("watermark", f"session {session_id!r} has no row {watermark} yet")
            landed = self._landed_before(session_id, compacted, encoded, watermark)
            if landed is None:
                self._transaction.wrote()
                landed = self._compact(session_id, encoded, wanted, watermark)
                if patch:
                    SessionUpdates(self._transaction).patch_model_config(session_id, patch)
                counters.recount()
            active = self._number("compacting.active", _active, session_id)
        self.stamp_known_at_commit(compacted, encoded, landed)
        return active

    def _landed_before(
        self,
        session_id: str,
        compacted: Sequence[Any],
        encoded: Sequence[EncodedMessage],
        watermark: int | None,
    ) -> Sequence[Landed | None] | None:
        """Where the messages stand if this very compaction took place already; else ``None``.

        Then the live rows begin with exactly these messages, under the uids that the dicts got at the commit, or when its
        outcome was unknown. Where a message names the row it equals, it may also have been read from there, to shorten the
        transcript: then there must be nothing behind them that is left to archive.
        """
        uids = [uid for message in compacted if (uid := own_uid(message)) is not None]
        if not uids or len(set(uids)) < len(compacted):
            return None
        stored = rows.by_uid(self._transaction, session_id, uids)
        found = [stored[uid] for uid in uids if uid in stored]
        head = self._operations.compiled("compacting.head", _head)
        first = head.execute(self._transaction.conn, session_id=session_id, wanted=len(uids) + 1)
        live = [row[0] for row in first]
        if [row[0] for row in found] != live[: len(uids)]:
            return None
        is_behind = len(live) > len(uids) and (watermark is None or live[-1] <= watermark)
        for message, row_of_message, row in zip(compacted, encoded, found, strict=True):
            if is_behind and row[0] in own_row_ids(message):
                return None
            if not same_payload(row_of_message.values, row[1:]):
                return None
        return [Landed(row[0], row[1 + _TIMESTAMP]) for row in found]

    def _compact(
        self,
        session_id: str,
        encoded: Sequence[EncodedMessage],
        wanted: Sequence[Candidate],
        watermark: int | None,
    ) -> Sequence[Landed | None]:
        search = Originals(self._transaction, session_id)
        originals = search.find(wanted, encoded, watermark)
        gone = search.taken_back(wanted)
        left = [place for place in range(len(encoded)) if place not in gone]
        kept = {original.row_id for original in originals.values()}
        late = [row for row in self._late_rows(session_id, watermark) if row[0] not in kept]
        self._step_aside(session_id, [*kept, *(row[0] for row in late)])
        self._archive(session_id, watermark)
        _give_identity(encoded, wanted, originals)
        clones = [EncodedMessage(list(row[1:]), None) for row in late]
        inserted = self.insert_new(session_id, [*(encoded[place] for place in left), *clones])
        landed = dict(zip(left, inserted, strict=False))
        successors = {original.row_id: landed[place] for place, original in originals.items()}
        successors |= {row[0]: place for row, place in zip(late, inserted[len(left) :], strict=True)}
        self._name_successors(session_id, successors)
        if late or any(m.is_carrier for m in encoded):
            self._operations.strip_shadowed_checkpoints(self._transaction.conn, session_id)
        return [landed.get(place) for place in range(len(encoded))]

    def _late_rows(self, session_id: str, watermark: int | None) -> Sequence[rows.Row]:
        """The live rows that arrived while the summary was made."""
        if watermark is None:
            return []
        stmt = self._operations.compiled("compacting.late", _late)
        return list(stmt.execute(self._transaction.conn, session_id=session_id, watermark=watermark))

    def _step_aside(self, session_id: str, row_ids: Sequence[int]) -> None:
        """Makes the originals of what stays live rewound; their uids are free for their successors."""
        if row_ids:
            stmt = self._operations.compiled(
                "compacting.aside", lambda: _aside(self._operations.is_any_of(_ID, "wanted"))
            )
            wanted = self._operations.list_value(row_ids)
            stmt.execute(self._transaction.conn, session_id=session_id, wanted=wanted)

    def _archive(self, session_id: str, watermark: int | None) -> None:
        stmt = self._operations.compiled("compacting.archive", _archived)
        highest = 2**63 - 1 if watermark is None else watermark
        stmt.execute(self._transaction.conn, session_id=session_id, watermark=highest)

    def _name_successors(self, session_id: str, successors: Mapping[int, Landed | None]) -> None:
        if successors:
            stmt = self._operations.compiled("compacting.successors", _succeeded)
            stmt.execute_many(
                self._transaction.conn,
                [
                    {"session_id": session_id, "row_id": row_id, "successor": place.row_id}
                    for row_id, place in successors.items()
                    if place is not None
                ],
            )

    def _number(self, key: str, build: Any, session_id: str) -> int:
        stmt = self._operations.compiled(key, build)
        return int(stmt.execute(self._transaction.conn, session_id=session_id).scalar_one())


def _give_identity(
    encoded: Sequence[EncodedMessage], wanted: Sequence[Candidate], originals: Mapping[int, Original]
) -> None:
    """What is carried on stays the same message: its uid, and its time if the dict brought none."""
    for place, original in originals.items():
        values = encoded[place].values
        if not wanted[place].uids or original.uid in wanted[place].uids:
            values[_UID] = original.uid
        if not encoded[place].has_own_timestamp:
            values[_TIMESTAMP] = original.timestamp


def _highest() -> sa.Executable:
    newest = rows.newest(columns=("id",)).limit(sa.literal_column("1")).scalar_subquery()
    return sa.select(sa.func.coalesce(newest, 0))


def _active() -> sa.Executable:
    return sa.select(sa.func.count()).select_from(_MESSAGES).where(rows.OF_SESSION, rows.ACTIVE)


def _head() -> sa.Executable:
    return rows.select(rows.ACTIVE, columns=("id",)).limit(sa.bindparam("wanted", type_=sa.BigInteger))


def _late() -> sa.Executable:
    return rows.select(rows.ACTIVE, sa.bindparam("watermark", type_=sa.BigInteger) < _ID)


def _aside(is_wanted: sa.ColumnElement[bool]) -> sa.Executable:
    stmt = sa.update(_MESSAGES).where(rows.OF_SESSION, rows.ACTIVE, is_wanted)
    return stmt.values(active=sa.false(), message_uid=FreshUid())


def _archived() -> sa.Executable:
    stmt = sa.update(_MESSAGES).where(
        rows.OF_SESSION, rows.ACTIVE, sa.bindparam("watermark", type_=sa.BigInteger) >= _ID
    )
    return stmt.values(active=sa.false(), compacted=sa.true())


def _succeeded() -> sa.Executable:
    stmt = sa.update(_MESSAGES).where(rows.OF_SESSION, sa.bindparam("row_id") == _ID)
    return stmt.values(superseded_by=sa.bindparam("successor", type_=sa.BigInteger))
