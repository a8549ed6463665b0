"""The grammar of a search: text into words, phrases, OR, NOT and prefixes; pure functions (issue 5, item 2).

A query is one or more alternatives, joined by OR; each wants all of its phrases and none of those behind NOT. Whatever does not
parse is text, so a hit that contains the text is never lost to syntax.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from hermes_state.errors import InvalidArgumentError, QuerySyntaxError
from hermes_state.search_words import end_of_signs, letters_of, without_edges, words_of
from hermes_state.text import clean_text

LONGEST_QUERY = 2_048
OPERATORS = ("AND", "OR", "NOT")
_TOKEN = re.compile(r'"(?P<quoted>[^"]*)"(?P<stars>\**)(?!\S)|(?P<plain>\S+)')


@dataclass(frozen=True)
class Phrase:
    """Words that follow each other, whatever signs are between them; or, in scripts without blanks, letters as they are written."""

    text: str
    """As it was written, without signs at its edges."""
    is_prefix: bool = False

    @property
    def is_literal(self) -> bool:
        """Whether it holds letters of a script without blanks: then it is found anywhere, letter by letter."""
        return bool(self.letters)

    @property
    def words(self) -> list[str]:
        """Its words."""
        return words_of(self.text)

    @property
    def letters(self) -> list[str]:
        """Its letters of scripts without blanks."""
        return letters_of(self.text)


@dataclass(frozen=True)
class Alternative:
    """All of ``wanted`` (at least one) and none of ``unwanted``."""

    wanted: tuple[Phrase, ...]
    unwanted: tuple[Phrase, ...]


SearchQuery = tuple[Alternative, ...]


def parse_query(query: Any, *, strict: bool = False) -> SearchQuery:
    """The alternatives of ``query``; none where it holds no letter and no digit.

    Tolerant, operators without a neighbour are dropped and the text is cut at 2,048 characters; ``strict`` raises
    ``QuerySyntaxError`` for both, for an unbalanced quote and for a query without words. ``InvalidArgumentError`` for no text.
    """
    if not isinstance(query, str):
        raise InvalidArgumentError("query", "it must be text")
    reader = _Reader(query, strict=strict)
    if len(query) > LONGEST_QUERY:
        reader.complain(LONGEST_QUERY, f"it is longer than {LONGEST_QUERY:,} characters")
    return reader.read(clean_text(_cut(query)))


def _cut(query: str) -> str:
    """The beginning of the query; a word that would be cut in two is left out, if there are others."""
    kept = query[:LONGEST_QUERY]
    if len(query) == len(kept) or query[LONGEST_QUERY].isspace() or len(kept.split(maxsplit=1)) < 2:
        return kept
    return kept[: -len(kept.split()[-1])] if not kept[-1].isspace() else kept


class _Reader:
    def __init__(self, query: str, *, strict: bool) -> None:
        self._query = query
        self._strict = strict
        self._alternatives: list[Alternative] = []
        self._wanted: dict[Phrase, None] = {}
        self._unwanted: dict[Phrase, None] = {}
        self._pending: tuple[str, int] | None = None

    def complain(self, position: int, reason: str) -> None:
        if self._strict:
            self._refuse(position, reason)

    def _refuse(self, position: int, reason: str) -> NoReturn:
        raise QuerySyntaxError(self._query, min(position, len(self._query)), reason)

    def read(self, text: str) -> SearchQuery:
        for position, item in self._items(text):
            if isinstance(item, Phrase):
                self._take(item)
            else:
                self._operate(item, position)
        if self._pending is not None:
            self.complain(self._pending[1], f"nothing follows {self._pending[0]}")
        self._close()
        if not self._alternatives:
            self.complain(0, "it holds no word")
        return tuple(dict.fromkeys(self._alternatives))

    def _items(self, text: str) -> Iterator[tuple[int, Phrase | str]]:
        for found in _TOKEN.finditer(text):
            quoted, plain = found["quoted"], found["plain"]
            if plain in OPERATORS:
                yield found.start(), plain
                continue
            if quoted is None and plain.count('"') % 2 and plain[0] == '"':
                self.complain(found.start(), "a quote is never closed")
            phrase = _phrase(plain if quoted is None else quoted, starred=bool(found["stars"]))
            if phrase is not None:
                yield found.start(), phrase
            elif plain is not None and "*" in plain:
                self.complain(found.start(), "a * stands behind the beginning of a word")

    def _operate(self, operator: str, position: int) -> None:
        if self._pending is not None and not (self._pending[0] == "AND" and operator == "NOT"):
            self.complain(position, f"{operator} follows {self._pending[0]}")
        if not self._wanted:
            self.complain(position, f"nothing stands before {operator}")
            return
        self._pending = (operator, position)

    def _take(self, phrase: Phrase) -> None:
        operator = None if self._pending is None else self._pending[0]
        self._pending = None
        if operator == "OR":
            self._close()
        (self._unwanted if operator == "NOT" else self._wanted)[phrase] = None

    def _close(self) -> None:
        if self._wanted:
            self._alternatives.append(Alternative(tuple(self._wanted), tuple(self._unwanted)))
        self._wanted, self._unwanted = {}, {}


def _phrase(text: str, *, starred: bool) -> Phrase | None:
    bare = text.rstrip("*") if not starred else text
    starred = (starred or bare != text) and bare != "" and end_of_signs(bare[-1], 0) == 0
    bare = without_edges(bare)
    return Phrase(bare, starred) if any(character.isalnum() for character in bare) else None
