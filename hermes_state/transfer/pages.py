"""Conversations as pages to read: Markdown, and one self-contained HTML file.

What a page shows is what a display shows: live messages and those that were summarised away, marked as such; not what was
taken back, nor scaffolding. Everything that is stored is text here: nothing in a message becomes markup, a link
that is loaded, or a script. Pictures are shown only where the message itself holds them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from html import escape
from typing import Any

from hermes_state.transfer.readable import call_texts, checkpoint_note, pictures, printable, readable

_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
_BACKTICKS = re.compile("`+")
_ROLES = frozenset(("user", "assistant", "tool", "system"))
_FACTS = ("source", "model", "started_at", "ended_at", "end_reason", "parent_session_id", "cwd")


def is_shown(message: Mapping[str, Any]) -> bool:
    """Whether a page shows the message."""
    return bool(message["active"] or message["compacted"]) and message["display_kind"] != "hidden"


class MarkdownPage:
    """A page in Markdown. Texts stand in fences longer than any run of backticks in them."""

    def begin(self, title: str) -> str:
        """The top of the page."""
        return f"# {_escaped(title)}\n"

    def session(self, head: Mapping[str, Any]) -> str:
        """The heading of a session and what is known of it."""
        facts = "".join(f"- {_escaped(words)}: {_escaped(value)}\n" for words, value in _facts(head))
        prompt = f"\nsystem prompt:\n{_fenced(head['system_prompt'])}" if head["system_prompt"] else ""
        return f"\n## {_escaped(_name(head))}\n\n{facts}{prompt}"

    def message(self, message: Mapping[str, Any]) -> str:
        """One message."""
        parts = [f"\n### {_escaped(' · '.join(_heading(message)))}\n"]
        for label, text in _blocks(message):
            parts.append(f"\n{label}:\n" if label else "")
            parts.append(_fenced(text))
        return "".join(parts)

    def end_session(self) -> str:
        """What follows the last message of a session."""
        return ""

    def end(self) -> str:
        """The foot of the page."""
        return ""


class HtmlPage:
    """A page in HTML that loads nothing and runs nothing, light and dark, readable on a phone."""

    def begin(self, title: str) -> str:
        """The top of the page."""
        return _HEAD.replace("TITLE", _html(title))

    def session(self, head: Mapping[str, Any]) -> str:
        """The heading of a session and what is known of it."""
        facts = "".join(f"<dt>{_html(words)}</dt><dd>{_html(value)}</dd>" for words, value in _facts(head))
        prompt = _folded("system prompt", head["system_prompt"]) if head["system_prompt"] else ""
        return f"<section>\n<h2>{_html(_name(head))}</h2>\n<dl>{facts}</dl>\n{prompt}"

    def message(self, message: Mapping[str, Any]) -> str:
        """One message."""
        role = message["role"] if message["role"] in _ROLES else "other"
        state = " compacted" if message["compacted"] else ""
        shown = [f'<article class="{role}{state}">\n<h3>{_html(" · ".join(_heading(message)))}</h3>\n']
        for label, text in _blocks(message):
            shown.append(_folded(label, text) if label else f"<pre>{_html(text)}</pre>\n")
        shown += [f'<img alt="" src="{_html(url)}">\n' for url in pictures(message["content"])]
        return "".join([*shown, "</article>\n"])

    def end_session(self) -> str:
        """What follows the last message of a session."""
        return "</section>\n"

    def end(self) -> str:
        """The foot of the page."""
        return "</main>\n</body>\n</html>\n"


def _name(head: Mapping[str, Any]) -> str:
    title = head["title"]
    return f"{title} ({head['id']})" if title else str(head["id"])


def _facts(head: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key in _FACTS:
        if head[key] is not None:
            value = _time(head[key]) if key.endswith("_at") else str(head[key])
            yield key.removesuffix("_at").removesuffix("_session_id").replace("_", " "), value


def _heading(message: Mapping[str, Any]) -> Iterator[str]:
    yield str(message["role"])
    if message["tool_name"]:
        yield str(message["tool_name"])
    if message["compacted"]:
        yield "summarised away"
    yield _time(message["timestamp"])


def _blocks(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What a message says, in the order to read it, each text with its label; the content has none."""
    thinking = message["reasoning_content"] or message["reasoning"]
    if thinking:
        yield "reasoning", str(thinking)
    if content := readable(message["content"]):
        yield "", content
    for call in call_texts(message):
        yield "tool call", call
    if (found := checkpoint_note(message)) is not None:
        yield "checkpoint", found


def _time(epoch: Any) -> str:
    try:
        return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (TypeError, OverflowError, ValueError, OSError):  # another program may have stored text there
        return str(epoch)


def _folded(label: str, text: str) -> str:
    return f"<details><summary>{_html(label)}</summary><pre>{_html(text)}</pre></details>\n"


def _html(text: str) -> str:
    return escape(printable(text).encode(errors="replace").decode())


def _escaped(text: str) -> str:
    """Text on one line of Markdown, every character standing for itself."""
    return _PUNCTUATION.sub(r"\\\1", " ".join(printable(text).split()))


def _fenced(text: str) -> str:
    clean = printable(text)
    longest = max((len(run) for run in _BACKTICKS.findall(clean)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"\n{fence}text\n{clean}\n{fence}\n"


_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="color-scheme" content="light dark">
<title>TITLE</title>
<style>
:root { --line: #d0d7de; --soft: #f6f8fa; --user: #0969da; --assistant: #1a7f37; --tool: #9a6700; --system: #6e7781; }
@media (prefers-color-scheme: dark) {
  :root { --line: #3d444d; --soft: #161b22; --user: #4493f8; --assistant: #3fb950; --tool: #d29922; --system: #9198a1; }
}
body { font: 1rem/1.5 system-ui, sans-serif; margin: 0; }
main { max-width: 52rem; margin: 0 auto; padding: 1rem; }
h2 { overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; font-size: .875rem; }
dd { margin: 0; max-height: 12rem; overflow: auto; overflow-wrap: anywhere; white-space: pre-wrap; }
article { border-left: .25rem solid var(--line); margin: 1rem 0; padding: 0 0 0 .75rem; }
article.user { border-color: var(--user); }
article.assistant { border-color: var(--assistant); }
article.tool { border-color: var(--tool); }
article.system { border-color: var(--system); }
article.compacted { opacity: .65; }
h3 { font-size: .875rem; margin: 0; }
pre { font: inherit; margin: .25rem 0; overflow-wrap: anywhere; white-space: pre-wrap; }
details pre, article.tool pre {
  background: var(--soft); font: .8125rem/1.45 ui-monospace, monospace; max-height: 30rem; overflow: auto; padding: .5rem;
}
summary { cursor: pointer; font-size: .875rem; }
img { max-width: 100%; }
</style>
</head>
<body>
<main>
"""
