"""What a word is to a search: letters, digits and marks between signs (issue 5, items 2 and 3).

Both databases and the snippets split texts by the same characters; a test holds these ranges to those of the revision that makes the
index. They are escapes of regular expressions, as Python and PostgreSQL read them.
"""

from __future__ import annotations

import re

# Scripts that set no blanks between words: any piece of their text can be asked for.
UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1100-\u139f\u1780-\u17ff\u2d80-\u2ddf\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029"
    r"\u3031-\u303c\u3040-\u4dbf\u4e00-\ua4cf\ua960-\ua97f\uaa60-\uaadf\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc"
    r"\U00010000-\U0001cfff\U00020000-\U0003ffff"
)
# What Unicode calls punctuation, symbol, separator, control or format, with selectors and pictures; not assigned code points between them.
SIGNS = (
    r"\u0001-\u002f\u003a-\u0040\u005b-\u0060\u007b-\u00a9\u00ab-\u00b1\u00b4\u00b6-\u00b8\u00bb\u00bf\u00d7\u00f7"
    r"\u02c2-\u02c5\u02d2-\u02df\u02e5-\u02eb\u02ed\u02ef-\u02ff\u0375\u037e\u0384-\u0385\u0387\u03f6\u0482"
    r"\u055a-\u055f\u0589-\u058f\u05be\u05c0\u05c3\u05c6\u05f3-\u060f\u061b-\u061f\u066a-\u066d\u06d4\u06dd-\u06de"
    r"\u06e9\u06fd-\u06fe\u0700-\u070f\u07f6-\u07f9\u07fe-\u07ff\u0830-\u083e\u085e\u0888\u0890-\u0891\u08e2"
    r"\u0964-\u0965\u0970\u09f2-\u09f3\u09fa-\u09fb\u09fd\u0a76\u0af0-\u0af1\u0b70\u0bf3-\u0bfa\u0c77\u0c7f\u0c84"
    r"\u0d4f\u0d79\u0df4\u0f01-\u0f17\u0f1a-\u0f1f\u0f34\u0f36\u0f38\u0f3a-\u0f3d\u0f85\u0fbe-\u0fc5\u0fc7-\u0fda"
    r"\u10fb\u1400\u166d-\u166e\u1680\u169b-\u169c\u16eb-\u16ed\u1735-\u1736\u1800-\u180a\u180e\u1940-\u1945"
    r"\u19de-\u19ff\u1a1e-\u1a1f\u1aa0-\u1aa6\u1aa8-\u1aad\u1b5a-\u1b6a\u1b74-\u1b7e\u1bfc-\u1bff\u1c3b-\u1c3f"
    r"\u1c7e-\u1c7f\u1cc0-\u1cc7\u1cd3\u1fbd\u1fbf-\u1fc1\u1fcd-\u1fcf\u1fdd-\u1fdf\u1fed-\u1fef\u1ffd-\u206f"
    r"\u207a-\u207e\u208a-\u208e\u20a0-\u2101\u2103-\u2106\u2108-\u2109\u2114\u2116-\u2118\u211e-\u2123\u2125\u2127"
    r"\u2129\u212e\u213a-\u213b\u2140-\u2144\u214a-\u214d\u214f\u218a-\u244a\u249c-\u24e9\u2500-\u2775\u2794-\u2bff"
    r"\u2ce5-\u2cea\u2cf9-\u2cfc\u2cfe-\u2cff\u2d70\u2e00-\u2e2e\u2e30-\u2e5d\u2ff0-\u3004\u3008-\u3020\u3030"
    r"\u303d-\u303f\u4dc0-\u4dff\ua4fe-\ua4ff\ua60d-\ua60f\ua673\ua67e\ua6f2-\ua716\ua720-\ua721\ua789-\ua78a"
    r"\ua828-\ua82b\ua836-\ua839\ua874-\ua877\ua8ce-\ua8cf\ua8f8-\ua8fa\ua8fc\ua92e-\ua92f\ua95f\ua9c1-\ua9cd"
    r"\ua9de-\ua9df\uaa5c-\uaa5f\uaaf0-\uaaf1\uab5b\uab6a-\uab6b\uabeb\ufb29\ufbb2-\ufbc2\ufd3e-\ufd4f\ufdcf"
    r"\ufdfc-\ufe19\ufe30-\ufe6b\ufeff-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65\uffe0-\uffff\U0001d000-\U0001d164"
    r"\U0001d16a-\U0001d16c\U0001d173-\U0001d17a\U0001d183-\U0001d184\U0001d18c-\U0001d1a9\U0001d1ae-\U0001d241"
    r"\U0001d245\U0001d300-\U0001d356\U0001d6c1\U0001d6db\U0001d6fb\U0001d715\U0001d735\U0001d74f\U0001d76f\U0001d789"
    r"\U0001d7a9\U0001d7c3\U0001d800-\U0001d9ff\U0001da37-\U0001da3a\U0001da6d-\U0001da74\U0001da76-\U0001da83"
    r"\U0001da85-\U0001da8b\U0001e14f\U0001e2ff\U0001e95e-\U0001e95f\U0001ecac\U0001ecb0\U0001ed2e"
    r"\U0001eef0-\U0001fbca\U000e0001-\U000e007f"
)
_WORD = re.compile(f"[^{SIGNS}{UNSPACED}]+")
_SIGNS = re.compile(f"[{SIGNS}]+")
_AT_EDGES = re.compile(f"^[{SIGNS}]+|[{SIGNS}]+$")
_LETTER_OF_UNSPACED = re.compile(f"[{UNSPACED}]")


def words_of(text: str) -> list[str]:
    """Its words, in order."""
    return _WORD.findall(text)


def letters_of(text: str) -> list[str]:
    """Its letters of scripts without blanks, in order."""
    return _LETTER_OF_UNSPACED.findall(text)


def is_of_a_word(character: str) -> bool:
    """Whether it is a letter, digit or mark of a word; no character is none."""
    return _WORD.match(character) is not None


def end_of_word(text: str, position: int) -> int:
    """Where the word that goes on at ``position`` ends; there, if none does."""
    found = _WORD.match(text, position)
    return position if found is None else found.end()


def end_of_signs(text: str, position: int) -> int:
    """Where the signs at ``position`` end."""
    found = _SIGNS.match(text, position)
    return position if found is None else found.end()


def without_edges(text: str) -> str:
    """The text without signs before and behind it."""
    return _AT_EDGES.sub("", text)
