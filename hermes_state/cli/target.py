"""Which store a command works on: the global options, resolved once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import sqlalchemy as sa
import typer
from pydantic import ValidationError
from sqlalchemy.engine import URL

from hermes_state.engine import build_engine, redacted, require_sqlite_file, resolve_url, sqlite_path
from hermes_state.settings import Settings
from hermes_state.store import SessionDB


@dataclass(frozen=True)
class Target:
    """The store that ``--db``, ``--url`` or the environment name; nothing is opened until a command needs it."""

    db: Path | None
    url_text: str | None
    settings: Settings

    @cached_property
    def url(self) -> URL:
        """The resolved URL; ``InvalidArgumentError`` for text that is none."""
        return resolve_url(self.db, self.url_text, self.settings)

    @property
    def shown(self) -> str:
        """The file, or the URL without its password, for people to read."""
        return str(self.file or redacted(self.url))

    @property
    def file(self) -> Path | None:
        """The database file; ``None`` for a server."""
        return sqlite_path(self.url) if self.url.get_backend_name() == "sqlite" else None

    def store(self, *, read_only: bool = False, creates: bool = False) -> SessionDB:
        """The open store; a reading command changes nothing, not even an old schema.

        ``creates``: a SQLite file that is not there is made; else it is refused, as a mistyped path.
        """
        if not creates:
            require_sqlite_file(self.url)
        return SessionDB(url=self.url, read_only=read_only)

    @contextmanager
    def engine(self, *, read_only: bool = False, creates: bool = False) -> Iterator[sa.Engine]:
        """An engine without a pool, as schema commands use it; ``creates`` as for ``store``."""
        if not creates:
            require_sqlite_file(self.url)
        engine = build_engine(self.url, self.settings, read_only=read_only, pool=False)
        try:
            yield engine
        finally:
            engine.dispose()


def find_target(db: Path | None, url: str | None) -> Target:
    """The target of the global options; a usage error for both options at once, or an unusable setting."""
    if db is not None and url is not None:
        raise typer.BadParameter("give --db or --url, not both")
    return Target(db, url, _settings())


def target_of(context: typer.Context) -> Target:
    """The target that the global options of this run named."""
    target = context.find_object(Target)
    assert target is not None
    return target


def _settings() -> Settings:
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        name = "_".join(str(part) for part in first["loc"]).upper()
        raise typer.BadParameter(f"environment variable HERMES_STATE_{name}: {first['msg']}") from error
