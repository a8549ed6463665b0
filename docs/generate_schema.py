"""Writes ``docs/schema.md`` from the models: ``python docs/generate_schema.py [--check]``.

``--check`` writes nothing and ends with exit code 1 when the page is not what the models say.
"""

from __future__ import annotations

import sys
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.schema import CreateColumn, CreateTable

from hermes_state.models import metadata
from hermes_state.upgrades import HEAD

PAGE = Path(__file__).with_name("schema.md")
SQLITE = make_url("sqlite://").get_dialect()()
POSTGRESQL = make_url("postgresql+psycopg://").get_dialect()()

INTRODUCTION = f"""# The schema

Revision {HEAD}. Written by `python docs/generate_schema.py` from `hermes_state/models/`; not edited by hand.

Other programs may read these tables, and write them with few columns: every NOT NULL column has a server
default, except for keys and references. Times are seconds since 1970 in UTC, double precision. The order of a
conversation is `messages.id`; `messages.timestamp` is only shown. A message is *active* (the model is sent
it), *compacted* (summarised away: `active` false, `compacted` true) or *rewound* (both false). JSON columns
hold text that was encoded once: TEXT on SQLite, `json` on PostgreSQL. Alembic keeps its revision in
`alembic_version`.
"""

MEANINGS = {
    "sessions": {
        "id": "chosen by the caller, 1 to 512 characters",
        "source": "the surface that made the session: cli, telegram, cron, ...",
        "created_source": "the first source, never changed",
        "model_config": "JSON text exactly as it was given",
        "system_prompt": "only in rows of other programs; this package stores the hash",
        "system_prompt_hash": "SHA-256 in hexadecimal, see `system_prompts`",
        "parent_session_id": "the session that this one continues, branches from or works for",
        "kind": "root, continuation, branch, delegate, tool; NULL in rows of other programs",
        "root_session_id": "first session of a chain of continuations; NULL means the own id",
        "ended_at": "NULL while the session is open",
        "end_reason": "the first reason wins",
        "last_active_at": "time of the newest message; NULL before the first",
        "message_count": "active messages",
        "tool_call_count": "tool calls in active messages",
        "title": "unique where not NULL",
    },
    "messages": {
        "id": "the order of a conversation; never used twice",
        "message_uid": "identity of the message, unique within its session",
        "role": "user, assistant, tool, system, ...",
        "content": "readable text; never base64",
        "content_parts": "content that is not text, exactly as given",
        "tool_calls": "list, on assistant rows",
        "reasoning_details": "replay payload of a provider, opaque",
        "codex_reasoning_items": "replay payload; holds the checkpoints",
        "codex_message_items": "replay payload of a provider, opaque",
        "platform_message_id": "id on an outside platform",
        "observed": "overheard, not addressed to the agent",
        "effect_disposition": "what became of a tool's side effect",
        "api_content": "what was sent to the provider, where it differs from `content`",
        "display_kind": "how a user interface shows the row",
        "extra": "keys that have no column",
        "active": "in the live context",
        "compacted": "summarised away",
        "superseded_by": "row that carries this one on, of a rewound row that a compaction replaced by a copy",
    },
    "message_reactions": {
        "session_id": "the session in which somebody reacted",
        "message_uid": "the message, in whatever row it stands now",
        "actor": "who reacts, 1 to 512 characters; one reaction each",
        "emoji": "at most 64 characters",
        "set_at": "when; shown, never an order of the conversation",
        "seen": "whether `take_unseen_reactions` has handed it out",
    },
    "state_meta": {"key": "1 to 512 characters"},
    "system_prompts": {"hash": "SHA-256 of the prompt in hexadecimal"},
    "session_model_usage": {
        "task": "empty for the conversation itself, else a side task such as `compaction` or `title`",
        "reasoning_tokens": "part of `output_tokens`",
        "estimated_cost_usd": "NULL until somebody told",
        "actual_cost_usd": "NULL until billed",
    },
    "session_daily_usage": {
        "day": "date of UTC, `YYYY-MM-DD`",
        "reasoning_tokens": "part of `output_tokens`",
    },
    "compression_locks": {
        "session_id": "the session that is compacted; it need not exist",
        "holder": "who may compact, 1 to 512 characters",
        "expires_at": "the lock is live until then; a row that names no end is not live",
    },
    "session_turn_leases": {
        "conversation_id": "the first session of the chain of continuations",
        "holder": "who runs the turn, 1 to 512 characters",
        "expires_at": "the lease is live until then; a row that names no end is not live",
    },
}


def main() -> int:
    """Writes the page, or compares it; returns the exit code."""
    text = page()
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.read_text(encoding="utf-8") == text else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


def page() -> str:
    """The whole page as Markdown."""
    return "\n".join([INTRODUCTION, *(_section(table) for table in metadata.sorted_tables)])


def _section(table: sa.Table) -> str:
    lines = [
        f"## {table.name}",
        "",
        "| column | SQLite | PostgreSQL | meaning |",
        "|---|---|---|---|",
        *(_row(table.name, column) for column in table.columns),
        *_constraints(table),
        *_indexes(table),
    ]
    return "\n".join(lines) + "\n"


def _row(table: str, column: sa.Column[object]) -> str:
    meaning = MEANINGS[table].get(column.name, "")
    return f"| `{column.name}` | {_cell(column, SQLITE)} | {_cell(column, POSTGRESQL)} | {meaning} |"


def _cell(column: sa.Column[object], dialect: sa.Dialect) -> str:
    declared = " ".join(str(CreateColumn(column).compile(dialect=dialect)).split())
    words = declared.split(" ", 1)[1].replace("|", "\\|")
    is_key = column.primary_key and "PRIMARY KEY" not in words
    return f"`{words}{' PRIMARY KEY' if is_key else ''}`"


def _constraints(table: sa.Table) -> list[str]:
    on_postgresql = str(CreateTable(table).compile(dialect=POSTGRESQL))
    found = sorted(table.constraints, key=lambda each: str(each.name))
    lines = [
        f"- `{each.name}`{'' if str(each.name) in on_postgresql else ' (SQLite only)'}: {_rule(each)}"
        for each in found
        if not isinstance(each, sa.PrimaryKeyConstraint)
    ]
    return ["", "Constraints:", "", *lines] if lines else []


def _rule(constraint: sa.Constraint) -> str:
    if isinstance(constraint, sa.CheckConstraint):
        return f"CHECK `{_text(constraint.sqltext, SQLITE)}`"
    if isinstance(constraint, sa.ForeignKeyConstraint):
        columns = ", ".join(constraint.column_keys)
        return f"`{columns}` to `{constraint.referred_table.name}`, ON DELETE {constraint.ondelete}"
    assert isinstance(constraint, sa.UniqueConstraint)
    return f"UNIQUE `({', '.join(constraint.columns.keys())})`"


def _indexes(table: sa.Table) -> list[str]:
    lines = []
    for index in sorted(table.indexes, key=lambda each: str(each.name)):
        on = ", ".join(_text(expression, SQLITE) for expression in index.expressions)
        lines.append(f"- `{index.name}`: {'UNIQUE ' if index.unique else ''}`({on})`{_predicates(index)}")
    return ["", "Indices:", "", *lines] if lines else []


def _predicates(index: sa.Index) -> str:
    found = [
        (name, _text(where, dialect))
        for name, dialect in (("sqlite", SQLITE), ("postgresql", POSTGRESQL))
        if (where := index.dialect_options[name]["where"]) is not None
    ]
    if len({text for _, text in found}) <= 1:
        return f" WHERE `{found[0][1]}`" if found else ""
    return " WHERE " + ", on PostgreSQL ".join(f"`{text}`" for _, text in found)


def _text(expression: object, dialect: sa.Dialect) -> str:
    if isinstance(expression, sa.Column):
        return expression.name
    assert isinstance(expression, sa.ClauseElement)
    text = str(expression.compile(dialect=dialect, compile_kwargs={"literal_binds": True}))
    return text.replace("%%", "%")  # psycopg's parameter style doubles them


if __name__ == "__main__":
    sys.exit(main())
