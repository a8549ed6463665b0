"""``python -m benchmarks.search [--postgresql URL] [--transcripts DIR] [--messages N]``: what the search costs (issue 5).

Ratios of one run on texts that read like prose, code and tool output; ``DIR`` holds JSON lines files of real transcripts, whose
appends and index are measured too. Prints every figure with its bound; exits 1 when one is missed. PostgreSQL: the URL of a
database of its own, which is emptied.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from benchmarks import texts
from benchmarks.measures import append_ratio, file_bytes_after_checkpoints
from benchmarks.raw import RawPostgresql, RawSqlite, RawStore
from hermes_state import SessionDB
from hermes_state.settings import Settings

CHUNK = 5_000
CJK_SECONDS = 2.0  # a term of two Chinese characters over a million messages; see docs/search.md
Figure = tuple[str, float, float, bool]
Rows = list[tuple[Any, ...]]


class Index:
    """The bare index of a database: its query, its size, its stored rows."""

    def __init__(self, db: SessionDB) -> None:
        self._engine = db.engine
        self.is_sqlite = db.engine.dialect.name == "sqlite"
        if self.is_sqlite:
            self.names = [
                row[0] for row in self.run("SELECT name FROM sqlite_master WHERE sql LIKE '%USING fts5%'")
            ]
        else:
            where = "FROM information_schema.columns WHERE data_type = 'tsvector' AND table_schema = current_schema()"
            ((self._table, self._column),) = self.run(f"SELECT table_name, column_name {where}")
            key = (
                "SELECT column_name FROM information_schema.key_column_usage WHERE table_name = '{}' LIMIT 1"
            )
            ((self._key,),) = self.run(key.format(self._table))

    def run(self, statement: str) -> Rows:
        """All rows of one statement, as the driver gives them."""
        with self._engine.connect() as conn:
            return [
                tuple(row)
                for row in conn.exec_driver_sql(
                    statement.replace("%", "%%" if conn.dialect.name != "sqlite" else "%")
                )
            ]

    def best_hits(self, word: str) -> Rows:
        """The ids of the twenty best rows by the index alone."""
        if self.is_sqlite:
            return self.run(
                f"SELECT rowid FROM messages_fts WHERE messages_fts MATCH '\"{word}\"' ORDER BY rank LIMIT 20"
            )
        rank = f"ts_rank({self._column}, q)"
        return self.run(
            f"SELECT {self._key} FROM {self._table}, CAST('{word}' AS tsquery) AS q WHERE {self._column} @@ q "
            f"ORDER BY {rank} DESC LIMIT 20"
        )

    def bytes(self) -> int:
        """What the index takes on the disk."""
        if self.is_sqlite:
            parts = (
                "messages_fts%",
                "messages_trigram%",
                "message_call_texts%",
                "message_unspaced%",
                "message_search%",
            )
            wanted = " OR ".join(f"name LIKE '{part}'" for part in parts)
            return int(self.run(f"SELECT sum(pgsize) FROM dbstat WHERE {wanted}")[0][0])
        return int(self.run(f"SELECT pg_total_relation_size('{self._table}')")[0][0])

    def rows(self) -> Rows:
        """Whatever would change if something were written to the index."""
        if self.is_sqlite:
            return [
                row
                for name in self.names
                for row in self.run(f"SELECT id, block FROM {name}_data ORDER BY id")
            ]
        return self.run(f"SELECT ctid::text, xmin::text FROM {self._table} ORDER BY 1")


def fill(db: SessionDB, messages: Iterator[texts.Message], *, rows_a_session: int = 400) -> None:
    """Sessions with these messages."""
    for number in itertools.count():
        batch = list(itertools.islice(messages, CHUNK))
        if not batch:
            return
        for start in range(0, len(batch), rows_a_session):
            session_id = db.create_session(f"s{number:04d}-{start:04d}", "bench")
            db.append_messages_batch(session_id, batch[start : start + rows_a_session])


def statements_of(db: SessionDB, work: Callable[[], object]) -> int:
    """How many statements the work sends."""
    seen: list[str] = []

    def note(*arguments: Any) -> None:
        seen.append(arguments[2])

    sa.event.listen(db.engine, "before_cursor_execute", note)
    work()
    sa.event.remove(db.engine, "before_cursor_execute", note)
    return len(seen)


def milliseconds(work: Callable[[], object], times: int = 9) -> float:
    """The median of several runs."""
    return statistics.median(_seconds(work) for _ in range(times)) * 1e3


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def most(what: str, value: float, bound: float) -> Figure:
    """A figure that may be at most the bound."""
    return what, value, bound, value <= bound


def appending(db: SessionDB, raw: RawStore, turns: list[list[texts.Message]]) -> list[Figure]:
    """Turns with the index against the bare driver into the same tables, which keep the same index."""
    makers = [("written", texts.turn)]
    if turns:
        makers.append(("real", lambda number: [dict(message) for message in turns[number % len(turns)]]))
    figures = []
    for name, make in makers:
        ratio = append_ratio(db, raw, make, prefix=name)["ratio"]
        figures.append((f"append of {name} turns over bare driver, at least", ratio, 0.5, ratio >= 0.5))
    return figures


def sizes(db: SessionDB, turns: list[list[texts.Message]]) -> list[Figure]:
    """Bytes of the index for each byte of indexed text, freshly written, into an empty store."""
    figures = []
    for name, made in (
        ("written", [texts.turn(n) for n in range(2_500)]),
        ("real", turns * max(1, 40 * bool(turns))),
    ):
        if not made:
            continue
        _empty(db)
        messages = [dict(message) for turn in made for message in turn]
        fill(db, iter(messages))
        share = Index(db).bytes() / texts.indexed_bytes(messages)
        figures.append(most(f"index over {name} text", share, 1.2))
    return figures


def status_updates(db: SessionDB) -> list[Figure]:
    """Rows of the index that an UPDATE of 3,000 rows writes."""
    _empty(db)
    fill(db, (message for n in range(750) for message in texts.turn(n)))
    before = Index(db).rows()
    with db.engine.begin() as conn:
        conn.exec_driver_sql(
            "UPDATE messages SET active = false, compacted = true, codex_reasoning_items = NULL"
        )
    return [most("index rows written by 3,000 status updates", len(set(Index(db).rows()) ^ set(before)), 0)]


def pages(db: SessionDB, messages: int) -> list[Figure]:
    """A page of twenty hits with contexts against the bare index, for words of three frequencies; Chinese terms."""
    _empty(db)
    fill(db, (texts.short_message(n) for n in range(messages)))
    with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        conn.exec_driver_sql("ANALYZE")
    index, figures = Index(db), []
    for rank in (20, 500, 5_000):
        word = texts.rank_word(rank)
        ours, bare = _taking_turns(lambda w=word: db.search_messages(w), lambda w=word: index.best_hits(w))  # type: ignore[misc]
        figures.append(most(f"page for word {rank} ({ours:.1f} ms) over the bare index", ours / bare, 2))
    count = statements_of(db, lambda: db.search_messages(texts.rank_word(500)))
    figures.append(most("statements of a page", count, 3))
    frequent, seldom = texts.han_term(0), texts.han_term(900)
    for term in (frequent, seldom, frequent[:1], seldom[:1]):
        took = milliseconds(lambda t=term: db.search_messages(t), 3) / 1e3  # type: ignore[misc]
        figures.append(
            most(f"seconds for {len(term)} Chinese characters in {messages:,} messages", took, CJK_SECONDS)
        )
    return figures


def _taking_turns(ours: Callable[[], object], bare: Callable[[], object]) -> tuple[float, float]:
    """Median milliseconds of both, run by run, so that another load on the machine hits both."""
    ours(), bare()
    took = [(_seconds(ours), _seconds(bare)) for _ in range(11)]
    return statistics.median(pair[0] for pair in took) * 1e3, statistics.median(
        pair[1] for pair in took
    ) * 1e3


def _empty(db: SessionDB) -> None:
    with db.engine.begin() as conn:
        conn.exec_driver_sql("DELETE FROM sessions")
    if db.engine.dialect.name == "sqlite":
        db.rebuild_search_index()
        return
    with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        conn.exec_driver_sql("VACUUM FULL")


def measure(db: SessionDB, raw: RawStore, turns: list[list[texts.Message]], messages: int) -> list[Figure]:
    """All figures of one database."""
    figures = sizes(db, turns) + status_updates(db) + appending(db, raw, turns)
    raw.close()
    return figures + pages(db, messages)


def show(name: str, figures: list[Figure]) -> int:
    """Prints them; how many miss their bound."""
    for what, value, bound, is_met in figures:
        print(f"{name}: {what}: {value:.2f} (bound {bound:g}){'' if is_met else '  MISSED'}", flush=True)
    return sum(not figure[3] for figure in figures)


def main() -> int:
    """Measures both databases, as far as they are given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--postgresql", metavar="URL")
    parser.add_argument("--transcripts", metavar="DIR", type=Path)
    parser.add_argument("--messages", type=int, default=1_000_000)
    arguments = parser.parse_args()
    turns = texts.transcripts(arguments.transcripts) if arguments.transcripts else []
    missed = 0
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        size = file_bytes_after_checkpoints(Path(folder) / "checkpoints.db", search_index="on") / 1e6
        missed += show("sqlite", [most("MB after 300 turns with 120 KB checkpoints", size, 4)])
        path = Path(folder) / "bench.db"
        with SessionDB(path) as db:
            raw: RawStore = RawSqlite(str(path), Settings().synchronous)
            missed += show("sqlite", measure(db, raw, turns, arguments.messages))
    if arguments.postgresql:
        with SessionDB(url=arguments.postgresql, migrate=True) as db:
            raw = RawPostgresql(arguments.postgresql.replace("postgresql+psycopg://", "postgresql://"))
            missed += show("postgresql", measure(db, raw, turns, arguments.messages))
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
