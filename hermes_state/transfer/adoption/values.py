"""The rules by which values of an older store become values of the new one; pure functions.

SQLite stores what it is given, whatever the column was declared as: text in a number, bytes in a text, infinity in a
time. Each rule gives the value to store and, where it had to change something, the words that the report says.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import math
from typing import Any, NamedTuple

from hermes_state.codec import END_OF_TIME
from hermes_state.salvage import cut
from hermes_state.text import MAX_ID_CHARACTERS, clean_text, exceeds

UNREADABLE = "NUL, surrogates and bytes that are no UTF-8 became U+FFFD"
BYTES_AS_TEXT = "bytes were read as text"
NUMBER_AS_TEXT = "a number became its digits"
CUT = "text above the limit was cut"
TEXT_AS_NUMBER = "text was read as the number it spells"
NO_NUMBER = "no whole number from 0 to 2**63 - 1"
NO_TRUTH = "neither 0 nor 1; anything but zero counts as true"
DATE_AS_TIME = "a date was read as the time it names, in UTC where it says nothing else"
NO_TIME = "no time between 1970 and 2200"
NO_MONEY = "no finite number"
UNWRAPPED = "JSON that was encoded twice is encoded once"
REPEATED_KEY = "an object had a key twice: the last one stays"
SHORTENED = "an id of more than 512 characters was shortened and got the hash of the whole"
NO_ID = "an id may not be empty"


class Converted(NamedTuple):
    """The value to store, and the rule that changed it; ``None`` where nothing but the type's own form changed."""

    value: Any
    rule: str | None = None


def as_text(value: Any, limit: int) -> Converted:
    """Clean text of at most ``limit`` bytes."""
    if value is None:
        return Converted(None)
    rule = None
    if isinstance(value, bytes):
        value, rule = value.decode("utf-8", "surrogateescape"), BYTES_AS_TEXT
    elif not isinstance(value, str):
        value, rule = repr(value), NUMBER_AS_TEXT
    clean = clean_text(value)
    if clean is not value:
        rule = UNREADABLE
    if exceeds(clean, limit):
        return Converted(cut(clean, limit), CUT)
    return Converted(clean, rule)


def as_id(value: Any) -> Converted:
    """An id of 1 to 512 characters, ``None`` for an empty one."""
    text, rule = as_text(value, 2**40)
    if not text:
        return Converted(None, None if value is None else NO_ID)
    if len(text) > MAX_ID_CHARACTERS:
        digest = hashlib.sha256(text.encode()).hexdigest()
        return Converted(f"{text[: MAX_ID_CHARACTERS - len(digest) - 1]}-{digest}", SHORTENED)
    return Converted(text, rule)


def as_count(value: Any) -> Converted:
    """A whole number from 0 to 2**63 - 1, else ``None``; text and fractions count when they spell one."""
    if type(value) is int:
        return Converted(value) if value >= 0 else Converted(None, NO_NUMBER)
    if value is None:
        return Converted(None)
    number = _whole(value)
    if number is None or not 0 <= number < 2**63:
        return Converted(None, NO_NUMBER)
    return Converted(number, None if isinstance(value, float) else TEXT_AS_NUMBER)


def as_truth(value: Any, default: bool) -> Converted:
    """True or false; ``default`` for NULL and for what is no number."""
    if type(value) is int and value in (0, 1):
        return Converted(bool(value))
    if value is None:
        return Converted(default)
    number = _number(value)
    return Converted(default if number is None or math.isnan(number) else number != 0, NO_TRUTH)


def as_time(value: Any) -> Converted:
    """Epoch seconds from 1970 up to 2200, else ``None``; text may also be a date of ISO 8601, with or without a time."""
    found = _finite(value, NO_TIME, 0.0, END_OF_TIME)
    if found.rule != NO_TIME or not isinstance(value, str) or value.isdecimal():
        return found
    try:
        moment = dt.datetime.fromisoformat(value.strip())
    except ValueError:
        return found
    named = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    seconds = (named - dt.datetime.fromtimestamp(0, dt.UTC)).total_seconds()
    return Converted(seconds, DATE_AS_TIME) if 0 <= seconds < END_OF_TIME else found


def as_money(value: Any) -> Converted:
    """A finite number, else ``None``."""
    return _finite(value, NO_MONEY, -math.inf, math.inf)


def _finite(value: Any, rule: str, least: float, end: float) -> Converted:
    if value is None:
        return Converted(None)
    number = _number(value)
    if number is None or not math.isfinite(number) or not least <= number < end:
        return Converted(None, rule)
    return Converted(number + 0.0, TEXT_AS_NUMBER if isinstance(value, (str, bytes)) else None)


def _whole(value: Any) -> int | None:
    if isinstance(value, (str, bytes)):
        try:
            return int(value)
        except ValueError:
            pass  # it may spell a fraction
    number = _number(value)
    return None if number is None or not math.isfinite(number) or number % 1 else int(number)


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None
