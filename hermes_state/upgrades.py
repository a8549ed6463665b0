"""The schema's version: looking at it cheaply, and moving it with Alembic, which is imported only to move.

The scripts are found next to the package in a checkout and inside it after installation, so an installed package
upgrades a store from any directory (CONTRACT.md section 6).
"""

from __future__ import annotations

import argparse
import re
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.engine import URL

from hermes_state.engine import READ_ONLY_OPTION
from hermes_state.errors import (
    InvalidArgumentError,
    SchemaAheadError,
    SchemaBehindError,
    SchemaError,
    SchemaMismatchError,
    StoreError,
    StoreIncompleteError,
)
from hermes_state.models import metadata

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0009"
"""The revision this release works with; written out, because asking Alembic takes 70 ms."""

INCOMPLETE_TABLE = "hermes_state_incomplete"
"""The table that is there as long as a copy or an adoption into the store has not finished; its rows say which."""

_VERSION_TABLE = "alembic_version"
_OUR_REVISION = re.compile(r"\d{4}")
_UNTOUCHED = "it was left untouched; give a database, or on PostgreSQL a schema, of its own"
_OLDER_STORE = (
    "an older or foreign store; it was left untouched; `hermes-state adopt FILE --into TARGET` copies an older one "
    "into a file or database of its own"
)

# Tables and columns of the names we use, one statement each. Views count, since they are in the way too.
_CATALOGUES = {
    "sqlite": """
        SELECT lower(found.name), lower(part.name)
        FROM sqlite_master AS found JOIN pragma_table_xinfo(found.name) AS part
        WHERE found.type IN ('table', 'view') AND lower(found.name) IN :names
    """,
    "postgresql": """
        SELECT found.relname, part.attname
        FROM pg_catalog.pg_class AS found
        JOIN pg_catalog.pg_namespace AS place ON place.oid = found.relnamespace
        JOIN pg_catalog.pg_attribute AS part ON part.attrelid = found.oid AND part.attnum > 0 AND NOT part.attisdropped
        WHERE place.nspname = current_schema() AND found.relkind IN ('r', 'p', 'v', 'm', 'f') AND found.relname IN :names
    """,
}

_PLACES = {"sqlite": "SELECT 'main'", "postgresql": "SELECT current_schema()"}

# Alembic's ``context`` and ``op`` are global to the process: two threads must not migrate at once.
_alembic_lock = threading.Lock()


def check_schema(conn: sa.Connection) -> None:
    """Returns if the database holds exactly what this release works with; two reading statements, no Alembic.

    Raises ``SchemaBehindError`` (``have`` is ``None`` for a database without our tables), ``SchemaAheadError``,
    ``StoreIncompleteError`` for the unfinished target of a copy, or
    ``SchemaMismatchError`` for an older store, for tables of other programs and for missing columns, which it names
    (field reports Q1, Q2, Q10, Q11). Nothing is written (Q12).
    """
    problem = _problem(conn)
    if problem is not None:
        raise problem


def current(engine: sa.Engine) -> str | None:
    """The revision that the database is at, ``None`` for one without our tables.

    Raises ``SchemaMismatchError`` for an older store, and where ``alembic_version`` belongs to another program.
    """
    with _reading(engine) as conn:
        found = _catalogue(conn)
        version = _version(conn, found)
    ours = found.keys() & metadata.tables.keys()
    if version is None and ours:
        raise SchemaMismatchError(f"{', '.join(sorted(ours))} without a version", _OLDER_STORE)
    return version


def upgrade(engine: sa.Engine, revision: str = "head") -> None:
    """Brings the database up to ``revision`` in one locked transaction; one that is up to date is only read.

    Any number of processes may do so at once, on a new file too: one does the work (field report Q4). A killed
    upgrade has done nothing (Q9). Raises ``SchemaAheadError`` and ``SchemaMismatchError`` before any change, and
    ``InvalidArgumentError`` for an unknown revision.
    """
    if _is_at_head(engine) and revision in ("head", HEAD):
        return
    from alembic import command

    _require_text(revision)
    with _alembic(engine) as config:
        command.upgrade(config, revision)


def downgrade(engine: sa.Engine, revision: str, *, force: bool = False) -> None:
    """Takes the database back to ``revision`` (``"base"``: no tables) in one locked transaction.

    Raises ``DowngradeRefusedError`` where rows would be lost, unless ``force`` (field report Q8), the schema errors
    as :func:`upgrade` does, and ``InvalidArgumentError`` for a revision that does not lie behind.
    """
    from alembic import command

    _require_text(revision)
    _is_at_head(engine)
    with _alembic(engine, force=force) as config:
        command.downgrade(config, revision)


def check(engine: sa.Engine) -> list[str]:
    """What would have to be changed to make the tables equal to the models; empty if they are.

    Columns, types, defaults, keys, indices and the names of CHECKs are compared, other tables are not looked at.
    Raises the schema errors for a database that is not at this release's revision.
    """
    from alembic import command
    from alembic.util.exc import AutogenerateDiffsDetected

    with _reading(engine) as conn:
        version = _version(conn, _catalogue(conn))
        if version != HEAD:
            check_schema(conn)
    try:
        with _alembic(engine) as config:
            command.check(config)
    except AutogenerateDiffsDetected as found:
        return [_described(difference) for difference in found.diffs]
    return []


def upgrade_sql(url: str | URL, revision: str = "head") -> str:
    """The SQL of an upgrade of an empty database to ``revision``, for the database that ``url`` names.

    Nothing is connected. ``"0001:head"`` starts from a revision. Raises ``InvalidArgumentError`` for an unknown
    revision or database.
    """
    from alembic import command

    _require_text(revision)
    output = StringIO()
    with _alembic(url=url, output=output) as config:
        command.upgrade(config, revision, sql=True)
    return output.getvalue()


def script_location() -> Path:
    """The folder of Alembic's scripts: inside the installed package, else beside it in a checkout."""
    package = Path(__file__).parent
    installed = package / "_migrations"
    return installed if installed.is_dir() else package.parent / "migrations"


def _reading(engine: sa.Engine) -> sa.Connection:
    return engine.connect().execution_options(**{READ_ONLY_OPTION: True})


def _require_text(revision: str) -> None:
    if not revision:
        raise InvalidArgumentError("revision", "it is empty")


def _is_at_head(engine: sa.Engine) -> bool:
    """Whether nothing is to be done; raises for a database that must not be touched."""
    with _reading(engine) as conn:
        problem = _problem(conn)
    if problem is not None and not isinstance(problem, SchemaBehindError):
        raise problem
    return problem is None


def _problem(conn: sa.Connection) -> SchemaError | None:
    problem = _first_sight(conn)
    # On PostgreSQL each statement sees its own moment: an upgrade may have ended between the two.
    return _first_sight(conn) if isinstance(problem, SchemaMismatchError) else problem


def _first_sight(conn: sa.Connection) -> SchemaError | None:
    found = _catalogue(conn)
    if INCOMPLETE_TABLE in found:
        return _incomplete(conn)
    ours = found.keys() & metadata.tables.keys()
    version = _version(conn, found)
    if version is None:
        if ours:
            return SchemaMismatchError(f"{', '.join(sorted(ours))} without a version", _OLDER_STORE)
        _require_place(conn)
        return SchemaBehindError(None, HEAD)
    if not ours:
        return SchemaMismatchError(
            f"{_VERSION_TABLE} is at {version!r}, but none of our tables is here", _UNTOUCHED
        )
    if version != HEAD:
        return SchemaAheadError(version, HEAD) if version > HEAD else SchemaBehindError(version, HEAD)
    missing = _missing(found)
    return SchemaMismatchError(f"missing {', '.join(missing)}") if missing else None


def _catalogue(conn: sa.Connection) -> Mapping[str, set[str]]:
    """The columns that are there, by table, of our tables and of the version table."""
    stmt = sa.text(_CATALOGUES[conn.dialect.name]).bindparams(sa.bindparam("names", expanding=True))
    columns: defaultdict[str, set[str]] = defaultdict(set)
    for table, column in conn.execute(stmt, {"names": [*metadata.tables, _VERSION_TABLE, INCOMPLETE_TABLE]}):
        columns[table].add(column)
    return columns


def _version(conn: sa.Connection, found: Mapping[str, set[str]]) -> str | None:
    if _VERSION_TABLE not in found:
        return None
    if "version_num" not in found[_VERSION_TABLE]:
        raise SchemaMismatchError(f"{_VERSION_TABLE} is not Alembic's", _UNTOUCHED)
    versions = [str(row[0]) for row in conn.execute(sa.text(f"SELECT version_num FROM {_VERSION_TABLE}"))]
    if not versions:
        return None
    if len(versions) > 1 or not _OUR_REVISION.fullmatch(versions[0]):
        raise SchemaMismatchError(
            f"{_VERSION_TABLE} is at {', '.join(sorted(versions))}, not ours", _UNTOUCHED
        )
    return versions[0]


def _incomplete(conn: sa.Connection) -> StoreIncompleteError:
    rows = conn.execute(sa.text(f"SELECT key, value FROM {INCOMPLETE_TABLE}"))
    notes = {key: value for key, value in rows if key in ("operation", "source")}
    return StoreIncompleteError(notes.get("operation", "copy"), notes.get("source", "an unknown store"))


def _missing(found: Mapping[str, set[str]]) -> list[str]:
    missing = [f"table {name}" for name in metadata.tables if name not in found]
    for name, table in metadata.tables.items():
        if name in found:
            missing += [
                f"column {name}.{column.name}" for column in table.columns if column.name not in found[name]
            ]
    return missing


def _require_place(conn: sa.Connection) -> None:
    # PostgreSQL, and a search path without an existing schema: every CREATE TABLE would fail in vaguer words.
    if conn.scalar(sa.text(_PLACES[conn.dialect.name])) is None:
        raise SchemaMismatchError("no schema of the search path exists", "create the schema, then try again")


@contextmanager
def _alembic(
    engine: sa.Engine | None = None,
    *,
    force: bool = False,
    url: str | URL | None = None,
    output: StringIO | None = None,
) -> Iterator[Config]:
    """Alembic's configuration for one command; its refusals of a revision come out typed."""
    from alembic.config import Config
    from alembic.util.exc import AutogenerateDiffsDetected, CommandError

    options = argparse.Namespace(x=["force=true"] if force else [])
    # Alembic prints; a library does not.
    config = Config(stdout=StringIO(), output_buffer=output, cmd_opts=options)
    config.set_main_option("script_location", str(script_location()).replace("%", "%%"))
    with _alembic_lock, nullcontext() if engine is None else engine.connect() as conn:
        config.attributes.update(connection=conn, url=url)
        try:
            yield config
        except AutogenerateDiffsDetected:
            raise
        except CommandError as error:
            raise InvalidArgumentError("revision", str(error)) from error
        except StoreError as error:
            if type(error) is not StoreError:
                raise
            # The DDL itself was refused: a table is there that should not be yet, or the other way round.
            raise SchemaMismatchError(f"the tables are not those of their version: {error.reason}") from error


def _described(difference: Any) -> str:
    if isinstance(difference, list):
        return "; ".join(_described(part) for part in difference)
    kind, *parts = difference
    names = [part if isinstance(part, str) else getattr(part, "name", None) for part in parts]
    return f"{kind.replace('_', ' ')}: {'.'.join(name for name in names if isinstance(name, str))}"
