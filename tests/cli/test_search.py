"""``search``, ``index`` and what ``doctor`` says of the index (issue 5, items 3, 5 and 6)."""

from __future__ import annotations

import json

import pytest

from hermes_state import SessionDB
from tests.cli.conftest import Run
from tests.support.raw import RawSql
from tests.support.search_index import NOTICED_BY_READING, damage, forget_all
from tests.support.searching import say


def test_hits_are_shown_with_their_session_and_snippet(db: SessionDB, run: Run) -> None:
    say(db, "a zebra crosses", "something else")
    shown = run("search", "zebra").stdout
    assert "a zebra crosses" in shown.replace(">>>", "").replace("<<<", "")
    assert run("search", "nowhere").stdout.strip() in ("", "[]")


def test_json_is_what_the_verb_gives(db: SessionDB, run: Run) -> None:
    say(db, "before", "a zebra crosses \u8bb0\u5fc6", "after")
    for query in ("zebra", "\u8bb0", "zebra OR nowhere", '"a zebra"', "src/main.py", "nowhere", "-- zebra"):
        assert json.loads(run("search", "--json", "--", query).stdout) == db.search_messages(query)


def test_a_query_of_nothing_and_odd_texts_are_no_errors(db: SessionDB, run: Run) -> None:
    say(db, "\x1b[31mred zebra\x07 \u202e")
    shown = run("search", "zebra").stdout
    assert "\x07" not in shown
    assert "\u202e" not in shown
    for query in ("", "***", '"', "NEAR("):
        assert json.loads(run("search", "--json", query).stdout) == []


def test_the_index_is_rebuilt_and_its_trigrams_are_switched(db: SessionDB, run: Run) -> None:
    say(db, "a zebra \u8bb0\u5fc6\u65ad\u88c2")
    run("index", "rebuild")
    for word, on in (("on", True), ("off", False), ("on", True)):
        run("index", "--trigram", word)
        assert db.search_index_state()["trigram"] is on
        assert len(json.loads(run("search", "--json", "\u5fc6\u65ad\u88c2").stdout)) == 1
        run("index", "rebuild")
        assert db.search_index_state()["trigram"] is on
    run("index", "--trigram", "maybe", code=2)


@pytest.mark.parametrize("how", NOTICED_BY_READING)
def test_doctor_finds_a_broken_index_and_rebuilds_it(
    db: SessionDB, run: Run, raw: RawSql, backend: str, how: str
) -> None:
    say(db, "a zebra")
    run("doctor")
    damage(raw, backend, how)
    assert "index" in run("doctor", code=1).stdout
    assert len(json.loads(run("search", "--json", "zebra").stdout)) == 1
    run("doctor", "--repair")
    run("doctor")
    assert db.search_index_state()["state"] == "on"
    assert len(json.loads(run("search", "--json", "zebra").stdout)) == 1


def test_doctor_finds_an_index_that_lacks_rows(db: SessionDB, run: Run, raw: RawSql, backend: str) -> None:
    say(db, "a zebra", "an okapi")
    forget_all(raw, backend)
    assert "index" in run("doctor", code=1).stdout
    run("doctor", "--repair")
    run("doctor")
    assert [hit["snippet"] for hit in db.search_messages("zebra")] == ["a >>>zebra<<<"]
