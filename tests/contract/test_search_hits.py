"""What a hit holds: its snippet, its neighbours, its session; and what is never a hit (issue 5, items 1 to 4; W9, D7, O)."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

import pytest

from hermes_state import SessionDB
from tests.support.builders import assistant, carrier, checkpoint, user
from tests.support.raw import RawSql
from tests.support.searching import found, marked, plain, say, snippet
from tests.support.statements import QueryRecorder

KEYS = {
    "id", "session_id", "role", "snippet", "timestamp", "tool_name", "source", "model", "session_started", "context",
}  # fmt: skip


def contexts(db: SessionDB, query: str, **options: Any) -> list[tuple[str, str]]:
    """Role and content of the context of the only hit."""
    (hit,) = db.search_messages(query, **options)
    return [(row["role"], row["content"]) for row in hit["context"]]


def test_a_hit_says_what_was_said_when_and_where(search_db: SessionDB, raw: RawSql) -> None:
    search_db.create_session("s", "telegram", model="m-1")
    raw("UPDATE sessions SET started_at = 100.5")
    search_db.append_message("s", "user", "before", timestamp=200.0)
    row = search_db.append_message("s", "tool", "the zebra", tool_name="look", timestamp=300.25)
    (hit,) = search_db.search_messages("zebra")
    assert set(hit) == KEYS
    assert {key: value for key, value in hit.items() if key != "context"} == {
        "id": row, "session_id": "s", "role": "tool", "snippet": "the >>>zebra<<<", "timestamp": 300.25,
        "tool_name": "look", "source": "telegram", "model": "m-1", "session_started": 100.5,
    }  # fmt: skip
    assert hit["context"] == [{"role": "user", "content": "before"}, {"role": "tool", "content": "the zebra"}]
    json.dumps(hit)


def test_a_store_without_messages_has_no_hits(search_db: SessionDB) -> None:
    assert search_db.search_messages("zebra") == []


def test_every_word_is_marked(search_db: SessionDB) -> None:
    say(search_db, "a quick zebra, a slow Zebra and a giraffe")
    assert (
        snippet(search_db, "giraffe zebra") == "a quick >>>zebra<<<, a slow >>>Zebra<<< and a >>>giraffe<<<"
    )
    assert snippet(search_db, "gira*") == "a quick zebra, a slow Zebra and a >>>giraffe<<<"


@pytest.mark.parametrize("place", [0, 1, 50, 498, 499])
def test_a_snippet_of_words_has_at_most_forty_of_them(search_db: SessionDB, place: int) -> None:
    words = [f"w{n}" for n in range(500)]
    words[place] = "zebra"
    say(search_db, " ".join(words))
    text = snippet(search_db, "zebra")
    assert marked(text) == ["zebra"]
    shown = plain(text).split()
    assert 10 <= len(shown) <= 40
    assert shown == words[words.index(shown[0]) :][: len(shown)]
    assert text.startswith("...") == (shown[0] != words[0])
    assert text.endswith("...") == (shown[-1] != words[-1])


def test_a_snippet_shows_a_whole_phrase_at_any_place(search_db: SessionDB) -> None:
    for place in (0, 20, 37, 300, 497):
        words = [f"w{n}" for n in range(500)]
        words[place : place + 3] = ["red", "fox", f"jumps{place}"]
        say(search_db, " ".join(words))
        assert marked(snippet(search_db, f'"red fox jumps{place}"')) == [f"red fox jumps{place}"]


@pytest.mark.parametrize("query", ["\u8bb0\u5fc6\u65ad\u88c2", "\u8bb0\u5fc6", "\u8bb0"])
@pytest.mark.parametrize("place", [0, 3, 500, 996])
def test_a_snippet_of_cjk_has_at_most_120_characters(search_db: SessionDB, query: str, place: int) -> None:
    filler = "\u7684\u4e86\u662f" * 400
    say(search_db, filler[:place] + "\u8bb0\u5fc6\u65ad\u88c2" + filler[place:1000])
    text = snippet(search_db, query)
    assert marked(text) == [query]
    assert 40 <= len(plain(text)) <= 120
    assert plain(text) in filler[:place] + "\u8bb0\u5fc6\u65ad\u88c2" + filler[place:1000]
    assert text.startswith("...") == (place > 200) or place == 3
    assert text.endswith("...") == (place < 996)


def test_marks_and_dots_within_a_text_stay(search_db: SessionDB) -> None:
    say(search_db, ">>> import zebra ... <<< done")
    assert snippet(search_db, "zebra") == ">>> import >>>zebra<<< ... <<< done"


def test_a_snippet_shows_what_was_found_wherever_it_stands(search_db: SessionDB) -> None:
    """In the text, the name of a tool, the name or the arguments of a call."""
    search_db.create_session("s", "cli")
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "giraffe", "arguments": '{"path": "okapi/x"}'},
    }
    search_db.append_message("s", "assistant", "I look", tool_calls=[call])
    search_db.append_message("s", "tool", "nothing here", tool_name="zebra_tool")
    for word in ("giraffe", "okapi", "zebra"):
        assert marked(snippet(search_db, word)) == [word]
    assert marked(snippet(search_db, "okapi/x")) == ["okapi/x"]


def test_a_context_is_the_neighbours_by_id(search_db: SessionDB) -> None:
    """Clocks that run backwards, and rows of other sessions in between, change nothing."""
    for number, name in enumerate(["first", "second", "zebra", "fourth", "fifth"]):
        say(search_db, name, timestamp=1000.0 - number)
        say(search_db, f"other {number}", session_id="t", timestamp=1000.0 - number)
    assert contexts(search_db, "zebra") == [("user", "second"), ("user", "zebra"), ("user", "fourth")]


def test_a_context_ends_with_the_session(search_db: SessionDB) -> None:
    say(search_db, "zebra")
    assert contexts(search_db, "zebra") == [("user", "zebra")]
    say(search_db, "behind")
    assert contexts(search_db, "zebra") == [("user", "zebra"), ("user", "behind")]
    assert contexts(search_db, "behind") == [("user", "zebra"), ("user", "behind")]


def test_a_context_holds_visible_rows_only(search_db: SessionDB) -> None:
    search_db.create_session("s", "cli")
    say(search_db, "far before")
    say(search_db, "scaffolding", display_kind="hidden")
    say(search_db, "zebra")
    say(search_db, "scaffolding again", display_kind="hidden")
    (taken_back,) = say(search_db, "taken back")
    search_db.rewind_to_message("s", taken_back)
    say(search_db, "far behind")
    assert contexts(search_db, "zebra") == [("user", "far before"), ("user", "zebra"), ("user", "far behind")]
    with_rewound = contexts(search_db, "zebra", include_inactive=True)
    assert ("user", "zebra") in with_rewound


def test_a_context_crosses_the_border_of_a_compaction(search_db: SessionDB) -> None:
    say(search_db, "old question", "old zebra")
    search_db.archive_and_compact("s", [user("summary")])
    assert contexts(search_db, "zebra") == [
        ("user", "old question"),
        ("user", "old zebra"),
        ("user", "summary"),
    ]
    assert contexts(search_db, "summary") == [("user", "old zebra"), ("user", "summary")]


def test_a_context_holds_readable_text_of_at_most_200_characters(search_db: SessionDB) -> None:
    search_db.create_session("s", "cli")
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 300}}
    search_db.append_message("s", "user", [{"type": "text", "text": "look"}, image])
    search_db.append_message("s", "user", "zebra " + "x" * 500)
    search_db.append_message("s", "user", "\U0001f642" * 500)
    before, hit, after = contexts(search_db, "zebra")
    assert before == ("user", "look")
    assert hit[1].startswith("zebra xxx")
    assert after[1].startswith("\U0001f642" * 100)
    assert max(len(hit[1]), len(after[1])) <= 200


def test_a_row_without_text_is_a_neighbour(search_db: SessionDB) -> None:
    search_db.create_session("s", "cli")
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    search_db.append_messages_batch("s", [user("zebra"), assistant(None, tool_calls=[call]), user("after")])
    (hit,) = search_db.search_messages("zebra")
    assert [row["role"] for row in hit["context"]] == ["user", "assistant"]
    assert hit["context"][1]["content"] in (None, "")
    (hit,) = search_db.search_messages("look")
    assert [row["role"] for row in hit["context"]] == ["user", "assistant", "user"]


@pytest.mark.parametrize("limit", [1, 20])
@pytest.mark.parametrize("query", ["zebra", "\u8bb0\u5fc6", "\u8bb0", '"a zebra"'])
def test_a_page_is_three_statements(
    search_db: SessionDB, limit: int, query: str, request: pytest.FixtureRequest
) -> None:
    for number in range(25):
        say(search_db, f"before {number}", "a zebra \u8bb0\u5fc6", "after", session_id=f"s{number % 5}")
    search_db.search_messages(query)
    statements = QueryRecorder(search_db.engine)
    hits = search_db.search_messages(query, limit=limit)
    statements.close()
    assert len(hits) == limit
    assert all(len(hit["context"]) >= 2 for hit in hits)
    assert len(statements.texts) <= 3


def noise(length: int) -> str:
    return base64.b64encode(random.Random(length).randbytes(length)).decode()


def test_payloads_of_providers_and_images_are_never_found(search_db: SessionDB) -> None:
    """Checkpoints, reasoning items, base64: not by a piece of them, by no route."""
    search_db.create_session("s", "cli")
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,zebrapng"}}
    reasoning = {"type": "reasoning", "summary": [{"text": "zebrasummary"}]}
    carried = {"type": "compaction", "encrypted_content": "zebracipher"}
    search_db.append_message("s", "user", [{"type": "text", "text": "visible"}, image])
    search_db.append_message(
        "s", "assistant", "visible too", codex_reasoning_items=[reasoning, carried],
        codex_message_items=[{"text": "zebraitem"}], reasoning_details=[{"data": "zebradetail"}],
        api_content="zebraapi", display_metadata={"k": "zebrameta"}, unknown="zebraunknown",
        platform_message_id="zebraplatform", finish_reason="zebrafinish",
    )  # fmt: skip
    assert len(found(search_db, "visible")) == 2
    for text in (
        "zebra*",
        "zebracipher",
        "compaction",
        "encrypted_content",
        "base64",
        "image_url",
        "png",
        "zebrapng",
    ):
        assert found(search_db, text, include_inactive=True) == [], text
    assert found(search_db, "zebra* OR cipher*", include_reasoning=True) == []


def test_large_checkpoints_are_never_found(search_db: SessionDB) -> None:
    search_db.create_session("s", "cli")
    cipher = noise(90_000)
    item = {"type": "compaction", "encrypted_content": f"start {cipher} end"}
    search_db.append_message("s", "assistant", "with it", codex_reasoning_items=[item])
    assert found(search_db, cipher[:300]) == found(search_db, "start") == []
    assert len(found(search_db, "with")) == 1
    search_db.append_messages_batch(
        "s", [carrier("c2"), assistant("x", codex_reasoning_items=[checkpoint("d")])]
    )
    assert found(search_db, "cipher") == []


def test_of_a_tool_call_its_name_and_its_arguments_are_found(search_db: SessionDB) -> None:
    search_db.create_session("s", "cli")
    arguments = {"command": "grep okapi src/app.py", "deep": {"list": ["giraffe", {"k": "\u8bb0\u5fc6"}]}}
    call = {
        "id": "call_zebra",
        "type": "function",
        "function": {"name": "run_shell", "arguments": json.dumps(arguments)},
    }
    row = search_db.append_message("s", "assistant", None, tool_calls=[call])
    for word in (
        "run_shell",
        "shell",
        "okapi",
        "src/app.py",
        "giraffe",
        "\u8bb0\u5fc6",
        "\u8bb0",
        '"grep okapi"',
    ):
        assert found(search_db, word) == [row], word
    for key in (
        "command",
        "deep",
        "list",
        "function",
        "arguments",
        "zebra",
        "call_zebra",
        "type",
        "id",
        "name",
    ):
        assert found(search_db, key) == [], key


@pytest.mark.parametrize(
    "arguments", ["no json: okapi", {"path": "okapi"}, ["okapi"], '["okapi"]', '"okapi"', '{"a": "okapi']
)
def test_arguments_of_any_form_are_found(search_db: SessionDB, arguments: Any) -> None:
    search_db.create_session("s", "cli")
    call = {"id": "c", "function": {"name": "look", "arguments": arguments}}
    row = search_db.append_message("s", "assistant", "text", tool_calls=[call])
    assert found(search_db, "okapi") == found(search_db, "look") == [row]


@pytest.mark.parametrize(
    "calls", [{"a": 1}, [None], [1, "x"], [{}], [{"function": None}], [{"function": {"name": 7}}], 0, 5.5]
)
def test_calls_of_odd_form_are_stored_and_their_text_is_found(search_db: SessionDB, calls: Any) -> None:
    search_db.create_session("s", "cli")
    row = search_db.append_message("s", "assistant", "zebra", tool_calls=calls)
    assert found(search_db, "zebra") == [row]


def test_a_tool_row_is_found_by_its_first_8192_characters(search_db: SessionDB) -> None:
    search_db.create_session("s", "cli")
    text = "zebra " + "\u00e9 " * 4_000 + "okapi "
    text += "x " * ((8_192 - len(text)) // 2) + "giraffe \u8bb0\u5fc6"
    row = search_db.append_message("s", "tool", text, tool_name="cat")
    assert found(search_db, "zebra") == found(search_db, "okapi") == found(search_db, "cat") == [row]
    assert found(search_db, "giraffe") == found(search_db, "\u8bb0\u5fc6") == found(search_db, "\u8bb0") == []
    said = search_db.append_message("s", "user", text)
    assert (
        found(search_db, "giraffe")
        == found(search_db, "\u8bb0\u5fc6")
        == found(search_db, "\u8bb0")
        == [said]
    )
    assert "zebra" in search_db.get_messages("s")[0]["content"]
    assert search_db.get_messages("s")[0]["content"] == text
    say(search_db, "\U0001f642" * 8_190 + " okapi", role="tool")
    assert found(search_db, "okapi") == [row, said]


def test_a_message_of_very_many_words_is_stored_and_its_beginning_is_found(search_db: SessionDB) -> None:
    text = "zebra okapi " + " ".join(f"word{n:06d}" for n in range(120_000))
    (row,) = say(search_db, text)
    (stored,) = search_db.get_messages("s")
    assert stored["content"] == text
    assert (
        found(search_db, "zebra")
        == found(search_db, '"zebra okapi"')
        == found(search_db, "word000100")
        == [row]
    )
    (long,) = say(search_db, "giraffe " + "z" * 3_000_000)
    assert found(search_db, "giraffe") == [long]
    (wide,) = say(search_db, "gnu " + "\u8bb0\u5fc6" * 300_000)
    assert found(search_db, "gnu") == [wide]
    assert found(search_db, "\u8bb0\u5fc6") == [wide]
