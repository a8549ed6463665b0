"""The agent's side: flushing a live list of message dicts into its session (CONTRACT.md section 5)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any
from uuid import NAMESPACE_OID, uuid4, uuid5

from hermes_state.checkpoints import drop_shadowed_checkpoints, newest_carrier
from hermes_state.codec import require_list
from hermes_state.decoding import PERSISTED_MARKER
from hermes_state.errors import (
    CompressionSessionClosedError,
    HermesStateError,
    InvalidArgumentError,
    InvalidMessageError,
    MessageConflictError,
)
from hermes_state.salvage import Refusal, read_as_stored, storable
from hermes_state.store import SessionDB
from hermes_state.text import is_usable_id

logger = logging.getLogger(__name__)

__all__ = ["PERSISTED_MARKER", "SessionPersistenceMixin", "TranscriptFlusher"]

_DIRTY = "_dirty"


class TranscriptFlusher:
    """Writes what is new in a live list of message dicts; safe to call from two threads.

    ``session_id`` moves to the live tip when the session is closed by compression. ``last_error`` is the typed error of
    the last flush, ``None`` after a good one; ``last_refused`` what the last flush could not store as it was.
    ``turn_lease_holder``: who must hold the conversation's turn lease for a flush to write anything; ``None`` asks nobody.
    """

    def __init__(self, db: SessionDB, session_id: str, *, turn_lease_holder: str | None = None) -> None:
        self.db = db
        self.turn_lease_holder = turn_lease_holder
        self._lock = threading.Lock()
        self._same_lineage: dict[tuple[str, str], bool] = {}
        self.session_id = session_id
        self.last_error: HermesStateError | None = None
        self.last_refused: list[Refusal] = []

    def flush(self, messages: Sequence[Any], conversation_history: Sequence[Any] | None = None) -> bool:
        """Appends the dicts that are not durable yet, all or none, and stamps them after the commit.

        Dicts of ``conversation_history`` (by identity) are stamped without being written; non-dicts and dicts whose
        ``_ephemeral`` is true are skipped. Returns whether everything is durable; ``False`` leaves the
        dicts as they are for the next flush and the reason in ``last_error``. With nothing new the database is
        not touched. Programming errors are raised.
        """
        require_list(messages)
        with self._lock:
            self.last_error, self.last_refused = None, []
            try:
                self._flush(messages, conversation_history or ())
            except HermesStateError as error:
                self.last_error, self.last_refused = error, []
                logger.warning("session %s: nothing was flushed: %s", self.session_id, error)
                return False
            return True

    def mark_dirty(self, message: dict[str, Any]) -> None:
        """Says that ``message`` was edited in place: the next flush updates its row.

        Raises ``InvalidArgumentError`` for a durable dict that knows neither its row nor a uid, as
        ``get_messages_as_conversation`` gives it unless it is asked for ``stamped`` ones: a flush would insert it anew.
        """
        if PERSISTED_MARKER in message and not (_has_row(message) or _has_uid(message)):
            raise InvalidArgumentError(
                "message", "it does not know its row; load the history with stamped=True"
            )
        with self._lock:  # else the stamps of a flush in another thread could hide the edit
            message.pop(PERSISTED_MARKER, None)
            message[_DIRTY] = True

    def _flush(self, messages: Sequence[Any], history: Sequence[Any]) -> None:
        for message in history:
            if _is_durable_kind(message) and not message.get(_DIRTY):
                self._remember(message)
        places = [i for i, m in enumerate(messages) if _is_durable_kind(m) and not self._is_persisted(m)]
        if not places:
            return
        pending = [messages[place] for place in places]
        for message in pending:
            if not is_usable_id(message.get("message_uid")):
                message.setdefault("_message_uid", uuid4().hex)
        taken = {m["_row_id"] for m in messages if _is_durable_kind(m) and _has_row(m)}
        rows = self._append(pending, taken)
        self._stamp(pending, rows)
        self._tell_refused(places)
        if newest_carrier(rows) is not None:
            refused = {id(m) for m, row in zip(pending, rows, strict=True) if _lost_its_checkpoints(m, row)}
            live = [m for m in messages if _is_durable_kind(m) and PERSISTED_MARKER in m]
            drop_shadowed_checkpoints([m for m in live if id(m) not in refused])

    def _remember(self, message: dict[str, Any]) -> None:
        """Stamps a dict of the loaded history: it is durable whatever marker it brings along."""
        if not self._is_persisted(message):
            message[PERSISTED_MARKER] = self.session_id

    def _tell_refused(self, places: Sequence[int]) -> None:
        for refusal in self.last_refused:
            refusal["index"] = places[refusal["index"]]
        if self.last_refused:
            told = "; ".join(
                f"message {r['index']}, key {r['key']!r}: {r['reason']}" for r in self.last_refused
            )
            logger.warning("session %s: stored as far as possible: %s", self.session_id, told)

    def _is_persisted(self, message: dict[str, Any]) -> bool:
        marker = message.get(PERSISTED_MARKER)
        if marker is None or marker == self.session_id:
            return marker is not None
        pair = (self.session_id, str(marker))
        if pair not in self._same_lineage:
            self._same_lineage[pair] = self._root_of(pair[0]) == self._root_of(pair[1])
        return self._same_lineage[pair]

    def _root_of(self, session_id: str) -> str:
        session = self.db.get_session(session_id)
        return session_id if session is None else session["root_session_id"] or session_id

    def _append(self, pending: Sequence[dict[str, Any]], taken: set[Any]) -> list[dict[str, Any]]:
        """Appends ``pending``; returns the dicts that were stored, stand-ins for those that had to be mended.

        ``taken``: the ids of rows that other dicts of the list stand for.
        """
        rows = list(pending)
        moved = False
        attempts: dict[tuple[int, str | None], int] = {}
        while True:
            try:
                if self.turn_lease_holder is None:
                    self.db.append_messages_batch(self.session_id, rows)
                else:
                    self.db.append_messages_batch(
                        self.session_id, rows, turn_lease_holder=self.turn_lease_holder
                    )
            except InvalidMessageError as error:
                self._mend(rows, error, attempts)
            except MessageConflictError as error:
                self._make_update(rows, error, attempts, taken)
            except CompressionSessionClosedError:
                if moved or not self._move_to_tip():
                    raise
                moved = True
            else:
                return rows

    def _mend(
        self,
        rows: list[dict[str, Any]],
        error: InvalidMessageError,
        attempts: dict[tuple[int, str | None], int],
    ) -> None:
        """Puts a stand-in in the place of a message that cannot be stored, so that it holds up nobody."""
        place = (error.index, error.field)
        attempts[place] = attempts.get(place, 0) + 1
        if attempts[place] > 3:
            raise error
        rows[error.index], refusals = storable(
            rows[error.index], error, limit=self.db.max_text_bytes, attempt=attempts[place]
        )
        self.last_refused += refusals

    def _make_update(
        self,
        rows: list[dict[str, Any]],
        error: MessageConflictError,
        attempts: dict[tuple[int, str | None], int],
        taken: set[Any],
    ) -> None:
        """A dict that was edited after a commit whose outcome was unknown updates the row it made then.

        When that row is no longer active, or the uid is used twice in the list, it becomes a row of its own.
        """
        place = (error.index, "message_uid of another row")
        attempts[place] = attempts.get(place, 0) + 1
        row = rows[error.index] = dict(rows[error.index])
        if error.row_id is not None and error.row_id not in taken and attempts[place] == 1:
            row["_row_id"] = error.row_id
            return
        if attempts[place] > 2:
            raise error
        row["message_uid"] = uuid5(NAMESPACE_OID, f"{error.message_uid} {error.index}").hex

    def _move_to_tip(self) -> bool:
        tip = self.db.get_compression_tip(self.session_id)
        if tip == self.session_id:
            return False
        logger.info(
            "session %s was closed by compression; its transcript goes on in %s", self.session_id, tip
        )
        self.session_id = tip
        return True

    def _stamp(self, pending: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> None:
        for message, row in zip(pending, rows, strict=True):
            message["_row_id"], message["timestamp"] = row["_row_id"], row["timestamp"]
            message[PERSISTED_MARKER] = self.session_id
            message.pop(_DIRTY, None)
            read_as_stored(message, limit=self.db.max_text_bytes)


class SessionPersistenceMixin:
    """For an agent class that keeps ``_session_db``, ``session_id`` and ``_persist_disabled``."""

    _session_db: SessionDB | None
    session_id: str
    _persist_disabled: bool
    _transcript_flusher: TranscriptFlusher | None = None

    def _flush_messages_to_session_db(
        self, messages: Sequence[Any], conversation_history: Sequence[Any] | None = None
    ) -> bool:
        """``TranscriptFlusher.flush`` into the agent's session; ``session_id`` follows it to the live tip.

        Does nothing and returns ``True`` when persisting is switched off or there is no store.
        """
        db = getattr(self, "_session_db", None)
        if db is None or getattr(self, "_persist_disabled", False):
            return True
        # One flush of an agent at a time: its session id and the flusher's must move together.
        with self.__dict__.setdefault("_transcript_lock", threading.Lock()):
            flusher = self._transcript_flusher
            if flusher is None or flusher.db is not db:
                flusher = self._transcript_flusher = TranscriptFlusher(db, self.session_id)
            flusher.session_id = self.session_id
            flushed = flusher.flush(messages, conversation_history)
            self.session_id = flusher.session_id
        return flushed


def _has_row(message: dict[str, Any]) -> bool:
    return PERSISTED_MARKER in message and isinstance(message.get("_row_id"), int)


def _has_uid(message: dict[str, Any]) -> bool:
    return is_usable_id(message.get("message_uid")) or is_usable_id(message.get("_message_uid"))


def _lost_its_checkpoints(message: dict[str, Any], stored: dict[str, Any]) -> bool:
    return (
        stored is not message and newest_carrier([message]) is not None and newest_carrier([stored]) is None
    )


def _is_durable_kind(message: Any) -> bool:
    return isinstance(message, dict) and not message.get("_ephemeral")
