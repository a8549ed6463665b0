"""Alembic's environment for both databases: one locked transaction for a whole run, so a killed run did nothing.

The connection is the caller's (``config.attributes["connection"]``, without an open transaction), else one to the URL of
``-x url=...``, else one to the default store of ``hermes_state.settings``. ``-x force=true`` lets downgrades lose rows.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from alembic import context
from alembic.autogenerate.rewriter import Rewriter
from alembic.operations.ops import AlterColumnOp, MigrateOperation, MigrationScript
from alembic.runtime.migration import MigrationContext, MigrationInfo
from alembic.script import Script, ScriptDirectory

from hermes_state.engine import build_engine, resolve_url
from hermes_state.errors import DowngradeRefusedError
from hermes_state.models import metadata
from hermes_state.settings import Settings

ADVISORY_LOCK = 4_848_101_983_471  # any constant, as long as every release takes the same one
DDL_LOCK_TIMEOUT = "5s"  # a statement that waits longer for a table would hold up everybody queued behind it

# SQLAlchemy cannot reflect expression indices of SQLite; tests/migrations compares this one through sqlite_master.
_NOT_REFLECTED = r"(?s).*expression-based index.*ix_sessions__activity"

rewriter = Rewriter()


def run() -> None:
    """Runs the command that Alembic was asked for."""
    # The revisions do not import the package, so the typed error is handed to them.
    context.config.attributes.setdefault("refusal", DowngradeRefusedError)
    if context.is_offline_mode():
        _write_sql()
        return
    given: sa.Connection | None = context.config.attributes.get("connection")
    if given is not None:
        _migrate(given)
        return
    settings = Settings()
    engine = build_engine(resolve_url(None, _url(), settings), settings, pool=False)
    with engine.connect() as conn:
        _migrate(conn)


def _url() -> str | None:
    return context.config.attributes.get("url") or context.get_x_argument(as_dictionary=True).get("url")


def _write_sql() -> None:
    url = resolve_url(None, _url(), Settings())
    # With psycopg's own parameter style every % of the text would come out doubled.
    context.configure(
        dialect_name=url.get_backend_name(),
        dialect_opts={"paramstyle": "named"},
        literal_binds=True,
        **_options(),
    )
    with context.begin_transaction():
        context.run_migrations()


def _migrate(conn: sa.Connection) -> None:
    if conn.in_transaction():
        message = "migrations need a connection without an open transaction: the lock comes first"
        raise RuntimeError(message)
    rebuilding: list[str] = []
    with _foreign_keys_off(conn), _decoded_json(conn), conn.begin():
        schema = _lock(conn)
        context.configure(
            connection=conn,
            version_table_schema=schema,
            on_version_apply=_collector(rebuilding),
            **_options(),
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=_NOT_REFLECTED)
            context.run_migrations()
        if rebuilding:
            _check_foreign_keys(conn, rebuilding)


def _options() -> dict[str, Any]:
    return {
        "target_metadata": metadata,
        "transactional_ddl": True,
        "compare_type": True,
        "compare_server_default": True,
        "include_name": _is_ours,
        "include_object": _stands_here,
        "autogenerate_plugins": ["alembic.autogenerate.*", "alembic.ext.checkconstraint_byname"],
        "process_revision_directives": rewriter.chain(_number),
    }


@contextmanager
def _foreign_keys_off(conn: sa.Connection) -> Iterator[None]:
    """SQLite: off before BEGIN, inside a transaction the pragma does nothing; a table rebuild would delete the rows
    of every table that refers to it (DESIGN.md, decision 8). Nothing on PostgreSQL."""
    if conn.dialect.name != "sqlite":
        yield
        return
    driver: Any = conn.connection.driver_connection
    before = driver.execute("PRAGMA foreign_keys").fetchone()[0]
    driver.execute("PRAGMA foreign_keys = OFF")
    try:
        yield
    finally:
        driver.execute(f"PRAGMA foreign_keys = {before}")


@contextmanager
def _decoded_json(conn: sa.Connection) -> Iterator[None]:
    """PostgreSQL: SQLAlchemy reflects identity columns through JSON, which the package's engines hand out as text."""
    if conn.dialect.name != "postgresql":
        yield
        return
    from psycopg.types.json import JsonLoader

    driver: Any = conn.connection.driver_connection
    as_text = driver.adapters.get_loader(driver.adapters.types["json"].oid, 0)
    driver.adapters.register_loader("json", JsonLoader)
    try:
        yield
    finally:
        driver.adapters.register_loader("json", as_text)


def _lock(conn: sa.Connection) -> str | None:
    """Keeps other upgrades out until the transaction ends; returns the schema that all tables belong to.

    On SQLite the transaction itself, begun by BEGIN IMMEDIATE, is the lock.
    """
    if conn.dialect.name == "sqlite":
        return None
    # Nobody may give up because another upgrade takes long; each statement for itself may take long too.
    conn.execute(sa.text("SET LOCAL statement_timeout = 0"))
    conn.execute(sa.text("SET LOCAL lock_timeout = 0"))
    conn.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
    conn.execute(sa.text(f"SET LOCAL lock_timeout = '{DDL_LOCK_TIMEOUT}'"))
    # Named, because a version table of another schema in the search path is not ours (field report Q14).
    schema: str | None = conn.scalar(sa.text("SELECT current_schema()"))
    return schema


def _collector(rebuilding: list[str]) -> Callable[..., None]:
    def collect(step: MigrationInfo, **_: Any) -> None:
        scripts = [script for script in step.up_revisions if isinstance(script, Script)]
        rebuilding.extend(
            script.revision for script in scripts if getattr(script.module, "rebuilds_tables", False)
        )

    return collect


def _check_foreign_keys(conn: sa.Connection, rebuilding: list[str]) -> None:
    """SQLite: the rebuilt tables must leave no row without its parent; raising rolls the whole run back."""
    if conn.dialect.name == "sqlite" and (orphans := conn.execute(sa.text("PRAGMA foreign_key_check")).all()):
        message = f"after revision {', '.join(rebuilding)} {len(orphans)} rows would refer to missing ones"
        raise RuntimeError(message)


def _is_ours(name: str | None, kind: str, _parents: object) -> bool:
    # Tables of other programs, and shadow tables of a search index, are no drift (field report Q10).
    return kind != "table" or name in metadata.tables


def _stands_here(item: Any, _name: str | None, _kind: str, _reflected: bool, _compared: object) -> bool:
    # models.py marks the CHECKs that only one database gets.
    dialect: str = context.get_context().dialect.name
    return bool(item.info.get("only_on", dialect) == dialect)


@rewriter.rewrites(AlterColumnOp)
def _without_false_alarms(
    migration: MigrationContext, _revision: object, change: AlterColumnOp
) -> AlterColumnOp | list[MigrateOperation]:
    default = change.modify_server_default
    if isinstance(default, sa.Identity) and migration.dialect.name == "sqlite":
        # SQLite has no identity columns: what the models declare as one is AUTOINCREMENT there.
        change.modify_server_default = False
    elif isinstance(default, sa.DefaultClause) and _text(default) == _text(change.existing_server_default):
        # Alembic evaluates both forms on PostgreSQL, where two readings of a clock always differ.
        change.modify_server_default = False
    return change if change.has_changes() else []


def _text(default: object) -> str:
    """A default's expression without what PostgreSQL adds when it stores one."""
    expression = getattr(default, "arg", None)
    if isinstance(expression, sa.ClauseElement):
        expression = expression.compile(dialect=context.get_context().dialect)
    return re.sub(r"(?<=')::text|[\s()]", "", str(expression)).lower()


def _number(_context: MigrationContext, _revision: object, scripts: Iterable[MigrationScript]) -> None:
    head = ScriptDirectory.from_config(context.config).get_current_head()
    for script in scripts:
        script.rev_id = f"{int(head or 0) + 1:04d}"


run()
