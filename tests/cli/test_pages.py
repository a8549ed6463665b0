"""Exports to read: everything that is stored is text on the page (issue 4, item 3)."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest
from markdown_it import MarkdownIt

from hermes_state import SessionDB
from tests.cli.conftest import Run
from tests.support.builders import assistant, call, carrier, user
from tests.support.raw import RawSql

HOSTILE = [
    "<script>alert(1)</script>",
    "</pre></article><img src=x onerror=alert(1)>",
    "```\n</pre>\n# heading\n````\n~~~\n`````text",
    "[link](javascript:alert(1)) ![i](http://example.invalid/x.png) <http://example.invalid>",
    "a & b &lt; c \" d ' e",
    "esc \x1b[31m bidi \u202e override",
    "1. one\n2. two\n\n- - -\n> quote\n\n    code",
]
PIXEL = "data:image/png;base64,iVBORw0KGgo="


class Page(HTMLParser):
    """The elements, attributes and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self.texts.setdefault(tag, []).append("")

    def handle_data(self, data: str) -> None:
        if self.tags:
            self.texts[self.tags[-1]][-1] += data


@pytest.fixture
def talk(db: SessionDB, raw: RawSql) -> str:
    """Session ``<b>id</b>`` with hostile texts wherever a text can stand."""
    session_id = "<b>id</b>"
    db.create_session(session_id, "<i>cli</i>", model="*model*", system_prompt=HOSTILE[2], cwd="/w/`x`")
    raw("UPDATE sessions SET title = ?", "# <u>title</u> [x](y)\nline")
    db.append_messages_batch(session_id, [user(text) for text in HOSTILE])
    db.append_messages_batch(
        session_id,
        [
            assistant("a", reasoning=HOSTILE[0], tool_calls=[call("<f>")]),
            {"role": "tool", "content": HOSTILE[1], "tool_name": "<t>"},
            {"role": "<role>", "content": None},
            user([{"type": "text", "text": HOSTILE[0]}, {"type": "image_url", "image_url": {"url": PIXEL}}]),
            user([{"type": "image_url", "image_url": {"url": "http://example.invalid/x.png"}}]),
            user([{"type": "image_url", "image_url": {"url": PIXEL + '" onerror="x'}}]),
            carrier("c"),
        ],
    )
    return session_id


def test_in_html_every_text_stays_text(run: Run, db: SessionDB, talk: str) -> None:
    text = run("export", talk, "--format", "html").stdout_bytes.decode()
    page = Page(text)
    assert set(page.tags) == {
        "html", "head", "meta", "title", "style", "body", "main", "section", "h2", "dl", "dt", "dd", "article",
        "h3", "pre", "details", "summary", "img",
    }  # fmt: skip
    assert [value for name, value in page.attributes if name == "src"] == [PIXEL]
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    shown = [_shown(text) for text in HOSTILE]
    found = [text.rstrip("\n") for text in page.texts["pre"]]
    assert found[:8] == [shown[2], *shown]
    assert page.texts["h2"] == [f"# <u>title</u> [x](y)\nline ({talk})\n"]
    assert not [value for _, value in page.attributes if "http" in (value or "")]
    assert "default-src 'none'" in text


def test_in_markdown_every_text_stays_text(run: Run, talk: str) -> None:
    text = run("export", talk, "--format", "md").stdout_bytes.decode()
    tokens = MarkdownIt("commonmark").parse(text)
    kinds = {token.type for token in tokens}
    assert kinds <= {
        "heading_open", "heading_close", "inline", "fence", "paragraph_open", "paragraph_close", "bullet_list_open",
        "bullet_list_close", "list_item_open", "list_item_close",
    }  # fmt: skip
    inner = {child.type for token in tokens for child in token.children or []}
    assert inner <= {"text", "text_special"}
    fenced = [token.content.removesuffix("\n") for token in tokens if token.type == "fence"]
    assert fenced[:8] == [_shown(HOSTILE[2]), *map(_shown, HOSTILE)]


def _shown(text: str) -> str:
    return text.replace("\x1b", "\ufffd").replace("\u202e", "\ufffd")


@pytest.mark.parametrize("form", ["md", "html"])
def test_a_page_shows_what_a_display_shows(run: Run, db: SessionDB, form: str) -> None:
    db.create_session("s", "cli")
    db.append_messages_batch("s", [user("early"), user("taken back")])
    last = db.latest_message_row_id("s")
    assert last is not None
    db.rewind_to_message("s", last)
    db.archive_and_compact("s", [user("summary"), user("scaffold", display_kind="hidden")])
    result = run("export", "--all", "--format", form)
    text = result.stdout_bytes.decode()
    assert [word in text for word in ("early", "summary", "taken back", "scaffold")] == [
        True,
        True,
        False,
        False,
    ]
    assert text.count("summarised away") == 1
    assert "1 sessions with 2 messages" in result.stderr


@pytest.mark.parametrize("form", ["md", "html"])
def test_rows_of_other_programs_and_lone_surrogates_do_not_stop_a_page(
    run: Run, db: SessionDB, raw: RawSql, form: str, backend: str
) -> None:
    db.create_session("s", "cli")
    details: Any = [{"type": "x", "text": "\ud800"}]
    db.append_messages_batch("s", [user("q"), assistant("a", codex_reasoning_items=details)])
    raw("UPDATE messages SET timestamp = ?", 1e300)
    if backend == "sqlite":
        raw("UPDATE messages SET timestamp = 'yesterday', content = x'ff6869', tool_calls = '[oops'")
        raw("UPDATE sessions SET started_at = 'soon', title = x'ff', model = 7")
    assert "q" in run("export", "--all", "--format", form).stdout or backend == "sqlite"


def test_an_empty_store_is_an_empty_page(run: Run, db: SessionDB) -> None:
    text = run("export", "--all", "--format", "html").stdout
    assert text.startswith("<!DOCTYPE html>")
    assert text.endswith("</html>\n")
    assert Page(text).texts.get("section") is None
