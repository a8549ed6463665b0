"""Rows of other programs made fit for every database; each change is noted. The rules stand in ``repositories/fitting.py``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from hermes_state.repositories.fitting import Changed, Rule, rule_for

Row = tuple[Any, ...]
MAX_NOTES = 1_000
_SHOWN_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Note:
    """A value that was changed, or a row that was left out: table, primary key, column, what was done, what was there."""

    table: str
    key: tuple[Any, ...]
    column: str
    done: str
    value: str


class RowConverter:
    """Makes rows of one table fit. ``count`` counts all changes, ``notes`` holds the first 1,000."""

    def __init__(self, table: sa.Table, columns: Sequence[sa.Column[Any]], *, checks_json: bool) -> None:
        self._table = table
        self._columns = columns
        self._checks_json = checks_json
        self._plans: dict[tuple[type, ...], list[tuple[int, Rule]]] = {}
        self._key = [place for place, column in enumerate(columns) if column.primary_key]
        self.notes: list[Note] = []
        self.count = 0

    def convert(self, row: Row) -> Row:
        """The row as every database takes it; the same object when nothing is to be done."""
        kinds = tuple(map(type, row))
        plan = self._plans.get(kinds)
        if plan is None:
            plan = self._plans[kinds] = self._planned(kinds)
        values: list[Any] | None = None
        for place, rule in plan:
            given = row[place]
            found = rule(given)
            if found is given:
                continue
            if values is None:
                values = list(row)
            if type(found) is Changed:
                self._note(row, place, found)
                found = found.value
            values[place] = found
        return row if values is None else tuple(values)

    def note(self, row: Row, column: str, done: str) -> None:
        """Notes something that was done to the row beyond these rules."""
        place = next(place for place, each in enumerate(self._columns) if each.name == column)
        self._note(row, place, Changed(None, done))

    def key_of(self, row: Row) -> tuple[Any, ...]:
        """The primary key of the row."""
        return tuple(row[place] for place in self._key)

    def _note(self, row: Row, place: int, change: Changed) -> None:
        self.count += 1
        if len(self.notes) < MAX_NOTES:
            shown = repr(row[place])[:_SHOWN_CHARACTERS]
            name = self._columns[place].name
            self.notes.append(Note(self._table.name, self.key_of(row), name, change.rule, shown))

    def _planned(self, kinds: tuple[type, ...]) -> list[tuple[int, Rule]]:
        return [
            (place, rule)
            for place, (column, kind) in enumerate(zip(self._columns, kinds, strict=True))
            if kind is not type(None) and (rule := rule_for(column, kind, checks_json=self._checks_json))
        ]
