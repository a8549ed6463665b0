"""Reactions to messages (known store, section 2.3).

A reaction belongs to the message, not to one of its rows: its key names the uid, which compactions and continuations
carry on. So every verb looks at the session and at all those that it continues.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

import sqlalchemy as sa

from hermes_state.codec import epoch_seconds
from hermes_state.decoding import as_text
from hermes_state.errors import InvalidArgumentError
from hermes_state.json_values import UnfitValueError
from hermes_state.models import MessageReactionRow
from hermes_state.records import MessageReaction
from hermes_state.repositories import rows
from hermes_state.repositories.base import Repository, Transaction, require_id, table_of
from hermes_state.repositories.sessions import SessionRepository
from hermes_state.text import clean_text, is_usable_id

_REACTIONS = table_of(MessageReactionRow)
_MESSAGES = rows.MESSAGES
_MOST_CHARACTERS = 64
_EXPORTED = ("message_uid", "actor", "emoji", "set_at", "seen")
_FOUND = [_REACTIONS.c.session_id, *[_REACTIONS.c[name] for name in _EXPORTED]]

Found = Sequence[Mapping[Any, Any]]


class ReactionRepository(Repository):
    """The table ``message_reactions``. What was rewound shows no reaction; unknown sessions and rows have none."""

    def __init__(self, transaction: Transaction) -> None:
        super().__init__(transaction)
        self._sessions = SessionRepository(transaction)

    def set(
        self, session_id: str, row_id: int, emoji: str | None, actor: str = "user", *, seen: bool = False
    ) -> bool:
        """Sets, changes or (``None`` or ``""``) removes the actor's reaction; whether the session shows such a message.

        See ``SessionDB.set_message_reaction``.
        """
        cleaned, who = _emoji(emoji), require_id("actor", actor)
        if not isinstance(seen, bool):
            raise InvalidArgumentError("seen", "it must be true or false")
        is_possible = rows.may_be_id("row_id", row_id)
        with self._transaction.verb() as conn:
            uid = self._shown_uid(session_id, row_id) if is_possible else None
            if uid is None:
                return False
            chain = self._sessions.ancestors(session_id)
            present = [r for r in self._of(chain, [uid]) if r["actor"] == who]
            if present and present[-1]["emoji"] == cleaned:
                return True
            mine = sa.and_(self._is_in("chain"), _REACTIONS.c.message_uid == uid, _REACTIONS.c.actor == who)
            conn.execute(sa.delete(_REACTIONS).where(mine), {"chain": self._operations.list_value(chain)})
            if cleaned:
                self._insert(session_id, uid, who, {"emoji": cleaned, "seen": seen})
        return True

    def get(self, session_id: str, row_id: int | None = None) -> list[MessageReaction]:
        """The reactions to a message, or to all messages of the conversation that are shown; the oldest first."""
        is_possible = row_id is None or rows.may_be_id("row_id", row_id)
        with self._transaction.verb():
            if not is_possible or not is_usable_id(session_id):
                return []
            uid = None if row_id is None else self._shown_uid(session_id, row_id)
            if row_id is not None and uid is None:
                return []
            chain = self._sessions.ancestors(session_id)
            return self._placed(chain, self._of(chain, None if uid is None else [uid]))

    def take_unseen(self, session_id: str) -> list[MessageReaction]:
        """The reactions that nobody has taken yet, the oldest first; each is handed out exactly once.

        One UPDATE decides: of two takers at once, the second finds none.
        """
        with self._transaction.verb() as conn:
            if not is_usable_id(session_id):
                return []
            chain = self._sessions.ancestors(session_id)
            message = _MESSAGES.alias("message")
            is_shown = sa.exists().where(
                self._operations.is_any_of(message.c.session_id, "chain"),
                message.c.message_uid == _REACTIONS.c.message_uid,
                sa.or_(message.c.active, message.c.compacted),
            )
            stmt = (
                sa.update(_REACTIONS)
                .where(self._is_in("chain"), sa.not_(_REACTIONS.c.seen), is_shown)
                .values(seen=sa.true())
                .returning(*_FOUND)
            )
            taken = conn.execute(stmt, {"chain": self._operations.list_value(chain)}).mappings().all()
            return self._placed(chain, taken)

    def exported(self, session_id: str) -> list[dict[str, Any]]:
        """The reactions that were set in the session, by uid and actor, as an export holds them; rows play no part."""
        stmt = sa.select(*[_REACTIONS.c[name] for name in _EXPORTED]).where(
            _REACTIONS.c.session_id == session_id
        )
        with self._transaction.verb() as conn:
            found = conn.execute(stmt.order_by(_REACTIONS.c.message_uid, _REACTIONS.c.actor)).mappings().all()
        return [dict(row) for row in found]

    def add_imported(self, session_id: str, reactions: Sequence[Mapping[str, Any]]) -> None:
        """Inserts what ``checked_reactions`` has let pass into a session that has no reactions yet."""
        with self._transaction.verb() as conn:
            if reactions:
                conn.execute(sa.insert(_REACTIONS), [{**row, "session_id": session_id} for row in reactions])

    def _shown_uid(self, session_id: str, row_id: int) -> str | None:
        if not is_usable_id(session_id):
            return None
        row = rows.present(self._transaction, session_id, row_id)
        if row is None:
            return None
        stmt = sa.select(_MESSAGES.c.message_uid).where(
            _MESSAGES.c.session_id == session_id, _MESSAGES.c.id == row.id, rows.VISIBLE
        )
        return cast("str | None", self._transaction.conn.scalar(stmt))

    def _of(self, chain: Sequence[str], uids: Sequence[str] | None) -> Found:
        """The reactions over the sessions, the oldest first."""
        stmt = (
            sa.select(*_FOUND).where(self._is_in("chain")).order_by(_REACTIONS.c.set_at, _REACTIONS.c.actor)
        )
        values = {"chain": self._operations.list_value(chain)}
        if uids is not None:
            stmt = stmt.where(self._operations.is_any_of(_REACTIONS.c.message_uid, "uids"))
            values["uids"] = self._operations.list_value(uids)
        return self._transaction.conn.execute(stmt, values).mappings().all()

    def _placed(self, chain: Sequence[str], found: Found) -> list[MessageReaction]:
        """The reactions with the newest row of their message that is shown; without those of which none is.

        Of several that one actor set in different sessions, the newest counts.
        """
        if not found:
            return []
        stmt = sa.select(_MESSAGES.c.message_uid, _MESSAGES.c.id, _MESSAGES.c.role).where(
            self._operations.is_any_of(_MESSAGES.c.session_id, "chain"),
            self._operations.is_any_of(_MESSAGES.c.message_uid, "uids"),
            rows.VISIBLE,
        )
        values = {
            "chain": self._operations.list_value(chain),
            "uids": self._operations.list_value({row["message_uid"] for row in found}),
        }
        shown = sorted(self._transaction.conn.execute(stmt, values), key=lambda row: row.id)
        place = {row.message_uid: row for row in shown}
        ordered = sorted(found, key=lambda row: (row["set_at"], row["actor"]))
        newest = {(row["message_uid"], row["actor"]): row for row in ordered}
        return [
            MessageReaction(
                row_id=place[row["message_uid"]].id,
                message_uid=row["message_uid"],
                role=as_text([place[row["message_uid"]].role])[0],
                actor=row["actor"],
                emoji=as_text([row["emoji"]])[0],
                set_at=row["set_at"],
                seen=bool(row["seen"]),
            )
            for row in ordered
            if row["message_uid"] in place and newest[row["message_uid"], row["actor"]] is row
        ]

    def _insert(self, session_id: str, uid: str, actor: str, values: dict[str, Any]) -> None:
        key = {"session_id": session_id, "message_uid": uid, "actor": actor}
        values = {**values, "set_at": self._operations.clock()}
        stmt = self._operations.insert(_REACTIONS).values(**key, **values)
        # Another process may have set the same actor's reaction a moment ago.
        self._transaction.conn.execute(stmt.on_conflict_do_update(index_elements=[*key], set_=values))

    def _is_in(self, parameter: str) -> sa.ColumnElement[bool]:
        return self._operations.is_any_of(_REACTIONS.c.session_id, parameter)


def checked_reactions(value: Any) -> list[dict[str, Any]]:
    """The reactions of an export, one for each message and actor; ``InvalidArgumentError`` for what cannot be one."""
    if value is None:
        return []
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise InvalidArgumentError("reactions", "it must be a list")
    reactions = [_checked_reaction(reaction) for reaction in value]
    return list({(reaction["message_uid"], reaction["actor"]): reaction for reaction in reactions}.values())


def _checked_reaction(reaction: Any) -> dict[str, Any]:
    if not isinstance(reaction, Mapping):
        raise InvalidArgumentError("reactions", "each must be a dict")
    given = {name: reaction.get(name) for name in _EXPORTED}
    for name in ("message_uid", "actor"):
        require_id(name, given[name])
    try:
        # Another program may have stored what is no time; then the moment of the import counts.
        given["set_at"] = time.time() if given["set_at"] is None else epoch_seconds(given["set_at"])
    except UnfitValueError as error:
        raise InvalidArgumentError("set_at", str(error)) from error
    given["emoji"] = _emoji(given["emoji"])
    if not given["emoji"] or not isinstance(given["seen"], bool):
        raise InvalidArgumentError("reactions", "each needs an emoji, and seen must be true or false")
    return given


def _emoji(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidArgumentError("emoji", "it must be text, or None to remove the reaction")
    cleaned = clean_text(value)
    if len(cleaned) > _MOST_CHARACTERS:
        raise InvalidArgumentError("emoji", f"it is longer than {_MOST_CHARACTERS} characters")
    return cleaned
