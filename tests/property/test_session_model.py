"""Random verbs on one session against a plain list of rows, compared after every step (issue 3)."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from hermes_state import RewindConflictError, SessionDB
from tests.support.builders import Message, assistant, call, checkpoint, reasoning, user
from tests.support.raw import RawSql

LIVE, COMPACTED, REWOUND = (True, False), (False, True), (False, False)
COLUMNS = (
    "id, message_uid, role, content, tool_calls, codex_reasoning_items, active, compacted, superseded_by"
)
_numbers = itertools.count()

texts = st.sampled_from(["a", "b"])
carriers = st.builds(
    lambda text, name, kept: assistant(
        text, codex_reasoning_items=[*([reasoning("r")] if kept else []), checkpoint(name)]
    ),
    texts,
    st.sampled_from(["x", "y", "z"]),
    st.booleans(),
)
callers = st.builds(lambda text, n: assistant(text, tool_calls=[call()] * n), texts, st.integers(1, 2))
fresh_messages = st.one_of(
    st.builds(user, texts), st.builds(user, texts), st.builds(assistant, texts), callers, carriers, carriers
)
batches = st.lists(fresh_messages, min_size=1, max_size=4)


@dataclass(eq=False)
class Row:
    """What one row must hold; ``row_id`` and ``uid`` are ``None`` until the store has chosen them."""

    role: str
    content: str
    calls: Any = None
    items: Any = None
    state: tuple[bool, bool] = LIVE
    is_superseded: bool = False
    row_id: int | None = None
    uid: str | None = None
    successor: Row | None = field(default=None, compare=False, repr=False)

    @property
    def is_live(self) -> bool:
        return self.state == LIVE

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.role, self.content, self.calls)


def row_of(message: Message) -> Row:
    return Row(
        message["role"], message["content"], message.get("tool_calls"), message.get("codex_reasoning_items")
    )


def copy_of(row: Row) -> Row:
    """A live row of its own with the same message: the uid goes with it."""
    return replace(row, state=LIVE, row_id=None)


class Model:
    """The rows of a session in id order, and the same verbs, each in its plainest form."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.rewinds = 0

    @property
    def live(self) -> list[Row]:
        return [row for row in self.rows if row.is_live]

    def strip(self) -> None:
        carriers = [
            row for row in self.live if row.items and any(i["type"] == "compaction" for i in row.items)
        ]
        for row in carriers[:-1]:
            row.items = [item for item in row.items if item["type"] != "compaction"] or None

    def present(self, target: Row) -> Row | None:
        """The row that carries the message on now, unless it was summarised away or deleted."""
        while target.successor is not None:
            target = target.successor
        is_there = any(row is target for row in self.rows)
        return target if is_there and target.state != COMPACTED else None

    def rewind(self, target: Row) -> int:
        gone = [row for row in self.rows[self.rows.index(target) :] if row.is_live]
        for row in gone:
            row.state = REWOUND
        self.rewinds += 1
        return len(gone)

    def restore(self, since: Row) -> int:
        back = [
            row
            for row in self.rows[self.rows.index(since) :]
            if row.state == REWOUND and not row.is_superseded
        ]
        for row in back:
            row.state = LIVE
        return len(back)

    def compact(self, summary: list[Row], tail: list[Row], watermark: int | None) -> None:
        if tail and not summary and tail == self.live:
            return  # the live rows are what they shall be
        late = [
            row
            for row in self.live
            if watermark is not None and (row.row_id or 0) > watermark and row not in tail
        ]
        copies = [copy_of(row) for row in (*tail, *late)]
        for row in self.live:
            row.state = COMPACTED
        for row, copy in zip((*tail, *late), copies, strict=True):
            row.state, row.is_superseded, row.uid, row.successor = REWOUND, True, None, copy
        self.rows += [*summary, *copies]

    def replace_from_the_first_difference(self, messages: list[Row]) -> None:
        live = self.live
        kept = 0
        while kept < min(len(live), len(messages)) and live[kept].key == messages[kept].key:
            kept += 1
        for row in live[kept:]:
            row.state = REWOUND
        self.rows += [replace(row, uid=None) for row in messages[kept:]]


class SessionMachine(RuleBasedStateMachine):
    """Each example works in a session of its own."""

    def __init__(self, db: SessionDB, raw: RawSql) -> None:
        super().__init__()
        self.db, self.raw = db, raw
        self.session_id = db.create_session(f"m{next(_numbers)}", "cli")
        self.model = Model()

    def messages_of(self, wanted: list[Row]) -> list[Any]:
        by_id = {m["id"]: m for m in self.db.get_messages(self.session_id)}
        return [by_id[row.row_id] for row in wanted if row.row_id is not None]

    @rule(batch=batches)
    def append(self, batch: list[Message]) -> None:
        assert self.db.append_messages_batch(self.session_id, [dict(m) for m in batch]) == len(batch)
        self.model.rows += map(row_of, batch)

    @precondition(lambda self: any(row.role == "user" for row in self.model.rows))
    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        target = data.draw(st.sampled_from([row for row in self.model.rows if row.role == "user"]))
        assert target.row_id is not None
        present = self.model.present(target)
        if present is None:
            with pytest.raises(RewindConflictError):
                self.db.rewind_to_message(self.session_id, target.row_id)
            return
        result = self.db.rewind_to_message(self.session_id, target.row_id)
        assert result["rewound_count"] == self.model.rewind(present)
        assert result["new_head_id"] == (self.model.live[-1].row_id if self.model.live else None)

    @precondition(lambda self: self.model.rows)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        since = data.draw(st.sampled_from(self.model.rows))
        assert since.row_id is not None
        assert self.db.restore_rewound(self.session_id, since.row_id) == self.model.restore(since)

    @rule(kept=st.one_of(st.none(), st.integers(0, 6)))
    def clear(self, kept: int | None) -> None:
        left = self.model.live[-kept:] if kept else []
        deleted = self.db.clear_messages(self.session_id, keep_last_n=kept)
        assert deleted == len(self.model.rows) - len(left)
        self.model.rows = left

    @precondition(lambda self: self.model.rows)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        gone = data.draw(st.lists(st.sampled_from(self.model.rows), max_size=3, unique_by=id))
        ids = [row.row_id for row in gone if row.row_id is not None]
        assert self.db.delete_messages(self.session_id, ids) == len(gone)
        self.model.rows = [row for row in self.model.rows if row not in gone]

    @rule(data=st.data(), summary=st.lists(fresh_messages, max_size=2), count=st.integers(0, 3))
    def compact(self, data: st.DataObject, summary: list[Message], count: int) -> None:
        live = self.model.live
        watermarks = st.sampled_from([row.row_id for row in live]) if live else st.just(0)
        watermark = data.draw(st.one_of(st.none(), watermarks))
        tail = live[-count:] if count else []
        compacted = [*map(dict, summary), *self.messages_of(tail)]
        self.db.archive_and_compact(self.session_id, compacted, watermark=watermark, tail_count=len(tail))
        self.model.compact([*map(row_of, summary)], tail, watermark)

    @rule(data=st.data(), batch=batches, active_only=st.booleans())
    def replace(self, data: st.DataObject, batch: list[Message], active_only: bool) -> None:
        kept = self.model.live[: data.draw(st.integers(0, 3))]
        self.db.replace_messages(self.session_id, [*self.messages_of(kept), *map(dict, batch)], active_only)
        stay = [row for row in self.model.rows if active_only and not row.is_live]
        self.model.rows = [*stay, *map(copy_of, kept), *map(row_of, batch)]

    @rule(data=st.data(), batch=st.lists(fresh_messages, max_size=3))
    def replace_from_the_first_difference(self, data: st.DataObject, batch: list[Message]) -> None:
        kept = self.model.live[: data.draw(st.integers(0, 6))]
        messages = [*self.messages_of(kept), *map(dict, batch)]
        self.db.replace_messages(self.session_id, messages, archive_dropped=True)
        self.model.replace_from_the_first_difference([*map(copy_of, kept), *map(row_of, batch)])

    @invariant()
    def the_tables_hold_what_the_model_says(self) -> None:
        self.model.strip()
        stored = self.raw(f"SELECT {COLUMNS} FROM messages WHERE session_id = ? ORDER BY id", self.session_id)
        assert len(stored) == len(self.model.rows)
        for found, row in zip(stored, self.model.rows, strict=True):
            row.row_id, row.uid = row.row_id or found[0], row.uid or found[1]
            assert _decoded(found) == (
                row.row_id, row.uid, row.role, row.content, row.calls, row.items, row.state, row.is_superseded
            )  # fmt: skip

    @invariant()
    def the_counters_are_exact(self) -> None:
        live = self.model.live
        ((messages, calls, rewinds, last_active_at),) = self.raw(
            "SELECT message_count, tool_call_count, rewind_count, last_active_at FROM sessions WHERE id = ?",
            self.session_id,
        )
        assert (messages, rewinds) == (len(live), self.model.rewinds)
        assert calls == sum(len(row.calls or ()) for row in live)
        times = self.raw.column(
            "SELECT timestamp FROM messages WHERE session_id = ? ORDER BY id", self.session_id
        )
        assert last_active_at == (times[-1] if times else None)


def _decoded(found: tuple[Any, ...]) -> tuple[Any, ...]:
    row_id, uid, role, content, calls, items, active, compacted, successor = found
    decoded = (None if text is None else json.loads(text) for text in (calls, items))
    return (row_id, uid, role, content, *decoded, (bool(active), bool(compacted)), successor is not None)


def test_random_verbs_leave_what_the_model_says(db: SessionDB, raw: RawSql) -> None:
    machines = settings(
        max_examples=50,
        stateful_step_count=20,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    make: Any = partial(SessionMachine, db, raw)  # hypothesis only calls it
    run_state_machine_as_test(make, settings=machines)
