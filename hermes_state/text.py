"""Text that every database can hold: NUL and surrogates become U+FFFD (CONTRACT.md section 2, rule 1)."""

from __future__ import annotations

import re
from typing import Any

REPLACEMENT = "\ufffd"
MAX_ID_CHARACTERS = 512
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def clean_text(text: str) -> str:
    """``text`` with every NUL and every surrogate code point replaced by U+FFFD; the same object when it has none."""
    if text.isascii():
        return text.replace("\0", REPLACEMENT) if "\0" in text else text
    return _UNSTORABLE.sub(REPLACEMENT, text) if _UNSTORABLE.search(text) else text


def is_clean(text: str) -> bool:
    """Whether ``clean_text`` would leave ``text`` as it is."""
    return clean_text(text) is text


def has_surrogate(text: str) -> bool:
    """Whether ``text`` holds a surrogate code point, so that it has no UTF-8 form."""
    return not text.isascii() and _SURROGATE.search(text) is not None


def is_usable_id(value: Any) -> bool:
    """Whether ``value`` can be an id: text of 1 to 512 characters without NUL and surrogates (CONTRACT.md 2.6)."""
    return (
        isinstance(value, str) and 0 < len(value) <= MAX_ID_CHARACTERS and _UNSTORABLE.search(value) is None
    )


def exceeds(text: str, max_bytes: int) -> bool:
    """Whether the UTF-8 form of clean ``text`` is longer than ``max_bytes``."""
    if len(text) * 4 <= max_bytes:
        return False
    return len(text) > max_bytes or len(text.encode("utf-8", "surrogatepass")) > max_bytes
