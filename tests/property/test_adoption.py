"""Whatever an older store holds, adopting it succeeds, and both databases get the same (CONTRACT.md section 1)."""

from __future__ import annotations

import json
import math
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from hermes_state import SessionDB
from hermes_state.transfer.adoption import adopt_store
from tests.support.older_stores import START, OldStore
from tests.support.raw import RawSql

ODD: list[Any] = [
    None, 0, 1, 2, -1, 2**62, -(2**63), 2**63 - 1, 1.5, math.inf, -math.inf, 1e300, -0.0, START, "abc", "", "5", "-5", "1e400",
    " 7 ", "nan", "\0", "a\0b", b"\xff", b"", b"\0json:[1]", '"x"', '""', "[]", "{}", "null", "[1,NaN]", "[1e999]", '{"a":1}',
    json.dumps(json.dumps({"a": [1]})), json.dumps(json.dumps(json.dumps([1]))), '\0json:[1,"\\ud800"]', "\0json:{",
    '\0json:"s"', "x" * 600, '[{"type":"compaction","x":1}]', '[{"type":"compaction"},{"type":"r"}]', "[" * 400 + "]" * 400,
    '{"_branched_from":1}', '{"_delegate_from":"s1"}', '{"a\\u0000":1,"a\\ufffd":2}', '[{"id":"\\ud83d\\ude00"}]',
    "assistant", "compression", "tool", "s0", "s1", "s2",
]  # fmt: skip
TABLES = {
    "sessions": "id, source, title, model_config, parent_session_id, kind, root_session_id, started_at, ended_at, message_count, "
    "tool_call_count, last_active_at, input_tokens, estimated_cost_usd, session_key, system_prompt_hash",
    "messages": "id, session_id, message_uid, role, content, content_parts, tool_calls, timestamp, token_count, reasoning, "
    "codex_reasoning_items, platform_message_id, extra",
    "state_meta": "key, value",
    "system_prompts": "hash, prompt",
    "session_model_usage": "session_id, model, task, input_tokens, first_seen",
    "session_daily_usage": "session_id, day, input_tokens, last_seen",
}


class OddStore(OldStore):
    """Rows of odd values; what the older schema itself refuses is not there."""

    def fill(self, chance: random.Random) -> None:
        """Some sessions, messages, notes and usage."""
        self.conn.execute("PRAGMA foreign_keys = OFF")
        for number in range(6):
            own = chance.choice([f"s{number}", f"s{number}", chance.choice(ODD)])
            self._try("sessions", {"id": own, "source": "cli", "started_at": START}, chance)
        for number in range(25):
            session_id = chance.choice(["s0", "s1", "s2", chance.choice(ODD)])
            role = chance.choice(["user", "assistant", "tool"])
            self._try(
                "messages", {"session_id": session_id, "role": role, "timestamp": START + number}, chance
            )
        for _ in range(4):
            self._try("state_meta", {}, chance)
            self._try("session_model_usage", {"session_id": "s0"}, chance)
            self._try("session_daily_usage", {"session_id": "s1"}, chance)
        self.conn.execute("UPDATE messages SET content = CAST(x'61ff62' AS TEXT) WHERE id % 7 = 1")

    def _try(self, table: str, values: dict[str, Any], chance: random.Random) -> None:
        names = [row[1] for row in self.conn.execute(f"PRAGMA table_info({table})") if row[1] != "id"]
        odd = {name: chance.choice(ODD) for name in chance.sample(names, chance.randint(0, len(names)))}
        try:
            self._insert(table, {**values, **odd} or {"key": "k"})
        except sqlite3.IntegrityError:
            self.refused = True


def everything(url: str) -> dict[str, list[tuple[Any, ...]]]:
    raw = RawSql(url)
    found = {table: sorted(raw(f"SELECT {names} FROM {table}"), key=repr) for table, names in TABLES.items()}
    raw.close()
    return found


@pytest.mark.postgres
@pytest.mark.parametrize("seed", range(8))
def test_odd_stores_are_adopted_whole_and_equally_on_both_databases(
    seed: int, tmp_path: Path, fresh_postgres_url: str
) -> None:
    chance = random.Random(seed)
    old = OddStore(tmp_path / "old.db", chance.choice([22, 25, 31]))
    old.fill(chance)
    (messages,) = old.conn.execute("SELECT count(*) FROM messages").fetchone()
    (sessions,) = old.conn.execute("SELECT count(*) FROM sessions").fetchone()
    target = f"sqlite:///{tmp_path / 'new.db'}"
    for url in (target, fresh_postgres_url):
        report = adopt_store(old.path, url)
        assert report.messages == messages
        assert report.sessions >= sessions
    old.close()
    assert everything(target) == everything(fresh_postgres_url)
    with SessionDB(url=target) as db:
        for session in db.export_all():
            rows = db.get_messages(session["id"])
            assert session["message_count"] == len(rows)
