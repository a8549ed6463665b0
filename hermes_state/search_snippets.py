"""The piece of a text around what was found, with marks; pure functions (issue 5, item 2).

At most 40 words, or 120 characters around letters of a script without blanks. A phrase has one pair of marks, so what was searched
stands unbroken.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence

from hermes_state.search_query import UNSPACED, Phrase, SearchQuery

START, END, CUT = ">>>", "<<<", "..."
_MOST_WORDS, _WORDS_BEFORE = 40, 10
_MOST_LETTERS = 120
_MOST_CHARACTERS = 2_000
"""Of a snippet whose words have no end, and on either side of what was found."""
_OF_A_WORD = rf"[^\W_{UNSPACED}]"
_BETWEEN = r"[\W_]+"


def snippet(texts: Iterable[str | None], query: SearchQuery) -> str:
    """From the first of ``texts`` that holds something of what was wanted; else the beginning of the first one, without marks."""
    given = [text for text in texts if text]
    pattern = _pattern(query)
    for text in given:
        found = pattern.search(text)
        if found is not None:
            return _around(text, found, pattern)
    if not given:
        return ""
    start, end = _words_around(given[0], 0, 0)
    return _cut(given[0], start, end, given[0][start:end])


def _pattern(query: SearchQuery) -> re.Pattern[str]:
    wanted = dict.fromkeys(phrase for each in query for phrase in each.wanted)
    # The longest first: a phrase is one hit, not the hits of its words.
    ordered = sorted(wanted, key=lambda phrase: -len(phrase.text))
    return re.compile("|".join(pattern_of(phrase) for phrase in ordered), re.IGNORECASE)


def pattern_of(phrase: Phrase) -> str:
    """The regular expression of the phrase in a text, whose case does not count."""
    if phrase.is_literal:
        return re.escape(phrase.text)
    words = _BETWEEN.join(re.escape(piece) for piece in phrase.pieces)
    behind = f"{_OF_A_WORD}*" if phrase.is_prefix else f"(?!{_OF_A_WORD})"
    return f"(?<!{_OF_A_WORD}){words}{behind}"


def text_holds(text: object, pattern: str) -> bool:
    """Whether a text holds what ``pattern_of`` gave; a function of each SQLite connection, for queries only, never for triggers."""
    return isinstance(text, str) and _compiled(pattern).search(text) is not None


@functools.lru_cache(maxsize=4_096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def _around(text: str, found: re.Match[str], pattern: re.Pattern[str]) -> str:
    is_by_letters = re.search(f"[{UNSPACED}]", found.group()) is not None
    around = _letters_around if is_by_letters else _words_around
    start, end = around(text, found.start(), found.end())
    parts, last = [], start
    for each in pattern.finditer(text, start, end):
        parts += [text[last : each.start()], START, each.group(), END]
        last = each.end()
    return _cut(text, start, end, "".join([*parts, text[last:end]]))


def _cut(text: str, start: int, end: int, shown: str) -> str:
    return (CUT if start > 0 else "") + shown + (CUT if end < len(text) else "")


def _letters_around(text: str, first: int, last: int) -> tuple[int, int]:
    room = max(_MOST_LETTERS - (last - first), 0)
    start = max(0, min(first - room // 2, len(text) - _MOST_LETTERS))
    return min(start, first), max(min(start + _MOST_LETTERS, len(text)), last)


def _words_around(text: str, first: int, last: int) -> tuple[int, int]:
    low, high = max(0, first - _MOST_CHARACTERS), min(len(text), last + _MOST_CHARACTERS)
    words = [(low + each.start(), low + each.end()) for each in re.finditer(r"\S+", text[low:high])]
    hit = _place(words, first)
    start = max(0, min(hit - _WORDS_BEFORE, len(words) - _MOST_WORDS))
    shown = words[start : start + _MOST_WORDS]
    if not shown:
        return first, last
    begin = 0 if start == 0 and low == 0 else shown[0][0]
    stop = len(text) if start + _MOST_WORDS >= len(words) and high == len(text) else shown[-1][1]
    return min(begin, first), max(stop, last)


def _place(words: Sequence[tuple[int, int]], position: int) -> int:
    return next((place for place, (_, end) in enumerate(words) if end > position), 0)
