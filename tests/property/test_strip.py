"""CONTRACT.md section 4: the SQL strip equals the Python strip, and no request is changed by it."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from hermes_state import SessionDB, drop_shadowed_checkpoints
from tests.support.builders import assistant, carrier, items_of
from tests.support.raw import RawSql
from tests.support.strategies import checkpoints, item_lists, junk, quick, without_checkpoints

_numbers = itertools.count()
KEY = "codex_reasoning_items"

# Only other programs write such text: escaped names and values, a key twice, white space.
_RAW_ITEMS = [
    '{"\\u0074ype": "compaction"}',
    '{"type": "\\u0063ompaction"}',
    '{"type": "compaction", "type": "reasoning"}',
    '{"type": "reasoning", "type": "compaction"}',
    '{"type": "compaction", "type": null}',
    '{"type": null, "type": "compaction"}',
    '{ "x" : 1e400, "type" : "compaction" }',
    '{"type": "compaction\\u0000x"}',
    '{"type\\u0000": "compaction"}',
    '{"type": "compaction", "x": "\\u0000\\ud800\\\\u0000"}',
    '{"x": "\\u0000", "type": "reasoning"}',
    '"compaction"',
]
items_as_text = st.one_of(
    st.sampled_from(_RAW_ITEMS),
    st.builds(
        lambda value, ascii_only: json.dumps(value, ensure_ascii=ascii_only),
        st.one_of(checkpoints, junk),
        st.just(True),
    ),
)
lists_as_text = st.lists(items_as_text, max_size=5).map(lambda items: f"[{', '.join(items)}]")
columns = st.one_of(
    lists_as_text,
    st.builds(
        json.dumps,
        st.one_of(
            checkpoints, st.just("compaction"), st.none(), st.dictionaries(st.just("compaction"), checkpoints)
        ),
    ),
)


def exact(value: Any) -> str:
    """A form in which all that JSON tells apart differs."""
    return repr(value)


def stripped(text: str) -> Any:
    """What a shadowed row with this column must hold afterwards."""
    value = json.loads(text)
    if not isinstance(value, list) or '"compaction"' not in text:
        return value
    return without_checkpoints(value) if value else value


@quick
@example(texts=[f"[{', '.join(_RAW_ITEMS)}]", f'[{_RAW_ITEMS[7]}, "compaction"]', f"[{_RAW_ITEMS[8]}]"])
@given(texts=st.lists(columns, min_size=1, max_size=4))
def test_rows_of_other_programs_are_stripped_as_python_would(
    db: SessionDB, raw: RawSql, texts: list[str]
) -> None:
    session_id = db.create_session(f"s{next(_numbers)}", "cli")
    for text in texts:
        raw(f"INSERT INTO messages (session_id, role, {KEY}) VALUES (?, 'assistant', ?)", session_id, text)
    db.append_messages_batch(session_id, [carrier("newest")])
    found = items_of(raw, session_id)
    assert list(map(exact, found[:-1])) == [exact(stripped(text)) for text in texts]
    assert found[-1] == carrier("newest")[KEY]


@quick
@given(lists=st.lists(item_lists, min_size=1, max_size=5))
def test_sql_and_python_strip_alike(db: SessionDB, raw: RawSql, lists: list[list[Any]]) -> None:
    session_id = db.create_session(f"s{next(_numbers)}", "cli")
    live = [assistant(str(place), codex_reasoning_items=items) for place, items in enumerate(lists)]
    for message in live:
        db.append_messages_batch(session_id, [dict(message)])
    drop_shadowed_checkpoints(live)
    expected = [message.get(KEY) or None for message in live]
    assert list(map(exact, items_of(raw, session_id))) == list(map(exact, expected))


turns = st.lists(
    st.builds(
        lambda role, content, items: {"role": role, "content": content} | ({KEY: items} if items else {}),
        st.sampled_from(["user", "assistant", "assistant", "tool"]),
        st.sampled_from(["a", "b", "c"]),
        st.one_of(st.just([]), item_lists),
    ),
    min_size=1,
    max_size=8,
)  # fmt: skip


def is_checkpoint(item: Any) -> bool:
    """The word of CONTRACT.md section 1."""
    return isinstance(item, dict) and item.get("type") == "compaction"


def request_of(transcript: list[dict[str, Any]]) -> list[Any]:
    """The request a provider is sent: the last run of checkpoints of the newest carrier and what follows it, and of
    all that stands before the run only the messages of the user."""
    carriers = [i for i, m in enumerate(transcript) if any(map(is_checkpoint, _items(m)))]
    newest = carriers[-1] if carriers else -1
    request: list[Any] = []
    for place, message in enumerate(transcript):
        items = _items(message)
        if place < newest and message["role"] != "user":
            continue
        if place == newest:
            items = items[_start_of_last_run(items):]  # fmt: skip
        request += [*items, (message["role"], message["content"])]
    return request


def _items(message: dict[str, Any]) -> list[Any]:
    return message.get(KEY, []) if message["role"] == "assistant" else []


def _start_of_last_run(items: list[Any]) -> int:
    start = max(place for place, item in enumerate(items) if is_checkpoint(item))
    while start and is_checkpoint(items[start - 1]):
        start -= 1
    return start


@quick
@given(transcript=turns, size=st.integers(1, 4))
def test_no_request_is_changed_by_the_strip(
    db: SessionDB, transcript: list[dict[str, Any]], size: int
) -> None:
    session_id = db.create_session(f"s{next(_numbers)}", "cli")
    for start in range(0, len(transcript), size):
        db.append_messages_batch(session_id, [dict(m) for m in transcript[start : start + size]])
    kept: list[dict[str, Any]] = [dict(m) for m in db.get_messages_as_conversation(session_id)]
    assert exact(request_of(kept)) == exact(request_of(transcript))
    assert sum(any(map(is_checkpoint, _items(m))) for m in kept) <= 1
