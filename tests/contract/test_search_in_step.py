"""Whatever verb changes messages, the search finds what the rows hold now, and nothing else (issue 5, item 3; M, R)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_state import SessionDB
from hermes_state.transfer import adopt_store, copy_store
from tests.conftest import OpenDb
from tests.support.builders import assistant, carrier, user
from tests.support.older_stores import OldStore
from tests.support.pairs import PAIRS, store_urls
from tests.support.raw import RawSql
from tests.support.search_index import assert_in_step
from tests.support.searching import found

# Each row has a word of its own and a piece of CJK of its own.
CJK = "\u7532\u4e59\u4e19\u4e01\u620a\u5df1\u5e9a\u8f9b\u58ec\u7678"


def text(number: int) -> str:
    return f"row word{number:03d} zebra \u8bb0{CJK[number % 10]}{CJK[number // 10 % 10]}\u5fc6"


def assert_what_is_there_is_found(db: SessionDB, raw: RawSql) -> None:
    """Every row by its own words, visible rows by default, all with ``include_inactive``; and nothing more."""
    visible = "(active OR compacted) AND coalesce(display_kind, '') <> 'hidden'"
    for condition, options in ((visible, {}), ("true", {"include_inactive": True})):
        rows = raw(f"SELECT id, content FROM messages WHERE {condition} ORDER BY id")
        said = " ".join(content for _, content in rows if content)
        for number in [n for n in range(60) if f"word{n:03d}" in said] + [5, 59]:
            for query in (f"word{number:03d}", f"\u8bb0{CJK[number % 10]}{CJK[number // 10 % 10]}\u5fc6"):
                assert found(db, query, **options) == [row for row, text in rows if text and query in text], (
                    query
                )
        assert found(db, "zebra", **options) == [row for row, text in rows if text and "zebra" in text]
    assert_in_step(raw)


def fill(db: SessionDB, numbers: range = range(12), session_id: str = "s") -> list[int]:
    db.ensure_session(session_id, "cli")
    roles = [user, assistant]
    batch = [roles[n % 2](text(n)) for n in numbers]
    db.append_messages_batch(session_id, batch)
    return [message["_row_id"] for message in batch]


def clear_all(db: SessionDB, _ids: list[int]) -> None:
    db.clear_messages("s")


def clear_some(db: SessionDB, _ids: list[int]) -> None:
    db.clear_messages("s", keep_last_n=3)


def delete_rows(db: SessionDB, ids: list[int]) -> None:
    db.delete_messages("s", ids[2:5])


def rewind(db: SessionDB, ids: list[int]) -> None:
    db.rewind_to_message("s", ids[6])


def rewind_and_restore(db: SessionDB, ids: list[int]) -> None:
    db.rewind_to_message("s", ids[6])
    db.restore_rewound("s", ids[8])


def compact(db: SessionDB, ids: list[int]) -> None:
    db.archive_and_compact("s", [user(text(20)), user(text(10)), assistant(text(11))], tail_count=2)
    fill(db, range(30, 33))
    db.archive_and_compact("s", [user(text(21))], watermark=ids[-1])


def replace(db: SessionDB, _ids: list[int]) -> None:
    db.replace_messages("s", [user(text(40)), carrier("c"), user(text(2))])


def replace_active(db: SessionDB, _ids: list[int]) -> None:
    db.archive_and_compact("s", [user(text(20))])
    db.replace_messages("s", [user(text(41))], active_only=True)


def replace_archiving(db: SessionDB, _ids: list[int]) -> None:
    db.replace_messages("s", [user(text(0)), assistant(text(1)), user(text(42))], archive_dropped=True)


def edit(db: SessionDB, ids: list[int]) -> None:
    db.set_user_message_content("s", ids[4], text(43))
    db.set_user_message_content("s", ids[6], [{"type": "text", "text": text(44)}])
    db.set_user_message_content("s", ids[8], None)


def rewrite_in_place(db: SessionDB, ids: list[int]) -> None:
    """An append that names a stored row rewrites it."""
    rows: list[dict[str, Any]] = [dict(row) for row in db.get_messages("s")]
    message = {
        "role": "user",
        "content": text(45),
        "_row_id": rows[4]["id"],
        "message_uid": rows[4]["message_uid"],
    }
    db.append_messages_batch("s", [message, user(text(46))])


def continue_and_branch(db: SessionDB, ids: list[int]) -> None:
    db.create_branch("s", "branch", up_to_message_id=ids[3])
    db.publish_continuation("s", "next", [user(text(47))])
    fill(db, range(50, 53), "next")


def delete_session(db: SessionDB, _ids: list[int]) -> None:
    fill(db, range(20, 30), "other")
    db.delete_session("s")


def prune(db: SessionDB, _ids: list[int]) -> None:
    fill(db, range(20, 30), "other")
    db.end_session("s", "user_exit")
    db.prune_sessions(older_than_days=0)


def import_again(db: SessionDB, _ids: list[int]) -> None:
    exported = db.export_all()
    db.delete_session("s")
    db.import_sessions([*exported, {"id": "new", "source": "cli", "messages": [user(text(48))]}])


def failing_batch(db: SessionDB, _ids: list[int]) -> None:
    with pytest.raises(RuntimeError, match="stop"), db.unit_of_work() as uow:  # noqa: PT012
        uow.messages.append_batch("s", [user(text(49))])
        uow.messages.delete("s", _ids[:3])
        raise RuntimeError("stop")


def shrink(db: SessionDB, ids: list[int]) -> None:
    delete_rows(db, ids)
    db.reclaim()
    db.vacuum()


VERBS: list[Callable[[SessionDB, list[int]], None]] = [
    clear_all, clear_some, delete_rows, rewind, rewind_and_restore, compact, replace, replace_active, replace_archiving, edit,
    rewrite_in_place, continue_and_branch, delete_session, prune, import_again, failing_batch, shrink,
]  # fmt: skip


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_after_any_verb_the_rows_are_found_as_they_are(
    search_db: SessionDB, raw: RawSql, verb: Callable[[SessionDB, list[int]], None]
) -> None:
    ids = fill(search_db)
    before = raw("SELECT id, content, active, compacted FROM messages ORDER BY id")
    verb(search_db, ids)
    if verb != failing_batch:
        assert raw("SELECT id, content, active, compacted FROM messages ORDER BY id") != before
    assert_what_is_there_is_found(search_db, raw)
    search_db.rebuild_search_index()
    assert_what_is_there_is_found(search_db, raw)


def test_two_stores_at_once_find_what_the_other_wrote(
    search_db: SessionDB, open_db: OpenDb, raw: RawSql
) -> None:
    other = open_db()
    ids = fill(search_db)
    other.delete_messages("s", ids[:4])
    fill(other, range(20, 24), "t")
    search_db.set_user_message_content("s", ids[6], text(50))
    for db in (search_db, other):
        assert_what_is_there_is_found(db, raw)


@pytest.mark.parametrize("pair", PAIRS)
def test_a_copied_store_is_searched_at_once(
    pair: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with store_urls(pair, request, tmp_path) as (source, target):
        with SessionDB(url=source) as db:
            ids = fill(db)
            compact(db, ids)
            rewind_to = found(db, "word032")
            db.rewind_to_message("s", next(row for row in rewind_to if row in db.get_active_message_ids("s")))
        copy_store(source, target)
        raw = RawSql(target)
        try:
            with SessionDB(url=target) as db:
                assert_what_is_there_is_found(db, raw)
                assert db.search_index_state()["state"] == "on"
                fill(db, range(50, 55))
                assert_what_is_there_is_found(db, raw)
        finally:
            raw.close()


def test_an_adopted_store_is_searched_at_once(store_url: str, raw: RawSql, tmp_path: Path) -> None:
    old = OldStore(tmp_path / "old.db")
    old.session()
    for number in range(12):
        old.message(content=text(number), active=int(number < 9), compacted=int(number in (9, 10)))
    adopt_store(old.path, store_url)
    old.close()
    with SessionDB(url=store_url) as db:
        assert_what_is_there_is_found(db, raw)
        assert db.search_index_state()["state"] == "on"
