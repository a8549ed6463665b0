"""``export`` and ``import``: sessions out of a store into a file, and out of a file into a store (issue 4, item 3)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from hermes_state.cli.output import note, print_json, progress_bars
from hermes_state.cli.sessions import UnknownSessionError
from hermes_state.cli.target import target_of
from hermes_state.records import ImportReport
from hermes_state.store import SessionDB
from hermes_state.transfer.exports import ExportCount, write_json_lines, write_page
from hermes_state.transfer.files import written
from hermes_state.transfer.imports import MAX_LINE_BYTES, ImportRefusedError, import_file
from hermes_state.transfer.pages import HtmlPage, MarkdownPage
from hermes_state.transfer.readable import printable

_LISTED = 20


class ExportFormat(StrEnum):
    """What an export is for: ``jsonl`` to be imported, the others to be read."""

    JSONL = "jsonl"
    MARKDOWN = "md"
    HTML = "html"


_PAGES: dict[ExportFormat, type[MarkdownPage | HtmlPage]] = {
    ExportFormat.MARKDOWN: MarkdownPage,
    ExportFormat.HTML: HtmlPage,
}


def add_to(app: typer.Typer) -> None:
    """Adds the commands of this module to ``app``."""
    app.command("export")(export_sessions)
    app.command("import")(import_sessions)


def export_sessions(
    context: typer.Context,
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ID]...", help="Session ids, or beginnings of exactly one.", show_default=False
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All sessions, by id.")] = False,
    source: Annotated[
        str | None, typer.Option(help="Only sessions of this source.", show_default=False)
    ] = None,
    lineage: Annotated[
        bool, typer.Option("--lineage", help="The whole compression chain of each session.")
    ] = False,
    form: Annotated[
        ExportFormat, typer.Option("--format", help="jsonl to import again; md or html to read.")
    ] = ExportFormat.JSONL,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            dir_okay=False,
            help="File to write (default: stdout); .gz and .zst are compressed.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Export sessions: as JSON lines with every message, or as a page to read.

    A file appears when it is whole; one that was there is replaced then.
    """
    if bool(ids) == everything:
        raise typer.BadParameter("give session ids, or --all")
    target = target_of(context)
    with target.store(read_only=True) as db:
        wanted = None if everything else _resolved(db, ids or [], lineage)
        with (
            _destination(output) as stream,
            progress_bars(
                BarColumn(), MofNCompleteColumn(), TextColumn("sessions"), TimeElapsedColumn()
            ) as progress,
        ):
            bar = progress.add_task("exporting", total=None if wanted is None else len(wanted))

            def show(found: ExportCount) -> None:
                progress.update(bar, completed=found.sessions)

            if (page := _PAGES.get(form)) is None:
                count = write_json_lines(db, stream, wanted, source=source, on_session=show)
            else:
                count = write_page(db, stream, page(), wanted, source=source, on_session=show)
    note(_exported(count, output))


def import_sessions(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Sessions, one a line or one JSON list, or chats of OpenAI's or ShareGPT's kind; gzip and zstd are recognised; - is stdin.",
        ),
    ],
    rename: Annotated[
        bool,
        typer.Option("--rename", help="Import a session whose id exists as ID-2 instead of skipping it."),
    ] = False,
    max_line_bytes: Annotated[
        int, typer.Option(min=1, metavar="N", help="Longest line that is taken.")
    ] = MAX_LINE_BYTES,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON.")] = False,
) -> None:
    """Import sessions. Everything is checked before anything is written.

    Then each session is written in a transaction of its own; after an interruption run it again.
    """
    target = target_of(context)
    with (
        target.store(creates=True) as db,
        progress_bars(
            BarColumn(), MofNCompleteColumn(), TextColumn("sessions"), TimeElapsedColumn()
        ) as progress,
    ):
        bar = progress.add_task("", total=None)
        try:
            report = import_file(
                db,
                file,
                on_existing="rename" if rename else "skip",
                max_line_bytes=max_line_bytes,
                on_progress=lambda phase, done, total: progress.update(
                    bar, description=phase, completed=done, total=total
                ),
            )
        except ImportRefusedError as error:
            _list_errors(error, as_json)
            raise
    if as_json:
        print_json(report)
    else:
        _print(report)


def _resolved(db: SessionDB, ids: list[str], lineage: bool) -> list[str]:
    found: dict[str, None] = {}
    for given in ids:
        session_id = db.resolve_session_id(given)
        if session_id is None:
            raise UnknownSessionError(given)
        found.update(dict.fromkeys(db.get_lineage(session_id) if lineage else [session_id]))
    return list(found)


@contextmanager
def _destination(output: Path | None) -> Iterator[BinaryIO]:
    with nullcontext(sys.stdout.buffer) if output is None else written(output) as stream:
        yield stream
        stream.flush()


def _exported(count: ExportCount, output: Path | None) -> str:
    words = f"{count.sessions:,} sessions with {count.messages:,} messages"
    return f"{printable(str(output or 'stdout'))}: {words}"


def _list_errors(error: ImportRefusedError, as_json: bool) -> None:
    if as_json:
        print_json({"ok": False, "imported": 0, "errors": error.errors, "error_count": error.count})
        return
    for entry in error.errors:
        named = "" if entry["session_id"] is None else f" ({entry['session_id']})"
        note(printable(f"entry {entry['index']}, line {entry['line']}{named}: {entry['error']}"))


def _print(report: ImportReport) -> None:
    typer.echo(
        f"imported {report['imported']:,}, skipped {report['skipped']:,} that exist, "
        f"left {report['detached']:,} without their parent"
    )
    for words, ids in (
        ("exists, skipped", report["skipped_ids"]),
        ("parent missing or in a circle", report["detached_ids"]),
        ("imported under another id", [f"{old} -> {new}" for old, new in report["renamed_ids"].items()]),
    ):
        for session_id in ids[:_LISTED]:
            note(printable(f"{words}: {session_id}"))
        if len(ids) > _LISTED:
            note(f"{words}: {len(ids) - _LISTED:,} more; --json lists all")
