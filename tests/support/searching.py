"""Small words for tests of the search: say texts, see which rows are found, read a snippet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hermes_state import SessionDB

START, END, CUT = ">>>", "<<<", "..."


def say(db: SessionDB, *texts: Any, session_id: str = "s", role: str = "user", **keys: Any) -> list[int]:
    """Appends each text as a message; the row ids. The session is made when it is missing."""
    db.ensure_session(session_id, "cli")
    return [db.append_message(session_id, role, text, **keys) for text in texts]


def found(db: SessionDB, query: str, **options: Any) -> list[int]:
    """The row ids of all hits, sorted."""
    return sorted(hit["id"] for hit in db.search_messages(query, **{"limit": 1000, **options}))


def texts_found(db: SessionDB, query: str, **options: Any) -> list[str]:
    """The whole text of every hit, sorted."""
    hits = db.search_messages(query, **{"limit": 1000, **options})
    rows = {row["id"]: row for name in {h["session_id"] for h in hits} for row in rows_of(db, name)}
    return sorted(str(rows[hit["id"]]["content"]) for hit in hits)


def rows_of(db: SessionDB, session_id: str) -> Sequence[Any]:
    """Every row of the session, rewound ones too."""
    return db.get_messages(session_id, include_inactive=True)


def snippet(db: SessionDB, query: str, **options: Any) -> str:
    """The snippet of the only hit."""
    (hit,) = db.search_messages(query, **options)
    return str(hit["snippet"])


def plain(text: str) -> str:
    """A snippet without marks and without signs of being cut."""
    return text.replace(START, "").replace(END, "").removeprefix(CUT).removesuffix(CUT)


def marked(text: str) -> list[str]:
    """What stands between each pair of marks; every mark has its partner."""
    parts = text.split(START)[1:]
    assert all(part.count(END) == 1 for part in parts)
    assert text.count(END) == len(parts)
    return [part.partition(END)[0] for part in parts]
