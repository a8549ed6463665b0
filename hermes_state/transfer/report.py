"""A store at a glance as one HTML page that loads nothing and runs nothing (issue 4, item 5).

The plots are inline SVG drawn by pygal (extra ``report``); their colours are CSS variables, so they follow the page into
the dark.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from hermes_state.errors import StoreUnavailableError
from hermes_state.records import UsageRecord
from hermes_state.reports import Size, StoreStatistics
from hermes_state.transfer.readable import drawable, printable, size

_MOST_LABEL = 40
# pygal writes a script for tooltips, and comments that name its home page.
_NOT_PLAIN = re.compile(r"<script.*?</script>|<!--.*?-->", re.DOTALL)
_NUMBERS = frozenset(
    ("bytes", "size", "messages", "sessions", "calls", "input", "output", "cache", "estimated $", "actual $")
)


def report_page(statistics: StoreStatistics, store: str) -> str:
    """The page; ``store`` names it for people. Raises ``StoreUnavailableError`` where pygal is not installed."""
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    sections = [
        _section("Size", _sizes(statistics["sizes"])),
        _section("Growth", _growth(statistics)),
        _section("Sessions", _sessions(statistics)),
        _section("Checkpoints", _checkpoints(statistics)),
        _section("Cost", _cost(statistics)),
        _section("Retention", _retention(statistics)),
    ]
    head = _HEAD.replace("TITLE", _html(f"{store}: report"))
    return (
        f"{head}<h1>{_html(store)}</h1>\n<p>{_html(made)}</p>\n{''.join(sections)}</main>\n</body>\n</html>\n"
    )


def bytes_by_table(sizes: Iterable[Size]) -> dict[str, int]:
    """The bytes of each table with its indexes, biggest first."""
    found: dict[str, int] = {}
    for each in sizes:
        found[each.table] = found.get(each.table, 0) + each.size_bytes
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def _sizes(sizes: Sequence[Size]) -> str:
    if not sizes:
        return "<p>This build of SQLite cannot tell the sizes of tables.</p>\n"
    tables = bytes_by_table(sizes)
    rows = [[each.name, each.table, size(each.size_bytes)] for each in sizes]
    total = f"<p>{_html(size(sum(tables.values())))} in all.</p>\n"
    plot = _bars("bytes of tables with their indexes", list(tables), list(tables.values()))
    return total + plot + _folded("every table and index", _table(("name", "table", "size"), rows))


def _growth(statistics: StoreStatistics) -> str:
    days = statistics["days"]
    if not days:
        return "<p>No messages in these days.</p>\n"
    names = [day["day"] for day in days]
    plots = _columns("bytes of text a day", names, [day["text_bytes"] for day in days])
    rows = [[day["day"], f"{day['messages']:,}", size(day["text_bytes"])] for day in days]
    return plots + _folded("every day", _table(("day", "messages", "size"), rows))


def _sessions(statistics: StoreStatistics) -> str:
    sources = ", ".join(f"{name} {count:,}" for name, count in statistics["sessions_by_source"].items())
    states = ", ".join(f"{name} {count:,}" for name, count in statistics["messages"].items())
    rows = [
        [
            each["session_id"],
            each["title"] or "",
            each["source"] or "",
            f"{each['messages']:,}",
            size(each["text_bytes"]),
        ]
        for each in statistics["biggest_sessions"]
    ]
    facts = f"<p>Sessions: {_html(sources or 'none')}.<br>Messages: {_html(states)}.</p>\n"
    return facts + _table(("session", "title", "source", "messages", "size"), rows)


def _checkpoints(statistics: StoreStatistics) -> str:
    found = statistics["checkpoints"]
    plot = _bars("bytes of checkpoints", ["live", "shadowed"], [found["live_bytes"], found["shadowed_bytes"]])
    advice = f"{size(found['shadowed_bytes'])} in {found['shadowed_rows']:,} rows will never be read again"
    hint = "; <code>hermes-state reclaim</code> takes them out" if found["shadowed_rows"] else ""
    return f"{plot}<p>{_html(advice)}{hint}.</p>\n"


def _cost(statistics: StoreStatistics) -> str:
    models, days = statistics["usage_by_model"], statistics["usage_by_day"]
    if not models:
        return "<p>No usage was counted.</p>\n"
    plots = _bars(
        "US dollars by model", [each["model"] or "unknown" for each in models], [_dollars(m) for m in models]
    )
    plots += _columns(
        "US dollars by day (UTC)", [day["day"] for day in days], [_dollars(day) for day in days]
    )
    columns = ("model", "calls", "input", "output", "cache", "estimated $", "actual $")
    return plots + _table(columns, [[each["model"] or "unknown", *_used(each)] for each in models])


def _retention(statistics: StoreStatistics) -> str:
    found = statistics["retention"]
    text = (
        f"Pruning conversations that were not used for {found['days']:g} days would delete {found['sessions']:,} sessions "
        f"with {found['messages']:,} messages."
    )
    return f"<p>{_html(text)}</p>\n"


def _dollars(record: UsageRecord) -> float:
    actual = record["actual_cost_usd"]
    return round(actual if actual is not None else record["estimated_cost_usd"] or 0.0, 6)


def _used(record: UsageRecord) -> list[str]:
    cache = record["cache_read_tokens"] + record["cache_write_tokens"]
    counts = (record["api_call_count"], record["input_tokens"], record["output_tokens"], cache)
    costs = (record["estimated_cost_usd"], record["actual_cost_usd"])
    return [*(f"{count:,}" for count in counts), *("" if cost is None else f"{cost:,.4f}" for cost in costs)]


def _bars(title: str, names: Sequence[str], values: Sequence[float]) -> str:
    shown = [(name, value) for name, value in zip(names, values, strict=True) if value > 0][:12]
    return _plot("HorizontalBar", title, shown[::-1], height=30 + 34 * len(shown))


def _columns(title: str, names: Sequence[str], values: Sequence[float]) -> str:
    return _plot("Bar", title, list(zip(names, values, strict=True)), height=260)


def _plot(kind: str, title: str, points: Sequence[tuple[str, float]], *, height: int) -> str:
    if not points:
        return ""
    pygal, style = _pygal()
    money = "dollars" in title

    def formatted(value: float) -> str:
        return f"{value:,.2f}" if money else size(int(value))

    is_upright = kind == "Bar"
    chart = getattr(pygal, kind)(
        style=style, js=(), height=height, show_legend=False, disable_xml_declaration=True, print_values=False, margin=8,
        x_label_rotation=60 if is_upright else 0, truncate_label=-1, value_formatter=formatted, show_y_guides=is_upright,
        show_x_labels=is_upright, show_x_guides=False,
    )  # fmt: skip
    # Beside a bar its figure is readable at any length of the bar; upright ones have an axis.
    chart.x_labels = [
        _short(name) if is_upright else f"{_short(name)}  {formatted(value)}" for name, value in points
    ]
    chart.add(title, [drawable(value) for _, value in points])
    drawn = _NOT_PLAIN.sub("", chart.render(is_unicode=True))
    return f'<figure role="img" aria-label="{_html(title)}">{drawn}<figcaption>{_html(title)}</figcaption></figure>\n'


def _pygal() -> tuple[Any, Any]:
    finders = list(sys.meta_path)
    try:
        pygal = importlib.import_module("pygal")
        style_of = importlib.import_module("pygal.style").Style
    except ModuleNotFoundError as error:
        raise StoreUnavailableError("pygal is missing: pip install 'hermes-state[report]'") from error
    finally:
        # pygal leaves a finder for its plugins behind, of a kind that makes every later import of the process warn.
        sys.meta_path[:] = finders
    style = style_of(
        background="transparent", plot_background="transparent", foreground="var(--text)", foreground_strong="var(--text)",
        foreground_subtle="var(--faint)", colors=("var(--bar)",), value_colors=("var(--text)",), font_family="inherit",
        label_font_size=14, major_label_font_size=14, value_font_size=14,
    )  # fmt: skip
    return pygal, style


def _section(title: str, body: str) -> str:
    return f"<section>\n<h2>{_html(title)}</h2>\n{body}</section>\n"


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{_html(title)}</summary>\n{body}</details>\n"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    kinds = ["number" if name in _NUMBERS else "text" for name in columns]
    head = "".join(
        f'<th class="{kind}">{_html(name)}</th>' for kind, name in zip(kinds, columns, strict=True)
    )
    lines = [
        "".join(f'<td class="{kind}">{_html(cell)}</td>' for kind, cell in zip(kinds, row, strict=True))
        for row in rows
    ]
    body = "".join(f"<tr>{line}</tr>\n" for line in lines)
    return f'<div class="wide"><table>\n<tr>{head}</tr>\n{body}</table></div>\n'


def _short(text: str) -> str:
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= _MOST_LABEL else f"{flat[: _MOST_LABEL - 1]}…"


def _html(text: str) -> str:
    return escape(printable(text)).encode("utf-8", "replace").decode()


_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="color-scheme" content="light dark">
<title>TITLE</title>
<style>
:root { --text: #1f2328; --page: #ffffff; --faint: #d0d7de; --bar: #0969da; }
@media (prefers-color-scheme: dark) { :root { --text: #f0f6fc; --page: #0d1117; --faint: #3d444d; --bar: #4493f8; } }
body { background: var(--page); color: var(--text); font: 1rem/1.5 system-ui, sans-serif; margin: 0; }
main { max-width: 56rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.25rem; overflow-wrap: anywhere; }
h2 { border-bottom: 1px solid var(--faint); font-size: 1.125rem; margin-top: 2rem; }
figure { margin: 1rem 0; overflow-x: auto; }
figure svg { height: auto; min-width: 36rem; width: 100%; }
figcaption, summary, table { font-size: .875rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--faint); padding: .25rem .5rem; text-align: left; vertical-align: top; }
td.text { max-width: 20rem; min-width: 5rem; overflow-wrap: anywhere; }
th.number, td.number { text-align: right; white-space: nowrap; }
summary { cursor: pointer; }
</style>
</head>
<body>
<main>
"""
