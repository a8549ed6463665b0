"""Where a phrase stands in a text; pure functions (issue 5, item 2). The same words as in the index of either database."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from hermes_state.search_query import Phrase
from hermes_state.search_words import end_of_signs, end_of_word, is_of_a_word

Place = tuple[int, int]


def places(text: str, phrase: Phrase, first: int = 0, last: int | None = None) -> Iterator[Place]:
    """Beginning and end of each occurrence that begins in ``text[first:last]``, in order; case does not count."""
    ahead = len(text) if last is None else last
    if phrase.is_literal:
        yield from (found.span() for found in _pattern(phrase.text).finditer(text, first, ahead))
        return
    patterns = [_pattern(word) for word in phrase.words]
    for found in patterns[0].finditer(text, first, ahead):
        end = _end(text, found.end(), patterns[1:], is_prefix=phrase.is_prefix)
        if end is not None and not is_of_a_word(text[found.start() - 1 : found.start()]):
            yield found.start(), end


def text_holds(text: object, phrase: str, is_prefix: int) -> bool:
    """Whether a text holds a phrase; a function of each SQLite connection, for queries only, never for triggers."""
    return isinstance(text, str) and any(True for _ in places(text, Phrase(phrase, bool(is_prefix))))


def _end(text: str, position: int, others: list[re.Pattern[str]], *, is_prefix: bool) -> int | None:
    for pattern in others:
        found = pattern.match(text, end_of_signs(text, position))
        if found is None or found.start() == position:
            return None
        position = found.end()
    end = end_of_word(text, position)
    return end if is_prefix or end == position else None


@functools.lru_cache(maxsize=4_096)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(re.escape(text), re.IGNORECASE)
