"""Backups of a PostgreSQL database by the server's own programs, ``pg_dump`` and ``pg_restore``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import URL

from hermes_state.errors import (
    NotADatabaseError,
    StoreBusyError,
    StoreError,
    StoreUnavailableError,
    redact,
)

_OTHERS = sa.text(
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
)

_MAGIC = b"PGDMP"


def dump(url: URL, path: Path) -> None:
    """Writes the whole database into an archive, readable by its owner only, and has it read back."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    _run("pg_dump", url, "--format=custom", "--no-owner", f"--file={path}")
    check(path)


def is_archive(path: Path) -> bool:
    """Whether the file begins as what ``pg_dump`` writes."""
    with path.open("rb") as stream:
        return stream.read(len(_MAGIC)) == _MAGIC


def check(path: Path) -> None:
    """Raises ``NotADatabaseError`` unless ``path`` is a readable archive of a store."""
    try:
        listed = _run("pg_restore", None, "--list", str(path))
    except StoreUnavailableError:
        raise
    except StoreError as error:
        raise NotADatabaseError(f"{path} is no archive of pg_dump: {error.reason}") from error
    if "TABLE DATA" not in listed or " messages " not in listed:
        raise NotADatabaseError(f"{path} is an archive without a store")


def revision(path: Path) -> str:
    """The schema revision of the store in the archive; ``NotADatabaseError`` when it holds none of ours."""
    text = _run("pg_restore", None, "--data-only", "--table=alembic_version", "--file=-", str(path))
    found = re.search(r"^COPY [^\n]*alembic_version[^\n]*\n(\d+)$", text, re.MULTILINE)
    if found is None:
        raise NotADatabaseError(f"{path} is an archive without a store")
    return found[1]


def require_alone(engine: sa.Engine) -> None:
    """Raises ``StoreBusyError`` while anybody else is connected to the database."""
    with engine.connect() as conn:
        others = conn.scalar(_OTHERS)
    if others:
        raise StoreBusyError(f"{others} other connections use the database; stop those programs first")


def load(url: URL, path: Path) -> None:
    """Replaces what the archive holds, in one transaction."""
    _run("pg_restore", url, "--clean", "--if-exists", "--no-owner", "--single-transaction", str(path))


def _run(program: str, url: URL | None, *arguments: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise StoreUnavailableError(f"{program} is missing: install PostgreSQL's client programs")
    environment = dict(os.environ)
    command = [found, *arguments]
    if url is not None:
        if url.password is not None:  # never on the command line, where every user of the machine reads it
            environment["PGPASSWORD"] = str(url.password)
        bare = url.set(drivername="postgresql", password=None)
        command.insert(1, f"--dbname={bare.render_as_string(hide_password=False)}")
    done = subprocess.run(  # noqa: S603 - the program is found by name, no shell reads the arguments
        command, env=environment, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise StoreError(redact(f"{program}: {lines[0]}"))
    return done.stdout
