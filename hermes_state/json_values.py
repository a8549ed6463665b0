"""JSON as the store keeps it: encoded once, exact, and refused before any SQL when it cannot be (CONTRACT.md 2.3)."""

from __future__ import annotations

import json
import math
from typing import Any

from hermes_state.text import REPLACEMENT, clean_text, has_surrogate

MAX_DEPTH = 200
MAX_INTEGER_DIGITS = 4_300
_TOO_LARGE = 10**MAX_INTEGER_DIGITS
_SURELY_SMALL_BITS = 14_000


class UnfitValueError(ValueError):
    """A value that cannot be stored; the text says why."""


def _refuse_constant(name: str) -> Any:
    raise UnfitValueError(f"{name} is not JSON")


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_encode_ascii = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


def load_json(text: str) -> Any:
    """The value of JSON ``text``. Raises ``ValueError`` for NaN and infinity too, and for text nested too deep."""
    try:
        return _decode(text)
    except RecursionError as error:
        raise UnfitValueError("it is nested too deep") from error


def has_repeated_key(text: str) -> bool:
    """Whether an object in JSON ``text`` has a key twice, of which only the last is kept; also in text that was encoded twice."""
    found = False

    def look(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal found
        last = dict(pairs)
        found = found or len(last) < len(pairs)
        return last

    value = json.loads(text, object_pairs_hook=look)
    if isinstance(value, str) and value:
        json.loads(value, object_pairs_hook=look)
    return found


def dump_json(value: Any) -> str:
    """Compact JSON text of a checked value, unescaped but where a surrogate leaves no choice (field report J5)."""
    text = _encode(value)
    return _encode_ascii(value) if has_surrogate(text) else text


def parsed(value: Any) -> Any:
    """``value`` itself, or what its JSON text holds; text that parses to a string is parsed once more.

    Raises ``UnfitValueError`` for text that does not parse.
    """
    for _ in range(2):
        if not isinstance(value, str) or value == "":
            return value
        try:
            value = load_json(value)
        except UnfitValueError:
            raise
        except ValueError as error:
            raise UnfitValueError(f"it is not JSON: {error}") from error
    if isinstance(value, str) and value:
        raise UnfitValueError("it is text in text in text, not a value")
    return value


def checked(value: Any, *, clean: bool, depth: int = 0) -> Any:
    """A copy of ``value`` made of plain JSON types: tuples become lists, subclasses their base.

    ``clean`` replaces NUL and surrogates in text and keys at any depth; keys that become equal are kept apart. Raises
    ``UnfitValueError`` for what JSON cannot hold exactly.
    """
    kind = type(value)
    if kind is str:
        return clean_text(value) if clean else value
    if value is None or kind is bool:
        return value
    if isinstance(value, (dict, list, tuple)):
        if depth >= MAX_DEPTH:
            raise UnfitValueError(f"it is nested deeper than {MAX_DEPTH}")
        if isinstance(value, dict):
            return _checked_dict(value, clean, depth + 1)
        return [checked(item, clean=clean, depth=depth + 1) for item in value]
    return _checked_scalar(value, clean)


def _checked_dict(value: dict[Any, Any], clean: bool, depth: int) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise UnfitValueError(f"a key is {type(key).__name__}, not text")
        name = str.__str__(key)
        result[free_key(name, result) if clean else name] = checked(item, clean=clean, depth=depth)
    return result


def free_key(key: str, taken: dict[str, Any]) -> str:
    """``key`` cleaned, with U+FFFD appended until it differs from every key of ``taken`` (field report A3)."""
    key = clean_text(key)
    while key in taken:
        key += REPLACEMENT
    return key


def _checked_scalar(value: Any, clean: bool) -> Any:
    if isinstance(value, str):
        return checked(str.__str__(value), clean=clean)
    if isinstance(value, int):
        if value.bit_length() > _SURELY_SMALL_BITS and abs(value) >= _TOO_LARGE:
            raise UnfitValueError(f"an integer has more than {MAX_INTEGER_DIGITS} digits")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise UnfitValueError("a number is not finite")
        return float(value)
    raise UnfitValueError(f"{type(value).__name__} is not a JSON value")
