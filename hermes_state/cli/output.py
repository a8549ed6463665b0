"""What commands print: data on stdout, everything else on stderr."""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.progress import Progress, ProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

from hermes_state.transfer.readable import printable

_WIDTH_WITHOUT_TERMINAL = 200


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
    try:
        text = _json_text(value, ensure_ascii=False)
    except ValueError:  # a number that is not finite, which JSON does not have
        value = _finite(value)
        text = _json_text(value, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        text = _json_text(value, ensure_ascii=True)
    typer.echo(text)


def _json_text(value: Any, *, ensure_ascii: bool) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=2, allow_nan=False, default=_bytes_as_text)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _bytes_as_text(value: Any) -> Any:
    """JSON has no bytes; another program may have stored them for text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    raise TypeError(f"{type(value).__name__} is no JSON")


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


def progress_bars(*columns: ProgressColumn) -> Progress:
    """Progress on stderr after the task's description: for people at a terminal, and gone at the end."""
    shown = Console(stderr=True, highlight=False)
    described = TextColumn("{task.description}", markup=False)
    return Progress(described, *columns, console=shown, disable=not shown.is_terminal, transient=True)


def console() -> Console:
    """A console on stdout that does not fold lines where a program, not a person, reads them."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=_WIDTH_WITHOUT_TERMINAL)


def shown(value: Any) -> str:
    """A stored value for people: numbers with commas, nothing as empty text, whatever another program put there as it is."""
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, (int, float)) else str(value)


def one_line(text: Any, width: int) -> str:
    """``text`` with blanks collapsed, nothing that steers a terminal, cut to ``width`` characters."""
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= width else f"{flat[: width - 1]}…"


def local_time(epoch: Any) -> str:
    """Epoch seconds as local date and time; the number itself where no calendar reaches."""
    if epoch is None:
        return ""
    try:
        return datetime.fromtimestamp(epoch).astimezone().strftime("%Y-%m-%d %H:%M")
    except (TypeError, OverflowError, ValueError, OSError):  # another program may have stored text there
        return str(epoch)
