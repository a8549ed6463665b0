"""What commands print: data on stdout, everything else on stderr."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

_WIDTH_WITHOUT_TERMINAL = 200
# Stored text is not ours: escape sequences in it would steer the terminal.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def tolerate_any_text() -> None:
    """Makes characters that the terminal's encoding lacks print as ``?`` instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def note(text: str) -> None:
    """A note for people, on stderr."""
    typer.echo(text, err=True)


def print_json(value: Any) -> None:
    """``value`` as JSON on stdout; escaped to ASCII where stdout, or a lone surrogate, needs that."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        text = json.dumps(value, indent=2)
    typer.echo(text)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[str] = ()
) -> None:
    """A table on stdout; the columns named in ``numbers`` are aligned to the right."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    right = set(numbers)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console().print(table)


def console() -> Console:
    """A console on stdout that does not fold lines where a program, not a person, reads them."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=_WIDTH_WITHOUT_TERMINAL)


def printable(text: str) -> str:
    """``text`` without control and direction characters; line feeds and tabs stay."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def one_line(text: str, width: int) -> str:
    """``text`` with blanks collapsed, cut to ``width`` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= width else f"{flat[: width - 1]}…"


def local_time(epoch: Any) -> str:
    """Epoch seconds as local date and time; the number itself where no calendar reaches."""
    if epoch is None:
        return ""
    try:
        return datetime.fromtimestamp(epoch).astimezone().strftime("%Y-%m-%d %H:%M")
    except (TypeError, OverflowError, ValueError, OSError):  # another program may have stored text there
        return str(epoch)


def size(count: int) -> str:
    """A number of bytes for people: ``17 B``, ``117 KiB``, ``3.4 MiB``."""
    if count < 1024:
        return f"{count} B"
    value, units = count / 1024, iter(("KiB", "MiB", "GiB"))
    unit = next(units)
    while value >= 1024 and unit != "GiB":
        value, unit = value / 1024, next(units)
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}"
