"""Notes by key (issue 3, item 5)."""

from __future__ import annotations

import pytest

from hermes_state import SessionDB
from tests.support.raw import RawSql


def store_notes(db: SessionDB, *keys: str) -> None:
    for key in keys:
        db.set_meta(key, f"value of {key}")


def test_a_prefix_finds_the_notes_whose_keys_start_with_it_in_the_order_of_code_points(db: SessionDB) -> None:
    store_notes(db, "job:b", "job:é", "job:B", "job:a", "job", "other", "ajob:a")
    found = db.list_meta_prefix("job:")
    assert list(found) == ["job:B", "job:a", "job:b", "job:é"]
    assert found["job:é"] == "value of job:é"


@pytest.mark.parametrize(
    ("prefix", "other"), [("a%", "ab"), ("a_", "ab"), ("a\\", "ab"), ("a*", "ab"), ("a?", "ab"), ("a[", "ab")]
)
def test_no_character_of_a_prefix_is_a_wildcard(db: SessionDB, prefix: str, other: str) -> None:
    store_notes(db, f"{prefix}x", f"{other}x")
    assert list(db.list_meta_prefix(prefix)) == [f"{prefix}x"]


def test_case_counts_in_a_prefix(db: SessionDB) -> None:
    store_notes(db, "Key", "key")
    assert list(db.list_meta_prefix("K")) == ["Key"]


@pytest.mark.parametrize("last", ["\N{GRINNING FACE}", "\ud7ff", "\U0010ffff"])
def test_a_prefix_may_end_with_any_character(db: SessionDB, last: str) -> None:
    store_notes(db, f"a{last}", f"a{last}z", "a", "b")
    assert set(db.list_meta_prefix(f"a{last}")) == {f"a{last}", f"a{last}z"}


def test_the_empty_prefix_gives_every_note_and_none_of_the_impossible_ones_any(
    db: SessionDB, raw: RawSql
) -> None:
    store_notes(db, "b", "a")
    raw("INSERT INTO state_meta (key) VALUES ('c')")
    assert db.list_meta_prefix("") == {"a": "value of a", "b": "value of b", "c": None}
    for prefix in ("\0", "\ud800", "a" * 513, "missing"):
        assert db.list_meta_prefix(prefix) == {}


def test_notes_are_listed_and_set_inside_a_unit_of_work(db: SessionDB, raw: RawSql) -> None:
    def set_and_fail() -> None:
        with db.unit_of_work() as uow:
            uow.meta.set("p:1", "one")
            assert uow.meta.list_prefix("p:") == {"p:1": "one"}
            raise LookupError

    with pytest.raises(LookupError):
        set_and_fail()
    assert raw("SELECT * FROM state_meta") == []
