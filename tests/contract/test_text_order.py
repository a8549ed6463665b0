"""Text is ordered by code point, also in a PostgreSQL database that sorts as English dictionaries do (field report N6)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state import SessionDB
from tests.support import databases

# In en-US the character after each of these endings sorts before it, or between it and its variants.
ENDINGS = ["9", "z", "Z", "!", "_", "%", "é", "🙂", "#", "a"]


@pytest.fixture
def english_url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database whose locale is English; SQLite has no locale."""
    if backend == "sqlite":
        yield f"sqlite:///{tmp_path / 'state.db'}"
        return
    url = databases.create_english_database(request.getfixturevalue("postgres_url"))
    yield url
    databases.drop_database(url)


@pytest.fixture
def english(english_url: str) -> Iterator[SessionDB]:
    """A store in that database."""
    with SessionDB(url=english_url, migrate=True) as db:
        yield db


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_variants_of_a_title_are_found_whatever_it_ends_with(english: SessionDB, ending: str) -> None:
    title = f"Trip{ending}"
    english.import_sessions([{"id": name, "title": title} for name in "abc"])
    titles = [session["title"] for session in map(english.get_session, "abc") if session is not None]
    assert titles == [title, f"{title} #2", f"{title} #3"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_ids_and_notes_are_found_by_their_beginning(english: SessionDB, ending: str) -> None:
    prefix = f"s{ending}"
    english.create_session(f"{prefix}-1", "cli")
    english.create_session("other", "cli")
    english.set_meta(f"{prefix}-1", "found")
    english.set_meta("other", "no")
    assert english.resolve_session_id(prefix) == f"{prefix}-1"
    assert english.list_meta_prefix(prefix) == {f"{prefix}-1": "found"}


def test_usage_is_listed_in_one_order(english: SessionDB) -> None:
    names = ["b", "B", "a", "A", "_", "1", "é", "~"]
    for name in names:
        english.create_session(name, name)
        english.record_auxiliary_usage(name, name, input_tokens=1, model=name, billing_provider=name)
    for group in ("model", "provider", "task", "session"):
        assert [record[group] for record in english.usage_totals(by=group)] == sorted(names), group
    assert list(english.statistics()["sessions_by_source"]) == sorted(names)
