"""The options that say which conversations ``sessions prune`` and ``sessions archive-stale`` mean."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer

Days = Annotated[
    float | None,
    typer.Option(
        "--older-than-days", min=0, help="Last active so long ago (default: 90; any age with a filter)."
    ),
]
Source = Annotated[str | None, typer.Option("--source", help="Only conversations of this source.")]
Model = Annotated[str | None, typer.Option("--model", help="Only conversations with this model alone.")]
Provider = Annotated[
    str | None, typer.Option("--provider", help="Only conversations with this provider alone.")
]
Cwd = Annotated[str | None, typer.Option("--cwd", metavar="DIR", help="Only in this folder and those in it.")]
Title = Annotated[str | None, typer.Option("--title", metavar="TEXT", help="Only titles that hold this.")]
EndReason = Annotated[str | None, typer.Option("--end-reason", help="Only what ended for this reason.")]
MinMessages = Annotated[
    int | None, typer.Option("--min-messages", min=0, help="At least so many live messages.")
]
MaxMessages = Annotated[
    int | None, typer.Option("--max-messages", min=0, help="At most so many live messages.")
]
MinCost = Annotated[float | None, typer.Option("--min-cost", min=0, help="Cost at least so many US dollars.")]
MaxCost = Annotated[float | None, typer.Option("--max-cost", min=0, help="Cost at most so many US dollars.")]
StartedAfter = Annotated[
    datetime | None, typer.Option("--started-after", help="Begun at this local time or later.")
]
StartedBefore = Annotated[
    datetime | None, typer.Option("--started-before", help="Begun before this local time.")
]


def given(**filters: Any) -> dict[str, Any]:
    """The filters as the verbs take them; local times become moments."""
    return {
        name: value.astimezone() if isinstance(value, datetime) else value for name, value in filters.items()
    }
