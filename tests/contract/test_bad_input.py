"""What the owner's verbs do with what nobody meant (issue 6, bad input; field reports N4, P5)."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_state import InvalidArgumentError, SessionDB
from tests.support.raw import RawSql


@pytest.mark.parametrize("title", ["\u202e" + "x" * 20_000, "a \u2066b" * 10_000])
def test_a_title_of_20_000_characters_is_refused_however_it_is_given(
    db: SessionDB, session: str, raw: RawSql, title: str
) -> None:
    for name in (db.set_session_title, db.set_auto_title):
        with pytest.raises(InvalidArgumentError, match="too long"):
            name(session, title)
    assert db.set_session_title(session, "\u202e\u2066" * 10_000) is True
    assert raw.column("SELECT title FROM sessions") == [None]
    assert db.get_session_by_title(title) is None
    assert db.resolve_session_by_title(title) is None
    assert db.list_sessions_rich(search_query=title) == []
    assert db.list_prune_candidates(title_query=title) == []


def test_a_search_of_very_many_words_is_refused_before_the_database_sees_it(
    db: SessionDB, session: str
) -> None:
    assert db.list_sessions_rich(search_query=" ".join(["s"] * 3_000))
    assert db.list_sessions_rich(search_query=" ".join(map(str, range(50)))) == []
    for verb in (db.list_sessions_rich, db.session_count, db.session_count_by_source):
        with pytest.raises(InvalidArgumentError) as refused:
            verb(search_query=" ".join(map(str, range(3_000))))
        assert refused.value.argument == "search_query"


@pytest.mark.parametrize("query", ["%", "_", "\\", "'", '"', "\0", "(", "*", "x" * 5_000, "\ud800"])
def test_a_query_is_never_a_pattern(db: SessionDB, session: str, query: str) -> None:
    db.set_session_title(session, "plain title")
    assert db.list_sessions_rich(search_query=query) == []
    assert db.list_sessions_rich(id_query=query) == []
    assert db.search_sessions_by_id(query) == []
    assert db.list_sessions_rich(cwd_prefix=query) == []
    assert db.list_prune_candidates(0, title_query=query) == []


@pytest.mark.parametrize("days", [-1, float("nan"), "1"])
def test_unfit_days_are_named_as_days(db: SessionDB, days: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="number of days"):
        db.prune_sessions(days)
