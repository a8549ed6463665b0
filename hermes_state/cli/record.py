"""``record``: transcripts into a store, turn by turn (issue 2, item 7)."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from hermes_state.cli.output import print_json, print_table, progress_bars
from hermes_state.cli.target import Target, target_of
from hermes_state.store import SessionDB
from hermes_state.transfer.readable import printable, size
from hermes_state.transfer.transcripts import (
    SMALLEST_CHECKPOINT_BYTES,
    RecordReport,
    read_transcript,
    record_transcript,
    split_turns,
)

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        readable=True,
        help="Transcripts: one JSON message a line, one JSON list of messages, or one chat of OpenAI's or ShareGPT's kind.",
    ),
]
Session = Annotated[
    str | None,
    typer.Option("--session", metavar="ID", help="Session to record into (default: the file's stem)."),
]
CheckpointBytes = Annotated[
    int | None,
    typer.Option(
        "--checkpoint-bytes",
        metavar="N",
        min=SMALLEST_CHECKPOINT_BYTES,
        help="For demonstration: add a synthetic checkpoint of N bytes to the last answer of every turn.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON.")]

COLUMNS = ("session", "messages", "new", "turns", "written", "check-\npoints", "kept", "saved")


def add_to(app: typer.Typer) -> None:
    """Adds ``record`` to ``app``."""
    app.command()(record)


def record(
    context: typer.Context,
    files: Files,
    session: Session = None,
    checkpoint_bytes: CheckpointBytes = None,
    as_json: AsJson = False,
) -> None:
    """Record transcripts turn by turn. What a session holds already is not written again."""
    if session is not None and len(files) > 1:
        raise typer.BadParameter("--session takes one file: the messages of several would be mixed")
    target = target_of(context)
    reports: list[RecordReport] = []
    try:
        with target.store(creates=True) as db:
            _record_all(db, files, session, checkpoint_bytes, reports)
    finally:
        # The files before a bad one are recorded, so they are reported too.
        _print(reports, target, as_json)


def _record_all(
    db: SessionDB,
    files: list[Path],
    session: str | None,
    checkpoint_bytes: int | None,
    reports: list[RecordReport],
) -> None:
    with (
        progress_bars(
            BarColumn(), MofNCompleteColumn(), TextColumn("turns"), TimeElapsedColumn()
        ) as progress,
        _said_here(),
    ):
        bar = progress.add_task("", total=None)
        for number, path in enumerate(files, start=1):
            transcript = read_transcript(path)
            progress.reset(
                bar,
                description=f"{number}/{len(files)} {printable(path.name)}",
                total=len(split_turns(transcript.messages)),
            )
            report = record_transcript(
                db,
                transcript,
                session,
                checkpoint_bytes=checkpoint_bytes,
                on_turn=lambda: progress.advance(bar),
            )
            for line in _oddities(report):
                # Through the bar's own console, which makes room for the line.
                progress.console.print(Text(printable(line)), soft_wrap=True)
            reports.append(report)


@contextmanager
def _said_here() -> Iterator[None]:
    """The flusher logs what it could not store; here that is said once, as a note or as the error."""
    flusher = logging.getLogger("hermes_state.agent")
    flusher.addFilter(_nothing)
    try:
        yield
    finally:
        flusher.removeFilter(_nothing)


def _nothing(_record: logging.LogRecord) -> bool:
    return False


def _oddities(report: RecordReport) -> Iterator[str]:
    if report.new_messages == 0:
        yield f"{report.path}: already recorded in session {report.session_id!r}"
    for value in report.refused:
        yield f"{report.path}: message {value.message}, key {value.key!r}: {value.reason}; kept as text"


def _print(reports: list[RecordReport], target: Target, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "store": target.shown,
                "file_bytes": _file_bytes(target),
                "sessions": [asdict(r) for r in reports],
            }
        )
        return
    rows = [_row(asdict(report)) for report in reports]
    if len(rows) > 1:
        rows.append(_row(_total(reports)))
    if rows:
        print_table(COLUMNS, rows, numbers=COLUMNS[1:])
        file_bytes = _file_bytes(target)
        typer.echo(f"{target.shown}{'' if file_bytes is None else f': {size(file_bytes)}'}")


def _row(report: dict[str, Any]) -> list[str]:
    counts = [f"{report[key]:,}" for key in ("messages", "new_messages", "turns")]
    sizes = ("bytes_written", "checkpoint_bytes", "checkpoint_bytes_kept", "checkpoint_bytes_saved")
    return [report["session_id"], *counts, *(size(report[key]) for key in sizes)]


def _total(reports: list[RecordReport]) -> dict[str, Any]:
    numbers = [{k: v for k, v in asdict(report).items() if isinstance(v, int)} for report in reports]
    return {"session_id": "total"} | {key: sum(each[key] for each in numbers) for key in numbers[0]}


def _file_bytes(target: Target) -> int | None:
    if target.file is None:
        return None
    parts = [target.file, Path(f"{target.file}-wal")]
    return sum(os.stat(part).st_size for part in parts if part.exists())
