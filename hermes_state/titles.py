"""Titles of sessions as text: cleaning, numbering, and who may replace whose (issue 6, item 2; known-store.md 2.7)."""

from __future__ import annotations

import re
from typing import Any

from hermes_state.errors import InvalidArgumentError
from hermes_state.text import clean_text

MAX_TITLE_CHARACTERS = 100
USER = "user"
# Who named a session; a name is replaced only by somebody of higher rank. Branches are named by rule.
RANKS = {"derived": 1, "branch": 1, "branch_fallback": 1, "llm": 2, USER: 3}
# Control characters but white space; soft hyphens, zero-width and direction characters.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]"
)
_NUMBERED = re.compile(r"(?P<base>.*\S) #(?P<number>[0-9]{1,9})", re.DOTALL)


def sanitize_title(title: Any) -> str | None:
    """``title`` without invisible characters, blanks collapsed; ``None`` when nothing is left.

    Raises ``InvalidArgumentError`` for what is no text, and for more than 100 characters (``too long``).
    """
    if title is None:
        return None
    if not isinstance(title, str):
        raise InvalidArgumentError("title", "it must be text")
    shown = " ".join(clean_text(_INVISIBLE.sub("", title)).split())
    if len(shown) > MAX_TITLE_CHARACTERS:
        raise InvalidArgumentError(
            "title", f"it is too long: {len(shown)} characters, at most {MAX_TITLE_CHARACTERS} are possible"
        )
    return shown or None


def split_number(title: str) -> tuple[str, int]:
    """Base and number of a title: ``("notes", 3)`` for ``"notes #3"``; one without a number is number 1."""
    found = _NUMBERED.fullmatch(title)
    return (title, 1) if found is None else (found["base"], int(found["number"]))


def numbered(base: str, number: int) -> str:
    """``base`` with its number, the base cut so that both fit."""
    ending = f" #{number}"
    return base[: MAX_TITLE_CHARACTERS - len(ending)].rstrip() + ending


def may_replace(title: str | None, source: str | None, new_source: str) -> bool:
    """Whether somebody of ``new_source`` may rename a session; a title of unknown origin counts as the user's."""
    if title is None:
        return True
    return RANKS[new_source] > RANKS.get(source or USER, RANKS[USER])
