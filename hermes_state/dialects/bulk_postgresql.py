"""Moving whole tables out of PostgreSQL and into it."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from hermes_state.dialects.bulk import BulkOperations, Dangling, Row, numbered
from hermes_state.driver_errors import translate

# Of 120 KB each, the first rows are 6 MB; how many follow depends on how large they were.
_FIRST_ROWS = 50
_MOST_ROWS = 200
_BYTES_OF_A_FETCH = 2 * 1024 * 1024
_COPIES = 0x68657273  # "hers": the lock under which copies decide about a target
_INDEXES = sa.text("""
    SELECT found.indexname, found.indexdef FROM pg_indexes AS found
    WHERE found.schemaname = current_schema() AND found.tablename = :table AND found.indexdef NOT LIKE 'CREATE UNIQUE %'
""")
_LAST_VALUE = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {sequence}"
_TRIGGERS_OF_SEARCH = sa.text(
    "SELECT tgname FROM pg_catalog.pg_trigger WHERE tgrelid = 'messages'::regclass AND tgname LIKE 'messages!_search!_%' ESCAPE '!' "
    "AND tgenabled <> 'D' ORDER BY tgname"
)
_FILL_OF_SEARCH = sa.text("SELECT statement FROM message_search_ddl WHERE part = 'fill' ORDER BY place")


class PostgresqlBulk(BulkOperations):
    """PostgreSQL's forms; see the base class for what each does."""

    checks_json = True

    def scan(
        self, conn: sa.Connection, table: sa.Table, columns: Sequence[sa.Column[Any]]
    ) -> Generator[tuple[Any, Row]]:
        """By primary key, through a cursor of the server."""
        import psycopg

        keys = list(table.primary_key.columns)
        stmt = sa.select(*map(_as_number, columns), *[key.label(f"key_{key.name}") for key in keys])
        text = str(stmt.order_by(*keys).compile(dialect=conn.dialect))
        width = len(columns)
        driver: Any = conn.connection.driver_connection
        try:
            with driver.cursor("hermes_state_scan") as cursor:
                # Past SQLAlchemy, whose rows would take a third of the time.
                cursor.execute(text)
                limit = _FIRST_ROWS
                while page := cursor.fetchmany(limit):
                    for row in page:
                        yield list(row[width:]), row[:width]
                    limit = _next_limit(page, limit)
        except psycopg.Error as error:
            raise translate(error) or error from error

    def dangling(
        self,
        conn: sa.Connection,  # noqa: ARG002
        tables: Iterable[sa.Table],  # noqa: ARG002
    ) -> dict[str, dict[Any, Dangling]]:
        """None: PostgreSQL keeps references itself."""
        return {}

    def last_id(self, conn: sa.Connection, table: sa.Table) -> int:
        """From the sequence behind the column."""
        sequence = _sequence(conn, table)
        return 0 if sequence is None else conn.scalar(sa.text(_LAST_VALUE.format(sequence=sequence))) or 0

    def lock(self, conn: sa.Connection) -> None:
        """An advisory lock of the transaction."""
        conn.execute(sa.select(sa.func.pg_advisory_xact_lock(_COPIES)))

    def prepare(self, conn: sa.Connection) -> None:
        """Commits need not wait for the disk until the last one."""
        with conn.begin():
            conn.execute(sa.text("SET synchronous_commit = off"))

    def settle(self, conn: sa.Connection) -> None:
        """The log is written in order, so the last commit covers those before it."""
        with conn.begin():
            conn.execute(sa.text("SET synchronous_commit = on"))

    def loosen(self, conn: sa.Connection, tables: Iterable[sa.Table]) -> dict[str, str]:
        """Foreign keys: a row may come before the one that it refers to, and checking all at once is faster.

        And indices that keep nothing unique: they are built once, sorted. And the search index, which is filled at the end.
        """
        taken: dict[str, str] = {}
        for name in conn.scalars(_TRIGGERS_OF_SEARCH).all():
            taken[f"search:1:{name}"] = f"ALTER TABLE messages ENABLE TRIGGER {name}"
            conn.exec_driver_sql(f"ALTER TABLE messages DISABLE TRIGGER {name}")
        if taken:
            filling = conn.scalars(_FILL_OF_SEARCH).all()
            taken |= {f"search:2:{place}": statement for place, statement in enumerate(filling)}
        for table in tables:
            for name, statement in conn.execute(_INDEXES, {"table": table.name}).all():
                taken[f"index:{name}"] = statement
                quoted = conn.dialect.identifier_preparer.quote(name)
                conn.exec_driver_sql(f"DROP INDEX {quoted}")
            for key in table.foreign_key_constraints:
                addition = sa.schema.AddConstraint(key, isolate_from_table=False)
                taken[f"key:{key.name!s}"] = str(addition.compile(dialect=conn.dialect))
                conn.execute(sa.schema.DropConstraint(key, if_exists=True))
        return taken

    def insert(
        self, conn: sa.Connection, table: sa.Table, columns: Sequence[sa.Column[Any]], rows: Sequence[Row]
    ) -> None:
        """COPY."""
        import psycopg

        prepare = conn.dialect.identifier_preparer
        names = ", ".join(prepare.quote(column.name) for column in columns)
        driver: Any = conn.connection.driver_connection
        try:
            with (
                driver.cursor() as cursor,
                cursor.copy(f"COPY {prepare.format_table(table)} ({names}) FROM STDIN") as copy,
            ):
                for row in rows:
                    copy.write_row(row)
        except psycopg.Error as error:
            # SQLAlchemy is not asked here, so it cannot translate.
            raise translate(error) or error from error

    def tighten(self, conn: sa.Connection, loosened: dict[str, str]) -> None:
        """Foreign keys, adding which checks every row, then the search index."""
        for name in sorted(loosened):  # "index:" before "key:" before "search:"
            conn.exec_driver_sql(loosened[name].replace("%", "%%"))

    def set_last_id(self, conn: sa.Connection, table: sa.Table, last_id: int) -> None:
        """Never backwards."""
        column, sequence = numbered(table), _sequence(conn, table)
        if column is None or sequence is None:
            return
        # Another program may have chosen an id that the sequence has not reached.
        highest = max(last_id, self.last_id(conn, table), conn.scalar(sa.select(sa.func.max(column))) or 0)
        if highest > 0:
            conn.execute(sa.select(sa.func.setval(sequence, highest)))

    def analyze(self, conn: sa.Connection) -> None:
        """The statistics of this database."""
        conn.execute(sa.text("ANALYZE"))


def _next_limit(page: list[Row], limit: int) -> int:
    held = sum(len(value) for row in page for value in row if type(value) is str)
    fitting = _BYTES_OF_A_FETCH * len(page) // (held + 1)
    return max(1, min(2 * limit, fitting, _MOST_ROWS))


def _as_number(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    """True and false as 1 and 0, which they are in SQLite."""
    return sa.cast(column, sa.Integer).label(column.name) if isinstance(column.type, sa.Boolean) else column


def _sequence(conn: sa.Connection, table: sa.Table) -> str | None:
    column = numbered(table)
    if column is None:
        return None
    name = conn.dialect.identifier_preparer.format_table(table)
    return conn.scalar(sa.select(sa.func.pg_get_serial_sequence(name, column.name)))
