"""The piece of a text around what was found, with marks; pure functions (issue 5, item 2).

At most 40 words, or 120 characters around letters of a script without blanks. A phrase has one pair of marks, so what was searched
stands unbroken.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

from hermes_state.search_occurrences import Place, places
from hermes_state.search_query import Phrase, SearchQuery
from hermes_state.search_words import letters_of

START, END, CUT = ">>>", "<<<", "..."
_MOST_WORDS, _WORDS_BEFORE = 40, 10
_MOST_LETTERS = 120
_MOST_CHARACTERS = 2_000
"""Of a snippet whose words have no end, and on either side of what was found."""


def snippet(texts: Iterable[str | None], query: SearchQuery) -> str:
    """From the first of ``texts`` that holds something of what was wanted; else the beginning of the first one, without marks."""
    given = [text for text in texts if text]
    # The longest first: a phrase is one hit, not the hits of its words.
    wanted = list(dict.fromkeys(phrase for each in query for phrase in each.wanted))
    wanted.sort(key=lambda phrase: -len(phrase.text))
    for text in given:
        found = [place for phrase in wanted for place in itertools.islice(places(text, phrase), 1)]
        if found:
            return _around(text, min(found, key=lambda place: place[0]), wanted)
    if not given:
        return ""
    start, end = _words_around(given[0], 0, 0)
    return _cut(given[0], start, end, given[0][start:end])


def _around(text: str, hit: Place, wanted: Sequence[Phrase]) -> str:
    around = _letters_around if letters_of(text[slice(*hit)]) else _words_around
    start, end = around(text, *hit)
    parts, last = [], start
    found = [place for phrase in wanted for place in places(text, phrase, start, end)]
    for first, behind in sorted(found, key=lambda place: place[0]):
        if first >= last and behind <= end:
            parts += [text[last:first], START, text[first:behind], END]
            last = behind
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
