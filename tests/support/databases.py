"""Databases of a test run: where the PostgreSQL server is, and how a database is made, copied and dropped."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql
from sqlalchemy.engine import make_url

_KNOWS_STRATEGIES = 150_000


def libpq_url(url: str) -> str:
    """``url`` as libpq reads it: without SQLAlchemy's driver name."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def with_database(url: str, database: str) -> str:
    """``url`` with another database name."""
    return make_url(url).set(database=database).render_as_string(hide_password=False)


def create_database(server_url: str, template: str | None = None) -> str:
    """The URL of a new database on the server: an empty one, or a copy of ``template``."""
    name = f"hermes_test_{uuid.uuid4().hex}"
    stmt = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
        sql.Identifier(name), sql.Identifier(template or "template0")
    )
    with psycopg.connect(libpq_url(server_url), autocommit=True) as conn:
        if conn.info.server_version >= _KNOWS_STRATEGIES:
            # A test makes a database and throws it away: copying files takes a third of the time that logging them takes.
            stmt += sql.SQL(" STRATEGY FILE_COPY")
        conn.execute(stmt)
    return with_database(server_url, name)


def create_english_database(server_url: str) -> str:
    """The URL of a new database that sorts text as English dictionaries do, where the server knows how (ICU)."""
    url = create_database(server_url)
    with psycopg.connect(libpq_url(server_url), autocommit=True) as conn:
        if not conn.execute("SELECT 1 FROM pg_collation WHERE collname = 'en-US-x-icu'").fetchall():
            return url
        drop_database(url)
        stmt = sql.SQL("CREATE DATABASE {} TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US'")
        conn.execute(stmt.format(sql.Identifier(str(make_url(url).database))))
    return url


def drop_database(url: str) -> None:
    """Drops the database of ``url``, cutting whoever is still connected."""
    name = make_url(url).database
    assert name is not None
    assert re.fullmatch(r"hermes_test_[0-9a-f]{32}", name), "only databases of a test run are dropped"
    with psycopg.connect(libpq_url(with_database(url, "postgres")), autocommit=True) as conn:
        conn.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


@contextmanager
def database(server_url: str, template: str | None = None) -> Iterator[str]:
    """The URL of a database that lives as long as the block."""
    url = create_database(server_url, template)
    try:
        yield url
    finally:
        drop_database(url)
