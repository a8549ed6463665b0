"""Filters, order, pages and groups of a search, and arguments that are refused (issue 5, items 1 and 4; O8, O10)."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from hermes_state import InvalidArgumentError, SessionDB
from tests.conftest import OpenDb
from tests.support.builders import user
from tests.support.raw import RawSql
from tests.support.searching import found, say

QUERIES = ["zebra", "\u8bb0", "\u8bb0\u5fc6", '"a zebra"', "zeb*"]
TEXT = "a zebra \u8bb0\u5fc6"


@pytest.fixture
def rows(search_db: SessionDB) -> dict[str, int]:
    """Sessions of three sources with rows of three roles at 100, 200, ... seconds; row ids by name."""
    made = {}
    for number, (name, source) in enumerate((("a", "cli"), ("b", "telegram"), ("c", "cron"))):
        search_db.create_session(name, source)
        for place, role in enumerate(("user", "assistant", "tool")):
            at = 100.0 * (3 * number + place + 1)
            made[f"{name}-{role}"] = search_db.append_message(name, role, TEXT, timestamp=at)
    return made


def ids(db: SessionDB, query: str = "zebra", **options: Any) -> list[int]:
    return [hit["id"] for hit in db.search_messages(query, **options)]


def named(rows: dict[str, int], *parts: str) -> list[int]:
    return sorted(row for name, row in rows.items() if any(part in name for part in parts))


def test_filters_by_source_role_session_and_time(search_db: SessionDB, rows: dict[str, int]) -> None:
    noon = dt.datetime.fromtimestamp(400, dt.UTC)
    filters: list[tuple[dict[str, Any], list[int]]] = [
        ({}, named(rows, "-")),
        ({"source_filter": ["cli"]}, named(rows, "a-")),
        ({"source_filter": ("cli", "cron", "nope")}, named(rows, "a-", "c-")),
        ({"source_filter": []}, []),
        ({"source_filter": ["nope"]}, []),
        ({"exclude_sources": ["cli", "cron"]}, named(rows, "b-")),
        ({"exclude_sources": []}, named(rows, "-")),
        ({"source_filter": ["cli", "cron"], "exclude_sources": ["cron"]}, named(rows, "a-")),
        ({"role_filter": ["user"]}, named(rows, "user")),
        ({"role_filter": ["user", "tool"]}, named(rows, "user", "tool")),
        ({"role_filter": []}, []),
        ({"role_filter": ["wizard", ""]}, []),
        ({"session_id": "b"}, named(rows, "b-")),
        ({"session_id": "nope"}, []),
        ({"session_id": "b", "role_filter": ["user"]}, named(rows, "b-user")),
        ({"session_id": "b", "source_filter": ["cli"]}, []),
        ({"since": 400}, named(rows, "b-", "c-")),
        ({"since": 400.0, "until": 650}, named(rows, "b-")),
        ({"until": 350.0}, named(rows, "a-")),
        ({"since": noon}, named(rows, "b-", "c-")),
        ({"since": 901}, []),
        ({"until": 50, "since": 60}, []),
        ({"limit": 0}, []),
        ({"offset": 9}, []),
        ({"offset": 2**40}, []),
    ]
    for options, wanted in filters:
        for query in QUERIES:
            assert found(search_db, query, **options) == wanted, (query, options)


def test_filters_hold_together_with_operators(search_db: SessionDB, rows: dict[str, int]) -> None:
    """An OR of the query never escapes a filter."""
    for query in (
        "zebra OR nowhere",
        "nowhere OR zebra",
        "\u8bb0 OR zebra",
        "\u8bb0 OR \u5fc6",
        "nowhere OR \u8bb0",
    ):
        assert found(search_db, query, source_filter=["cli"], role_filter=["user"]) == [rows["a-user"]], query
        assert found(search_db, query, session_id="b", since=550) == [rows["b-tool"]], query


def test_newest_and_oldest_follow_the_time_then_the_id(search_db: SessionDB) -> None:
    times = [5.0, 3.0, 9.0, 3.0, 5.0, 5.0]
    made = [
        search_db.append_message(search_db.ensure_session("s", "cli"), "user", TEXT, timestamp=t)
        for t in times
    ]
    by_time = [made[n] for n in (1, 3, 0, 4, 5, 2)]
    for query in QUERIES:
        assert ids(search_db, query, sort="oldest") == by_time
        assert ids(search_db, query, sort="newest") == by_time[::-1]


def test_the_best_hit_comes_first(search_db: SessionDB) -> None:
    filler = " ".join(f"word{n}" for n in range(300))
    say(search_db, *(f"{filler} {n}" for n in range(20)))
    weak, strong, middle = say(
        search_db, f"{filler} zebra", "zebra zebra zebra", f"zebra crossing {filler[:300]}"
    )
    for query in ("zebra", "zeb*", "zebra OR nowhere"):
        assert ids(search_db, query) == [strong, middle, weak], query
        assert ids(search_db, query, limit=1) == [strong]
    assert ids(search_db, "zebra OR crossing")[-1] == weak


def test_hits_of_equal_rank_are_ordered_by_their_id(search_db: SessionDB) -> None:
    made = [say(search_db, TEXT, session_id=f"s{n % 3}")[0] for n in range(12)]
    for query in QUERIES:
        order = ids(search_db, query)
        assert order in (made, made[::-1]), query


@pytest.mark.parametrize("options", [{}, {"sort": "newest"}, {"sort": "oldest"}, {"group_by_session": True},
                                     {"group_by_session": True, "sort": "newest"}, {"include_reasoning": True}])  # fmt: skip
def test_pages_are_disjoint_and_hold_every_hit(search_db: SessionDB, options: dict[str, Any]) -> None:
    for number in range(23):
        say(
            search_db, TEXT + " more" * (number % 3), session_id=f"s{number % 9}", timestamp=float(number % 4)
        )
    for query in QUERIES:
        whole = ids(search_db, query, limit=100, **options)
        assert len(whole) == len(set(whole)) == (9 if "group_by_session" in options else 23)
        for size in (1, 4, 7):
            pages = [ids(search_db, query, limit=size, offset=n, **options) for n in range(0, 24, size)]
            assert [row for page in pages for row in page] == whole, (query, size)


def test_twenty_hits_are_a_page_by_default(search_db: SessionDB) -> None:
    made = say(search_db, *(TEXT for _ in range(25)))
    assert len(ids(search_db)) == 20
    assert sorted(ids(search_db) + ids(search_db, offset=20)) == made


def test_a_group_is_the_best_hit_of_its_session(search_db: SessionDB) -> None:
    filler = " ".join(f"word{n}" for n in range(200))
    best = []
    for name in ("a", "b", "c"):
        say(search_db, f"{filler} zebra", f"{filler} zebra again", session_id=name)
        best += say(search_db, "zebra zebra", session_id=name)
        say(search_db, f"{filler} zebra", session_id=name)
    (lower,) = say(search_db, f"{filler} zebra", session_id="d")
    found_ids = ids(search_db, group_by_session=True)
    assert sorted(found_ids[:3]) == best
    assert found_ids[3:] == [lower]


def test_groups_are_made_before_the_limit(search_db: SessionDB) -> None:
    """A session with many good hits pushes no other one off the page."""
    for number in range(30):
        say(search_db, "zebra " * (40 - number), session_id="loud")
    others = [say(search_db, "one zebra among other words", session_id=f"quiet{n}")[0] for n in range(3)]
    hits = search_db.search_messages("zebra", group_by_session=True, limit=4)
    assert len({hit["session_id"] for hit in hits}) == len(hits) == 4
    assert set(others) < {hit["id"] for hit in hits}


def test_a_group_in_order_of_time_is_the_newest_or_oldest_hit(search_db: SessionDB) -> None:
    made = [say(search_db, TEXT, session_id="ab"[n % 2], timestamp=100.0 - n)[0] for n in range(6)]
    for query in QUERIES:
        assert ids(search_db, query, group_by_session=True, sort="newest") == made[:2]
        assert ids(search_db, query, group_by_session=True, sort="oldest") == [made[5], made[4]]


def test_a_group_counts_visible_and_filtered_hits_only(search_db: SessionDB) -> None:
    first, second = say(search_db, "zebra", "zebra zebra")
    search_db.rewind_to_message("s", second)
    (tool,) = say(search_db, "zebra zebra zebra", role="tool")
    assert ids(search_db, group_by_session=True, role_filter=["user"]) == [first]
    assert ids(search_db, group_by_session=True) == [tool]
    assert ids(search_db, group_by_session=True, role_filter=["user"], include_inactive=True) == [second]


@pytest.mark.parametrize(
    "options",
    [
        {"limit": -1}, {"offset": -1}, {"limit": "1"}, {"limit": True}, {"limit": None}, {"limit": 2**63}, {"offset": 1.5},
        {"source_filter": "cli"}, {"source_filter": [7]}, {"source_filter": 7}, {"exclude_sources": "cli"},
        {"exclude_sources": [None]}, {"role_filter": "user"}, {"role_filter": [7]},
        {"session_id": 7}, {"session_id": b"s"}, {"since": "yesterday"}, {"since": float("nan")},
        {"until": [1]}, {"until": True}, {"sort": "rank"}, {"sort": ""}, {"sort": 7}, {"sort": "NEWEST"},
    ],
)  # fmt: skip
def test_an_unfit_argument_is_refused(search_db: SessionDB, options: dict[str, Any]) -> None:
    say(search_db, TEXT)
    for query in ("zebra", "\u8bb0", ""):
        with pytest.raises(InvalidArgumentError):
            search_db.search_messages(query, **options)


def test_names_that_cannot_exist_find_nothing(search_db: SessionDB) -> None:
    say(search_db, TEXT)
    for text in ("\0", "\ud800", "x" * 600, ""):
        assert ids(search_db, session_id=text) == []
        assert ids(search_db, source_filter=[text]) == []
        assert len(ids(search_db, exclude_sources=[text])) == 1


def test_a_session_of_another_program_with_few_columns_is_found(
    search_db: SessionDB, raw: RawSql, backend: str
) -> None:
    raw("INSERT INTO sessions (id) VALUES ('bare')")
    raw("INSERT INTO messages (session_id, role, content) VALUES ('bare', 'user', 'a zebra')")
    (hit,) = search_db.search_messages("zebra")
    assert hit["session_id"] == "bare"
    assert search_db.search_messages("zebra", exclude_sources=["cli"]) == [hit]
    for sort in (None, "newest", "oldest"):
        assert search_db.search_messages("zebra", sort=sort, group_by_session=True) == [hit]


def test_a_row_without_a_time_is_found_and_ordered(search_db: SessionDB, raw: RawSql) -> None:
    first, second = say(search_db, TEXT, TEXT, timestamp=5.0)
    raw("INSERT INTO messages (session_id, role, content) VALUES ('s', 'user', 'a zebra')")
    for sort in (None, "newest", "oldest"):
        assert set(ids(search_db, sort=sort)) > {first, second}


def test_a_read_only_store_searches(search_db: SessionDB, open_db: OpenDb) -> None:
    say(search_db, TEXT)
    reader = open_db(read_only=True)
    for query in QUERIES:
        assert ids(reader, query) == ids(search_db, query) != []


def test_a_search_sees_only_what_is_committed(search_db: SessionDB, open_db: OpenDb) -> None:
    """An append that is rolled back leaves nothing in the index."""
    search_db.create_session("s", "cli")
    with pytest.raises(RuntimeError, match="stop"), search_db.unit_of_work() as uow:  # noqa: PT012
        uow.messages.append_batch("s", [user(TEXT)])
        raise RuntimeError("stop")
    for query in QUERIES:
        assert ids(search_db, query) == []
