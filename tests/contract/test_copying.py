"""A whole store into another database: identical, resumable, marked as long as it is not proved (issue 4, item 2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from hermes_state import (
    InvalidArgumentError,
    SchemaMismatchError,
    SessionDB,
    StoreIncompleteError,
    StoreUnavailableError,
    upgrades,
)
from hermes_state.models import metadata
from hermes_state.transfer import copying
from hermes_state.transfer.completeness import OperationRunningError
from hermes_state.transfer.copying import CopyMismatchError, copy_store
from hermes_state.transfer.filling import TargetNotEmptyError
from tests.contract.test_export import chain
from tests.support.builders import carrier, user
from tests.support.pairs import PAIRS, store_urls
from tests.support.raw import RawSql

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=PAIRS)
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[str]]:
    """The URLs of two empty stores."""
    with store_urls(request.param, request, tmp_path) as found:
        yield found


def fill(url: str, messages: int = 30) -> None:
    """A store with rows in every table, gaps in the ids, and ids that were given out and deleted again."""
    with SessionDB(url=url) as db:
        chain(db)
        db.append_messages_batch(
            "other", [user(f"text {n} é 汉 🙂 \\ \t \n \" ' %") for n in range(messages)]
        )
        db.append_message(
            "other", "assistant", [{"type": "text", "text": "part"}], reasoning="", unknown={"k": -0.0}
        )
        db.append_messages_batch("other", [carrier("c"), user("", token_count=2**62, timestamp=0.1)])
        db.create_session("child", "cli", parent_session_id="other", system_prompt="prompt " * 9)
        db.create_session(
            "aaa before its parent", "cli", parent_session_id="other", system_prompt="prompt " * 9
        )
        db.set_message_reaction("other", db.latest_message_row_id("other") or 0, "👍")
        db.update_token_counts("other", input_tokens=5, model="m", estimated_cost_usd=0.1)
        db.record_auxiliary_usage("other", "title", output_tokens=2**40, model="é")
        db.set_meta("note", "value")
        db.set_meta("empty", None)
        db.try_acquire_compression_lock("other", "me")
        db.create_session("gone", "cli")
        db.append_messages_batch("gone", [user("x"), user("y")])
    raw = RawSql(url)
    raw("DELETE FROM sessions WHERE id = 'gone'")
    raw(
        "UPDATE sessions SET estimated_cost_usd = ?, archived = ?, title = 't' WHERE id = 'a'",
        0.1 + 0.2,
        True,
    )
    raw.close()


def rows_of(url: str, table: str) -> list[tuple[Any, ...]]:
    """Everything in a table, by key; booleans as numbers, as SQLite has them."""
    raw = RawSql(url)
    columns = metadata.tables[table].columns
    names = ", ".join(f'"{column.name}"' for column in columns)
    found = raw(f"SELECT {names} FROM {table}")
    raw.close()
    numbers = {place for place, column in enumerate(columns) if isinstance(column.type, sa.Boolean)}
    plain = [tuple(int(v) if place in numbers else v for place, v in enumerate(row)) for row in found]
    return sorted(plain, key=repr)


def assert_equal(urls: list[str]) -> None:
    for table in metadata.tables:
        assert rows_of(urls[1], table) == rows_of(urls[0], table), table


def test_every_row_of_every_table_arrives_with_its_id(urls: list[str]) -> None:
    fill(urls[0])
    report = copy_store(urls[0], urls[1])
    assert_equal(urls)
    assert {each.table: each.rows for each in report.tables} == {
        table: len(rows_of(urls[0], table)) for table in metadata.tables
    }
    assert len(rows_of(urls[0], "messages")) > 30
    assert (report.notes, report.resumed) == ([], False)


def test_the_copy_is_a_store_like_any_other(urls: list[str]) -> None:
    fill(urls[0])
    copy_store(urls[0], urls[1])
    highest = []
    for url in urls:
        with SessionDB(url=url) as db:
            assert upgrades.check(db.engine) == []
            highest.append(db.append_message("other", "user", "next"))
            db.create_session("new", "cli", parent_session_id="other")
            with db.engine.connect() as conn, pytest.raises(Exception, match=r"(?i)foreign"):
                conn.execute(sa.text("INSERT INTO messages (session_id) VALUES ('nobody')"))
    assert highest[0] == highest[1], "an id was given out twice, or the sequence did not move"
    with SessionDB(url=urls[1]) as db:
        exported = db.export_all()
    with SessionDB(url=urls[0]) as db:
        assert [s["id"] for s in exported] == [s["id"] for s in db.export_all()]
    raw = RawSql(urls[1])
    raw("DELETE FROM sessions WHERE id = 'other'")
    assert raw.value("SELECT count(*) FROM messages WHERE session_id = 'other'") == 0
    assert raw.value("SELECT parent_session_id FROM sessions WHERE id = 'child'") is None
    raw.close()


def test_there_and_back_again_is_identical(urls: list[str], tmp_path: Path) -> None:
    fill(urls[0])
    copy_store(urls[0], urls[1])
    back = f"sqlite:///{tmp_path / 'back.db'}"
    copy_store(urls[1], back)
    assert_equal([urls[0], back])


def test_a_target_that_does_not_exist_is_made_and_the_source_stays_to_the_byte(tmp_path: Path) -> None:
    source, target = tmp_path / "source.db", tmp_path / "new" / "target.db"
    url = f"sqlite:///{source}"
    with SessionDB(url=url), SessionDB(url=url) as held:
        fill(url)
        held.append_message("other", "user", "still in the -wal")
        before = [(tmp_path / name).read_bytes() for name in ("source.db", "source.db-wal")]
        copy_store(source, target)
        assert [(tmp_path / name).read_bytes() for name in ("source.db", "source.db-wal")] == before
    assert_equal([url, f"sqlite:///{target}"])
    assert target.stat().st_mode & 0o777 == 0o600


def test_rows_that_are_written_meanwhile_are_not_of_this_copy(
    urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "BATCH_ROWS", 5)
    fill(urls[0])
    before = {table: rows_of(urls[0], table) for table in metadata.tables}
    with SessionDB(url=urls[0]) as db:

        def write(what: str, table: str, _done: int, _total: int) -> None:
            db.append_message("other", "user", f"{what} {table}")

        copy_store(urls[0], urls[1], on_progress=write)
        assert len(db.get_messages("other")) > 40
    assert {table: rows_of(urls[1], table) for table in metadata.tables} == before


def interrupt(urls: list[str], after: int, error: type[BaseException] = KeyboardInterrupt) -> None:
    """A copy that is given up in this process after so many signs of progress."""
    calls = iter(range(after))

    def stop(*_progress: object) -> None:
        if next(calls, None) is None:
            raise error

    with pytest.raises(error):
        copy_store(urls[0], urls[1], on_progress=stop)


def test_opening_a_complete_store_takes_no_further_statement(urls: list[str]) -> None:
    texts = []
    with SessionDB(url=urls[0]) as db:
        sa.event.listen(db.engine, "before_cursor_execute", lambda *given: texts.append(given[2]))
        with db.engine.connect() as conn:
            upgrades.check_schema(conn)
    assert len([text for text in texts if "PRAGMA" not in text]) == 2


def test_a_target_with_rows_is_refused_and_left_alone(urls: list[str]) -> None:
    fill(urls[0])
    with SessionDB(url=urls[1]) as db:
        db.set_meta("mine", "1")
    with pytest.raises(TargetNotEmptyError) as caught:
        copy_store(urls[0], urls[1])
    assert caught.value.tables == ["state_meta"]
    with SessionDB(url=urls[1]) as db:
        assert db.get_meta("mine") == "1"
    with pytest.raises(TargetNotEmptyError):
        copy_store(urls[0], urls[1], restart=True)


def test_two_copies_into_one_target_do_not_mix(urls: list[str]) -> None:
    fill(urls[0])
    refused: list[bool] = []

    def second(*_progress: object) -> None:
        if not refused:
            for restart in (False, True):
                with pytest.raises(OperationRunningError) as caught:
                    copy_store(urls[0], urls[1], restart=restart)
                refused.append(caught.value.transient)

    copy_store(urls[0], urls[1], on_progress=second)
    assert refused == [True, True]
    assert_equal(urls)


def test_rows_that_somebody_else_wrote_into_the_target_are_found(urls: list[str]) -> None:
    fill(urls[0])
    raw = RawSql(urls[1])

    def write(what: str, table: str, _done: int, _total: int) -> None:
        if table == "sessions":
            raw("INSERT INTO sessions (id) VALUES ('foreign') ON CONFLICT DO NOTHING")

    with pytest.raises(CopyMismatchError) as caught:
        copy_store(urls[0], urls[1], on_progress=write)
    raw.close()
    assert caught.value.table == "sessions"
    assert caught.value.found_rows == caught.value.expected_rows + 1
    with pytest.raises(StoreIncompleteError):
        SessionDB(url=urls[1])
    copy_store(urls[0], urls[1], restart=True)
    assert_equal(urls)


def test_what_is_no_store_is_refused_on_either_side(tmp_path: Path, urls: list[str]) -> None:
    with pytest.raises(StoreUnavailableError):
        copy_store(tmp_path / "absent.db", urls[1])
    foreign = tmp_path / "foreign.db"
    RawSql(f"sqlite:///{foreign}")("CREATE TABLE sessions (x)")
    with pytest.raises(SchemaMismatchError):
        copy_store(foreign, urls[1])
    with pytest.raises(SchemaMismatchError):
        copy_store(urls[0], foreign)
    for url in urls:
        with pytest.raises(InvalidArgumentError):
            copy_store(url, url)
    for pair in (("sqlite://", urls[1]), (urls[0], "sqlite://"), (urls[0], "sqlite:///:memory:")):
        with pytest.raises(InvalidArgumentError, match="memory"):
            copy_store(*pair)
    with SessionDB(url=urls[1]) as db:
        assert db.list_sessions() == []
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "0.db")
    if urls[0].startswith("sqlite"):
        with pytest.raises(InvalidArgumentError):
            copy_store(urls[0], link)


def test_search_tables_of_the_target_are_filled_and_kept_by_their_triggers(tmp_path: Path) -> None:
    source, target = (f"sqlite:///{tmp_path / name}" for name in ("a.db", "b.db"))
    fill(source)
    SessionDB(url=target).close()
    raw = RawSql(target)
    raw("CREATE VIRTUAL TABLE found USING fts5(content, content='messages', content_rowid='id')")
    raw(
        "CREATE TRIGGER keep_found AFTER INSERT ON messages BEGIN "
        "INSERT INTO found (rowid, content) VALUES (new.id, new.content); END"
    )
    before = raw("SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_stat%' ORDER BY name")
    interrupt([source, target], after=4)
    copy_store(source, target)
    assert (
        raw("SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_stat%' ORDER BY name")
        == before
    )
    assert raw.value("SELECT count(*) FROM found WHERE found MATCH 'text'") == 30
    raw("INSERT INTO found (found, rank) VALUES ('integrity-check', 1)")
    with SessionDB(url=target) as db:
        db.append_message("other", "user", "text of later")
    assert raw.value("SELECT count(*) FROM found WHERE found MATCH 'text'") == 31
    raw.close()


def test_an_id_that_another_program_chose_is_not_given_out_again(urls: list[str]) -> None:
    fill(urls[0])
    raw = RawSql(urls[0])
    raw("INSERT INTO messages (id, session_id) VALUES (1000, 'other')")
    raw.close()
    copy_store(urls[0], urls[1])
    with SessionDB(url=urls[1]) as db:
        assert db.append_message("other", "user", "next") == 1001
