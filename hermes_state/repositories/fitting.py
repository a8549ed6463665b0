"""Values of other programs made fit for every database, by rules that are stated here.

SQLite stores what it is given; PostgreSQL refuses much of it (field reports C1 to C6, A1). The rules, by type of column:

- text: NUL and what is not UTF-8 become U+FFFD; bytes are read as UTF-8; a number becomes its text
- JSON: text that is no JSON is kept as a JSON string of it, which readers take for absent as they did the text
- whole numbers: a fraction is cut off; what is no number, not finite, or outside 64 bits becomes NULL, or 0 where NULL cannot be
- numbers with a fraction: what is no number or not finite becomes NULL, or 0 where NULL cannot be
- true or false: any number but 0 is true, anything else false; here 1 and 0 stand for them, which both databases take
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from hermes_state.dialects.bulk import Undecodable
from hermes_state.json_values import dump_json, load_json
from hermes_state.text import clean_text
from hermes_state.types import ExactJson


@dataclass(frozen=True, slots=True)
class Changed:
    """What a value that does not fit becomes, and the rule."""

    value: Any
    rule: str


Rule = Callable[[Any], Any]
"""Gives the value itself, another one that means the same, or ``Changed``."""


class Fitter:
    """Makes single values fit the columns of a table."""

    def __init__(self, table: sa.Table) -> None:
        self._table = table
        self._rules: dict[tuple[str, type], Rule | None] = {}

    def fit(self, name: str, value: Any) -> Any:
        """``value`` as every database takes it in the column ``name``."""
        key = (name, type(value))
        if value is None:
            return None
        if key not in self._rules:
            self._rules[key] = rule_for(self._table.c[name], type(value), checks_json=False)
        rule = self._rules[key]
        found = value if rule is None else rule(value)
        return found.value if type(found) is Changed else found


def rule_for(column: sa.Column[Any], kind: type, *, checks_json: bool) -> Rule | None:
    """What is to be done with values of this type in this column; ``None``: nothing."""
    nothing: Any = None if column.nullable else 0
    if isinstance(column.type, ExactJson):
        return _json if checks_json or kind is not str else None
    if isinstance(column.type, sa.Boolean):
        return None if kind is bool else _boolean
    if isinstance(column.type, sa.Integer):
        return None if kind is int else lambda value: _whole(value, nothing)
    if isinstance(column.type, sa.Float):
        return lambda value: _real(value, None if column.nullable else 0.0)
    return _clean if kind is str else _text


def _clean(value: str) -> Any:
    return Changed(clean_text(value), "NUL became U+FFFD") if "\0" in value else value


def _text(value: Any) -> Changed:
    if isinstance(value, Undecodable):
        return Changed(clean_text(str.__str__(value)), "what is not UTF-8 became U+FFFD")
    if isinstance(value, bytes):
        return Changed(clean_text(value.decode("utf-8", "replace")), "bytes were read as text")
    return Changed(str(value), "a number became its text")


def _json(value: Any) -> Any:
    text = value if type(value) is str else _text(value).value
    try:
        load_json(text)
    except ValueError:
        return Changed(dump_json(text), "text that is no JSON is kept as a JSON string")
    return value if text is value else Changed(text, "bytes were read as text")


def _boolean(value: Any) -> Any:
    if type(value) is int and value in (0, 1):
        return value
    is_number = isinstance(value, (int, float))
    return Changed(int(is_number), "a number became true" if is_number else "what is no number became false")


def _whole(value: Any, nothing: Any) -> Any:
    if isinstance(value, float) and math.isfinite(value) and -(2.0**63) <= value < 2.0**63:
        return Changed(int(value), "a fraction was cut off")
    return Changed(nothing, "what is no whole number was taken out")


def _real(value: Any, nothing: float | None) -> Any:
    if isinstance(value, float):
        if math.isfinite(value):
            return value or 0.0  # SQLite has no -0.0
    elif isinstance(value, int):
        return float(value)
    return Changed(nothing, "what is no finite number was taken out")
