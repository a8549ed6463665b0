"""The Python twin of the strip (CONTRACT.md sections 1, 4 and 5)."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from hermes_state.checkpoints import drop_shadowed_checkpoints, is_checkpoint, newest_carrier, strip_items
from tests.support.builders import assistant, carrier, checkpoint, reasoning, user

KEY = "codex_reasoning_items"
ONE = [reasoning(), checkpoint()]
FORMS: list[Any] = [
    ONE,
    tuple(ONE),
    json.dumps(ONE),
    json.dumps(json.dumps(ONE)),
    json.dumps(ONE).replace("comp", "\\u0063omp"),
]
NO_CARRIERS: list[Any] = [
    user(codex_reasoning_items=ONE),
    assistant(codex_reasoning_items=[reasoning()]),
    assistant(codex_reasoning_items=[]),
    assistant(codex_reasoning_items=None),
    assistant(codex_reasoning_items=["compaction", None, 1, [checkpoint()], {"deep": checkpoint()}]),
    assistant(
        codex_reasoning_items=[{"type": ["compaction"]}, {"type": "Compaction"}, {"type": "compaction\0"}]
    ),
    assistant(codex_reasoning_items=checkpoint()),
    assistant(codex_reasoning_items='[{"type": "compaction"}'),
    assistant(codex_reasoning_items="[" * 100_000),
    assistant(codex_reasoning_items=5),
    assistant(codex_reasoning_items=ONE, active=False),
    assistant(codex_reasoning_items=ONE, active=0),
    {"role": "Assistant", KEY: ONE},
    {KEY: ONE},
    None,
    "compaction",
    [checkpoint()],
    5,
]


@pytest.mark.parametrize(
    ("item", "expected"),
    [({"type": "compaction"}, True), ({"type": "compaction", "x": 1}, True), ({"type": None}, False),
     ({"kind": "compaction"}, False), ("compaction", False), (None, False), ([{"type": "compaction"}], False)],
)  # fmt: skip
def test_only_a_dict_whose_own_type_is_compaction_is_a_checkpoint(item: Any, expected: bool) -> None:
    assert is_checkpoint(item) is expected


def test_stripping_keeps_order_and_everything_else() -> None:
    odd = [None, checkpoint("a"), "compaction", reasoning(), {"deep": checkpoint()}, checkpoint("b"), 1]
    assert strip_items(odd) == [None, "compaction", reasoning(), {"deep": checkpoint()}, 1]
    assert strip_items([checkpoint(), checkpoint()]) is None


@pytest.mark.parametrize("message", NO_CARRIERS, ids=lambda m: str(m)[:40])
def test_what_is_no_carrier_neither_shadows_nor_changes(message: Any) -> None:
    before = copy.deepcopy(message)
    assert newest_carrier([message]) is None
    assert drop_shadowed_checkpoints([message, carrier("b")]) == []
    assert drop_shadowed_checkpoints([carrier("a"), message]) == []
    assert message == before


@pytest.mark.parametrize("items", FORMS, ids=["list", "tuple", "text", "text twice", "escaped text"])
def test_every_form_that_is_stored_as_a_carrier_counts(items: Any) -> None:
    older = assistant(codex_reasoning_items=items)
    assert newest_carrier([older]) == 0
    assert drop_shadowed_checkpoints([older, carrier("b")]) == [0]
    assert older[KEY] == [reasoning()]


def test_all_but_the_newest_carrier_lose_their_checkpoints_in_place() -> None:
    messages = [carrier("a", reasoning()), user(), carrier("b"), carrier("c", checkpoint("c1")), assistant()]
    newest = copy.deepcopy(messages[3])
    assert drop_shadowed_checkpoints(messages) == [0, 2]
    assert messages[0][KEY] == [reasoning()]
    assert KEY not in messages[2]
    assert messages[3] == newest


def test_a_second_run_rewrites_nothing() -> None:
    messages = [carrier("a"), carrier("b")]
    drop_shadowed_checkpoints(messages)
    assert drop_shadowed_checkpoints(messages) == []


@pytest.mark.parametrize(
    ("before", "rewritten"),
    [(None, [0, 1]), (0, []), (1, [0]), (2, [0, 1]), (3, [0, 1, 2]), (99, [0, 1, 2]), (-1, [])],
)
def test_before_names_the_message_that_shadows_the_others(before: int | None, rewritten: list[int]) -> None:
    messages = [carrier("a"), carrier("b"), carrier("c"), user()]
    assert drop_shadowed_checkpoints(messages, before=before) == rewritten


def test_the_given_item_lists_are_not_changed() -> None:
    items = [reasoning(), checkpoint()]
    drop_shadowed_checkpoints([assistant(codex_reasoning_items=items), carrier("b")])
    assert items == [reasoning(), checkpoint()]


def test_nothing_at_all_is_fine() -> None:
    assert drop_shadowed_checkpoints([]) == []
    assert newest_carrier([]) is None
