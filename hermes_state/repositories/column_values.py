"""Values for columns of any table, checked before any SQL; the same on both databases."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from hermes_state.errors import InvalidArgumentError
from hermes_state.json_values import UnfitValueError, checked, dump_json
from hermes_state.models import KINDS
from hermes_state.text import MAX_ID_CHARACTERS, clean_text, exceeds

# An index of PostgreSQL takes no longer values.
_INDEXED = ("source", "title")


def column_value(column: sa.Column[Any], value: Any, max_text_bytes: int) -> Any:
    """``value`` as the column stores it: what a caller gives for one column, of whatever table. Raises ``InvalidArgumentError`` for one of another type or out of range."""
    name = column.name
    if isinstance(column.type, sa.Boolean):
        if value in (0, 1) and isinstance(value, int):
            return bool(value)
        raise InvalidArgumentError(name, "it must be true or false")
    if isinstance(column.type, sa.Integer):
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63:
            return value
        raise InvalidArgumentError(name, "it must be a whole number from 0 to 2**63 - 1")
    if isinstance(column.type, sa.Float):
        return _finite(name, value)
    if name == "model_config" and isinstance(value, Mapping):
        return _config_text(value, max_text_bytes)
    return _text(name, value, max_text_bytes)


def _finite(name: str, value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number + 0.0  # SQLite has no -0.0
    raise InvalidArgumentError(name, "it must be a finite number")


def _text(name: str, value: Any, max_text_bytes: int) -> str:
    if not isinstance(value, str):
        raise InvalidArgumentError(name, "it must be text")
    if name == "kind" and value not in KINDS:
        raise InvalidArgumentError("kind", f"it must be one of {', '.join(KINDS)}")
    text = clean_text(str.__str__(value))
    if name in _INDEXED and len(text) > MAX_ID_CHARACTERS:
        raise InvalidArgumentError(name, f"it is longer than {MAX_ID_CHARACTERS} characters")
    if exceeds(text, max_text_bytes):
        raise InvalidArgumentError(name, f"it is longer than {max_text_bytes} bytes")
    return text


def _config_text(value: Mapping[Any, Any], max_text_bytes: int) -> str:
    """An exported ``model_config`` is text and kept to the letter, even where it is no JSON; a dict is encoded."""
    try:
        text = dump_json(checked(dict(value), clean=True))
    except UnfitValueError as error:
        raise InvalidArgumentError("model_config", str(error)) from error
    return _text("model_config", text, max_text_bytes)
