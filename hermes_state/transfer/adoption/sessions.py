"""The sessions of an older store: where each stands, and the row that it becomes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from hermes_state import lineage
from hermes_state.dialects.older_stores import OlderSession, OlderStore
from hermes_state.json_values import checked, dump_json, load_json
from hermes_state.models import SessionRow
from hermes_state.repositories.base import table_of
from hermes_state.repositories.import_entries import in_order
from hermes_state.repositories.session_placing import placed
from hermes_state.repositories.session_values import PLACEHOLDER_SOURCE
from hermes_state.salvage import text_form
from hermes_state.text import MAX_ID_CHARACTERS
from hermes_state.transfer.adoption import values
from hermes_state.transfer.adoption.notebook import Notebook
from hermes_state.transfer.adoption.values import Converted

SESSIONS = table_of(SessionRow)
LEFT_COLUMNS_KEY = "adopted:"
"""Beginning of the keys in ``state_meta`` under which columns are kept that this package does not have."""

_DERIVED = frozenset(
    ("id", "parent_session_id", "kind", "root_session_id", "message_count", "tool_call_count", "last_active_at",
     "system_prompt", "system_prompt_hash")
)  # fmt: skip
_COPIED = [column for column in SESSIONS.c if column.name not in _DERIVED]
_COUNTED = [column.name for column in _COPIED if isinstance(column.type, sa.Integer)]
_ABSENT: dict[str, Any] = {
    column.name: False if isinstance(column.type, sa.Boolean) else None for column in _COPIED
} | dict.fromkeys(_COUNTED, 0)
_MONEY = ("estimated_cost_usd", "actual_cost_usd")
# PostgreSQL's index takes no longer text.
_SHORT = ("source", "title")
_TABLE = "sessions"


@dataclass(slots=True)
class Place:
    """A session: its row in the older store, if it has one there, its new id and its place in the lineage."""

    session_id: str
    parent_id: str | None
    rowid: int | None
    old_id: Any
    first_message_id: int | None
    kind: str = "root"
    root_session_id: str | None = None


@dataclass(slots=True)
class _Unsettled:
    """What decides where a session stands; only a ``model_config`` with a marker of lineage is kept."""

    session_id: str
    parent_id: str | None
    place: Place
    source: str = PLACEHOLDER_SOURCE
    config: str | None = None
    end_reason: str | None = None


@dataclass(slots=True)
class NewSession:
    """A session as it is stored: its columns, its prompt, and the columns that have no place."""

    columns: dict[str, Any]
    prompt: str | None
    left: dict[str, Any]


class SessionPlan:
    """Every session of the older store in an order in which parents come first.

    Ids that cannot be kept get another; rows of messages without a session get one.
    """

    def __init__(self, store: OlderStore, notebook: Notebook) -> None:
        self._notebook = notebook
        self._taken: set[str] = set()
        self._new_ids: dict[Any, str] = {}
        transcripts = {found.session_id: found for found in store.transcripts()}
        self.message_count = sum(found.count for found in transcripts.values())
        unsettled, parents = [], {}
        for old in store.sessions():
            found = transcripts.pop(old.id, None)
            place = self._place(old.rowid, old.id, None if found is None else found.first_id)
            unsettled.append(_unsettled(place, old))
            if old.parent_id is not None:
                parents[place.session_id] = old.parent_id
        for found in transcripts.values():
            notebook.add(_TABLE, found.session_id, "id", "messages without a session got one", found.count)
            place = self._place(None, found.session_id, found.first_id)
            unsettled.append(_Unsettled(place.session_id, None, place))
        self.places = self._in_lineages(unsettled, parents)

    def new_id(self, old_id: Any) -> str:
        """The id that the session got."""
        return self._new_ids[old_id]

    def find(self, old_id: Any) -> str | None:
        """The id that the session got; ``None`` where there is no such session."""
        return self._new_ids.get(old_id)

    def _place(self, rowid: int | None, old_id: Any, first_message_id: int | None) -> Place:
        new_id, rule = values.as_id(old_id)
        candidate, number = new_id or "unnamed", 1
        while candidate in self._taken:
            number += 1
            ending = f"-{number}"
            candidate = (new_id or "unnamed")[: MAX_ID_CHARACTERS - len(ending)] + ending
        if candidate != old_id:
            self._notebook.add(
                _TABLE, old_id, "id", f"{rule or 'the id was taken'}: now {candidate!r}", old_id
            )
        self._taken.add(candidate)
        self._new_ids.setdefault(old_id, candidate)
        return Place(candidate, None, rowid, old_id, first_message_id)

    def _in_lineages(self, unsettled: list[_Unsettled], parents: dict[str, Any]) -> list[Place]:
        for each in unsettled:
            if (parent := parents.get(each.session_id)) is not None:
                each.parent_id = self._new_ids.get(parent)
                if each.parent_id is None:
                    self._note_parent(each, "there is no such session: left out", parent)
        known: dict[str, dict[str, Any]] = {}
        places = []
        for each in in_order(unsettled):
            if each.parent_id == "":
                each.parent_id = None
                self._note_parent(each, "it closes a circle: left out", parents[each.session_id])
            known[each.session_id] = _settled(each, known.get(each.parent_id or ""))
            places.append(each.place)
        return places

    def _note_parent(self, each: _Unsettled, rule: str, parent: Any) -> None:
        self._notebook.add(_TABLE, each.place.old_id, "parent_session_id", rule, parent)


def _unsettled(place: Place, old: OlderSession) -> _Unsettled:
    config = _unwrapped(_text(old.model_config)).value
    return _Unsettled(
        place.session_id,
        None,
        place,
        _text(old.source) or PLACEHOLDER_SOURCE,
        config if lineage.has_marker(config) else None,
        _text(old.end_reason),
    )


def _settled(each: _Unsettled, parent: dict[str, Any] | None) -> dict[str, Any]:
    """Settles the place below ``parent``; returns what its children need to know."""
    place = each.place
    found = placed({"source": each.source, "model_config": each.config}, parent)
    place.parent_id, place.kind = each.parent_id, found["kind"]
    place.root_session_id = found["root_session_id"]
    return {
        "id": place.session_id,
        "root_session_id": place.root_session_id,
        "end_reason": each.end_reason,
    }


class SessionConverter:
    """Makes the rows of sessions."""

    def __init__(self, store: OlderStore, notebook: Notebook, max_text_bytes: int) -> None:
        self._store = store
        self._notebook = notebook
        self._limit = max_text_bytes
        self._titles: set[str] = set()

    def convert(self, place: Place) -> NewSession:
        """The session with all its columns; counters and the last activity are worked out from its messages."""
        old = {} if place.rowid is None else self._store.session(place.rowid)
        columns = dict(_ABSENT)
        for column in _COPIED:
            value = old.get(column.name)
            if value is not None:
                columns[column.name] = self._column(place, column, value)
        columns["source"] = columns["source"] or PLACEHOLDER_SOURCE
        columns["created_source"] = columns["created_source"] or columns["source"]
        columns["title"] = self._free_title(place, columns["title"])
        columns["tool_names"] = self._by_hash(place, "tool_names", columns["tool_names"], keep_unknown=True)
        if columns["started_at"] is None:
            columns["started_at"] = self._first_time(place)
        if columns["ended_at"] is None and old.get("ended_at") is not None:
            columns["ended_at"] = columns["started_at"]  # what was over stays over
        columns |= {
            "id": place.session_id,
            "parent_session_id": place.parent_id,
            "kind": place.kind,
            "root_session_id": place.root_session_id,
            "message_count": 0,
            "tool_call_count": 0,
            "last_active_at": None,
            "system_prompt": None,
        }
        prompt = self._prompt(place, old)
        columns["system_prompt_hash"] = (
            None if prompt is None else hashlib.sha256(prompt.encode()).hexdigest()
        )
        return NewSession(columns, prompt, self._left(place, old))

    def _column(self, place: Place, column: sa.Column[Any], value: Any) -> Any:
        converted, rule = self._converted(column, value)
        if rule is not None:
            self._notebook.add(_TABLE, place.old_id, column.name, rule, value)
        return converted

    def _converted(self, column: sa.Column[Any], value: Any) -> Converted:
        if isinstance(column.type, sa.Boolean):
            return values.as_truth(value, default=False)
        if isinstance(column.type, sa.Integer):
            number, rule = values.as_count(value)
            return Converted(number or 0, f"{rule}: became 0" if rule == values.NO_NUMBER else rule)
        if isinstance(column.type, sa.Float):
            return _epoch_or_money(column.name, value)
        if column.name == "session_key":
            return values.as_id(value)
        text = values.as_text(value, self._limit)
        if column.name in _SHORT and text.value is not None and len(text.value) > MAX_ID_CHARACTERS:
            return Converted(text.value[:MAX_ID_CHARACTERS], values.CUT)
        return _unwrapped(text.value, text.rule) if column.name == "model_config" else text

    def _free_title(self, place: Place, title: str | None) -> str | None:
        """``title``, or the first ``title #N`` from 2 on that no session has."""
        if not title:
            return None
        free, number = title, 1
        while free in self._titles:
            number += 1
            ending = f" #{number}"
            free = title[: MAX_ID_CHARACTERS - len(ending)] + ending
        if free != title:
            self._notebook.add(_TABLE, place.old_id, "title", f"another session has it: now {free!r}", title)
        self._titles.add(free)
        return free

    def _first_time(self, place: Place) -> float:
        if place.first_message_id is None:
            return 0.0
        row = self._store.message(place.first_message_id)
        at = self._store.message_columns.index("timestamp")
        return values.as_time(row[at]).value or 0.0

    def _prompt(self, place: Place, old: dict[str, Any]) -> str | None:
        """The session's prompt: its own, or the one that its hash names."""
        found = self._by_hash(place, "system_prompt_hash", old.get("system_prompt_hash"), keep_unknown=False)
        text, rule = values.as_text(old.get("system_prompt"), self._limit)
        if found is not None:
            # The older store reads the column only where the hash finds nothing.
            rule = (
                "the prompt that the hash names is another: left out"
                if text not in (None, "", found)
                else None
            )
        if rule is not None:
            self._notebook.add(_TABLE, place.old_id, "system_prompt", rule, old["system_prompt"])
        return found if found is not None or text is None else str(text)

    def _by_hash(self, place: Place, column: str, digest: Any, *, keep_unknown: bool) -> str | None:
        """The text that ``digest`` names."""
        if digest is None:
            return None
        text, rule = values.as_text(self._store.prompt(digest), self._limit)
        if text is None:
            if keep_unknown:
                return str(digest)
            rule = "no prompt has this hash: left out"
        if rule is not None:
            self._notebook.add(_TABLE, place.old_id, column, rule, digest)
        return None if text is None else str(text)

    def _left(self, place: Place, old: dict[str, Any]) -> dict[str, Any]:
        """The values of columns that this package does not have."""
        left = {}
        for name, value in old.items():
            if name in SESSIONS.c or value in (None, "", 0):
                continue
            left[name] = value if isinstance(value, int) else text_form(value)
            rule = f"no column for it: kept in state_meta under {LEFT_COLUMNS_KEY}ID"
            self._notebook.add(_TABLE, place.old_id, name, rule, value)
        return left


def _epoch_or_money(name: str, value: Any) -> Converted:
    found = values.as_money(value) if name in _MONEY else values.as_time(value)
    if found.rule not in (values.NO_TIME, values.NO_MONEY):
        return found
    return Converted(None, f"{found.rule}: {_INSTEAD.get(name, 'left empty')}")


_INSTEAD = {"started_at": "became the time of the first message", "ended_at": "became started_at"}


def left_note(session_id: str, left: dict[str, Any]) -> tuple[str, str]:
    """Key and value of the note that keeps the columns without a place."""
    name = f"{LEFT_COLUMNS_KEY}{session_id}"
    if len(name) > MAX_ID_CHARACTERS:
        name = f"{LEFT_COLUMNS_KEY}{hashlib.sha256(session_id.encode()).hexdigest()}"
    return name, dump_json(checked(left, clean=True))


def prompts_of(sessions: list[NewSession]) -> Iterator[tuple[str, str]]:
    """Hash and text of every prompt."""
    for session in sessions:
        if session.prompt is not None:
            yield session.columns["system_prompt_hash"], session.prompt


def _text(value: Any) -> str | None:
    text = values.as_text(value, 2**40).value
    return text if isinstance(text, str) else None


def _unwrapped(text: str | None, rule: str | None = None) -> Converted:
    """``model_config`` as it is, but a JSON object that was encoded twice once (field report J1)."""
    if text is None or not text.startswith('"'):
        return Converted(text, rule)
    try:
        inner = load_json(text)
        is_object = isinstance(inner, str) and isinstance(load_json(inner), dict)
    except ValueError:
        return Converted(text, rule)
    return Converted(inner, values.UNWRAPPED) if is_object else Converted(text, rule)
