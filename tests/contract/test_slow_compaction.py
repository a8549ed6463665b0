"""Several processes append while another one compacts slowly, again and again (issue 3; field reports F, G, I)."""

from __future__ import annotations

import multiprocessing
import time

from hermes_state import SessionDB
from tests.support.builders import assert_counters_are_exact, caller, carrier, user
from tests.support.raw import RawSql

SPAWN = multiprocessing.get_context("spawn")
TURNS, COMPACTIONS = 12, 6


def append_turns(url: str, name: str) -> None:
    with SessionDB(url=url) as db:
        for number in range(TURNS):
            db.append_messages_batch(
                "s", [user(f"{name}-{number}"), caller("x", "y"), carrier(f"{name}-{number}")]
            )
            time.sleep(0.01)


def compact_slowly(url: str) -> None:
    with SessionDB(url=url) as db:
        for number in range(COMPACTIONS):
            assert db.try_acquire_compression_lock("s", "compactor")
            watermark = db.get_active_message_watermark("s")
            tail = [m for m in db.get_messages("s") if m["id"] <= watermark][-3:]
            time.sleep(0.05)  # the summary is written meanwhile
            db.archive_and_compact(
                "s",
                [user(f"summary {number}"), *tail],
                watermark=watermark,
                lock_holder="compactor",
                tail_count=len(tail),
            )
            db.release_compression_lock("s", "compactor")


def test_nothing_is_lost_nor_found_twice(db: SessionDB, session: str, store_url: str, raw: RawSql) -> None:
    names = ("a", "b", "c")
    processes = [SPAWN.Process(target=append_turns, args=(store_url, name)) for name in names]
    processes.append(SPAWN.Process(target=compact_slowly, args=(store_url,)))
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * 4
    compact_slowly(store_url)  # also with nobody else there
    visible = raw("SELECT content FROM messages WHERE active OR compacted ORDER BY id")
    for name in names:
        sent = [content for (content,) in visible if content is not None and content.startswith(f"{name}-")]
        assert sent == [f"{name}-{number}" for number in range(TURNS)]
    answers = raw("SELECT count(*) FROM messages WHERE (active OR compacted) AND role = 'assistant'")
    assert answers == [(2 * TURNS * len(names),)]
    assert_counters_are_exact(raw)
    live = raw(
        "SELECT codex_reasoning_items FROM messages WHERE active AND codex_reasoning_items IS NOT NULL"
    )
    assert len(live) == 1
    uids = raw("SELECT message_uid FROM messages WHERE active OR compacted")
    assert len(uids) == len(set(uids))
