"""The search index: kept by triggers, so that rows of other programs are followed (CONTRACT.md, section 6).

SQLite: FTS5 with external content over a view, and the readable text of tool calls in a table of its own, because FTS5 runs no
table-valued function of a view. PostgreSQL: a table of tsvectors, so that an update of the state of a row writes nothing to it.
Existing rows are indexed here. A SQLite without FTS5 gets the tables of notes and calls only; searches then read the rows.
It imports nothing of the package: this file must mean the same for ever (DESIGN.md, decision 8).
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None
rebuilds_tables = False

# Scripts without blanks between words: searched letter by letter on PostgreSQL; SQLite notes the rows that hold them.
_UNSPACED = (
    "\\u0e00-\\u0eff\\u1000-\\u109f\\u1100-\\u139f\\u1780-\\u17ff\\u2d80-\\u2ddf\\u2e80-\\u2fdf\\u3005-\\u3007\\u3021-\\u3029"
    "\\u3031-\\u303c\\u3040-\\u4dbf\\u4e00-\\ua4cf\\ua960-\\ua97f\\uaa60-\\uaadf\\uac00-\\ud7ff\\uf900-\\ufaff\\uff66-\\uffdc"
    "\\U00010000-\\U0001cfff\\U00020000-\\U0003ffff"
)
_SIGNS = (
    "\\u0001-\\u002f\\u003a-\\u0040\\u005b-\\u0060\\u007b-\\u00a9\\u00ab-\\u00b1\\u00b4\\u00b6-\\u00b8\\u00bb\\u00bf\\u2000-\\u206f\\u2190-\\u245f"
    "\\u3000-\\u3004\\u3008-\\u3020\\u2500-\\u2775\\u2794-\\u2bff\\ufe00-\\ufe0f\\ufe30-\\ufe4f\\ufeff\\uff00-\\uff0f\\uff1a-\\uff20\\uff3b-\\uff40\\uff5b-\\uff65\\ufff0-\\uffff\\U0001f000-\\U0001faff"
)
_TOOL_CHARACTERS = 8192
_MOST_CHARACTERS = 200_000

_EVERYTHING = 2**63 - 1
_LATER = ("step", "trigram index", "trigram triggers", "trigram step")

_STATE = [
    "CREATE TABLE message_search_state (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL)",
    (
        "INSERT INTO message_search_state (name, value) VALUES ('index', 'on'), ('trigram', 'off'), "
        f"('through', '{_EVERYTHING}')"
    ),
    # What builds the index anew, so that the package needs no second copy of it.
    "CREATE TABLE message_search_ddl (place INTEGER NOT NULL PRIMARY KEY, part TEXT NOT NULL, statement TEXT NOT NULL)",
]


def upgrade() -> None:
    for statement in _STATE:
        op.execute(sa.text(statement))
    if op.get_context().dialect.name == "sqlite":
        parts = _SQLITE if _has_fts5() else _SQLITE[:1]
    else:
        parts = _postgresql()
    for part, statement in [(part, statement) for part, statements in parts for statement in statements]:
        _note(part, statement)
        if part not in _LATER:
            op.execute(sa.text(_escaped(statement)))
    if len(parts) == 1:
        op.execute(sa.text("UPDATE message_search_state SET value = 'off' WHERE name = 'index'"))


def downgrade() -> None:
    statements = _DOWNGRADE_SQLITE if op.get_context().dialect.name == "sqlite" else _DOWNGRADE_POSTGRESQL
    for statement in [*statements, "DROP TABLE message_search_state", "DROP TABLE message_search_ddl"]:
        op.execute(sa.text(statement))


def _note(part: str, statement: str) -> None:
    place = sa.text("(SELECT count(*) FROM message_search_ddl)")
    table = sa.table(
        "message_search_ddl",
        sa.column("place", sa.Integer),
        *[sa.column(name, sa.Text) for name in ("part", "statement")],
    )
    op.execute(sa.insert(table).values(place=place, part=part, statement=statement))


def _escaped(statement: str) -> str:
    # A colon before a word would be a parameter.
    return statement.replace(":", "\\:")


def _has_fts5() -> bool:
    if op.get_context().as_sql:
        return True
    return op.get_bind().scalar(sa.text("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'")) is not None


# The names of the tools that a row calls and the texts and numbers of the arguments, without keys and without data in base64.
# CASE fixes the order: the JSON functions fail on malformed text.
_CALL_TEXT = """(
SELECT group_concat(part, ' ') FROM (
    SELECT json_extract(call.value, '$.function.name') AS part, call.key AS place, -1 AS inner_place
    FROM json_each({calls}) AS call
    WHERE call.type = 'object' AND json_type(call.value, '$.function.name') = 'text'
    UNION ALL
    SELECT leaf.atom, argument.place, leaf.id
    FROM (SELECT place, CASE WHEN json_valid(text) THEN text ELSE json_quote(text) END AS text FROM (
            SELECT call.key AS place, CAST(json_extract(call.value, '$.function.arguments') AS TEXT) AS text
            FROM json_each({calls}) AS call WHERE call.type = 'object')
        WHERE text IS NOT NULL) AS argument,
        json_tree(argument.text) AS leaf
    WHERE leaf.type IN ('text', 'integer', 'real') AND leaf.atom NOT LIKE 'data:%;base64,%'
    ORDER BY place, inner_place))"""
_CALLS = """CASE WHEN NOT json_valid({row}.tool_calls) THEN '[]'
    WHEN json_type({row}.tool_calls) <> 'array' THEN '[]' ELSE {row}.tool_calls END"""


def _call_text(row: str) -> str:
    return _CALL_TEXT.format(calls=_CALLS.format(row=row))


_TEXTS_OF = "SELECT {operation}id, content, tool_name, calls FROM message_texts WHERE id = {row}.id"
_COLUMNS = ("id", "role", "content", "tool_name", "tool_calls")
_DIFFERS = " OR ".join(f"OLD.{name} IS NOT NEW.{name}" for name in _COLUMNS)
# While the index is built in parts, only the rows that it already holds are followed.
_THROUGH = "{row}.id <= (SELECT CAST(value AS INTEGER) FROM message_search_state WHERE name = 'through')"
# In text of ASCII alone the bytes are as many as the characters, which is far cheaper to see.
_HOLDS_UNSPACED = " OR ".join(
    f"CASE WHEN length(CAST({name} AS BLOB)) = length({name}) THEN false "
    f"ELSE {name} GLOB '*[{_UNSPACED.encode().decode('unicode_escape')}]*' END"
    for name in ("content", "tool_name", "calls")
)
_KEEP_TEXTS = f"""INSERT INTO message_call_texts (message_id, text)
    SELECT NEW.id, text FROM (SELECT {_call_text("NEW")} AS text) WHERE NEW.tool_calls IS NOT NULL AND text IS NOT NULL;
    INSERT INTO message_unspaced (message_id) SELECT id FROM message_texts WHERE id = NEW.id AND ({_HOLDS_UNSPACED});"""


def _triggers(*indices: str) -> list[str]:
    enter = _KEEP_TEXTS + "".join(
        f" INSERT INTO {index} (rowid, content, tool_name, calls) {_TEXTS_OF.format(operation='', row='NEW')};"
        for index in indices
    )
    leaving = _TEXTS_OF.format(operation="'delete', ", row="OLD")
    leave = "".join(
        f"INSERT INTO {index} ({index}, rowid, content, tool_name, calls) {leaving}; " for index in indices
    )
    for table in ("message_call_texts", "message_unspaced"):
        leave += f"DELETE FROM {table} WHERE message_id = OLD.id;"
    of_columns = f"UPDATE OF {', '.join(_COLUMNS)} ON messages WHEN ({_DIFFERS}) AND"
    old, new = _THROUGH.format(row="OLD"), _THROUGH.format(row="NEW")
    return [
        f"CREATE TRIGGER messages_search_added AFTER INSERT ON messages WHEN {new} BEGIN {enter} END",
        f"CREATE TRIGGER messages_search_leaving BEFORE {of_columns} {old} BEGIN {leave} END",
        f"CREATE TRIGGER messages_search_changed AFTER {of_columns} {new} BEGIN {enter} END",
        f"CREATE TRIGGER messages_search_removed BEFORE DELETE ON messages WHEN {old} BEGIN {leave} END",
    ]


_TEXTS = f"""messages.id AS id,
        CASE messages.role WHEN 'tool' THEN substr(messages.content, 1, {_TOOL_CHARACTERS}) ELSE messages.content END AS content,
        messages.tool_name AS tool_name"""
# FTS5 takes code points that it does not know for letters, pictures of faces among them.
_PICTURES = "".join(map(chr, range(0x1F000, 0x1FB00)))
_UNICODE = f"\"unicode61 remove_diacritics 0 separators '{_PICTURES}'\""
_FTS5 = "fts5(content, tool_name, calls, content='message_texts', content_rowid='id', tokenize={tokenizer})"
_CALLS_OF_ROWS = f"""INSERT INTO message_call_texts (message_id, text)
    SELECT id, text FROM (SELECT messages.id AS id, {_call_text("messages")} AS text FROM messages
        WHERE tool_calls IS NOT NULL AND {{part}})
    WHERE text IS NOT NULL"""
_UNSPACED_ROWS = f"""INSERT INTO message_unspaced (message_id)
    SELECT id FROM message_texts WHERE {{part}} AND ({_HOLDS_UNSPACED})"""
_FILL = [
    "DELETE FROM message_call_texts",
    "DELETE FROM message_unspaced",
    _CALLS_OF_ROWS.format(part="true"),
    _UNSPACED_ROWS.format(part="true"),
    "INSERT INTO messages_fts (messages_fts) VALUES ('rebuild')",
]
_PART_OF_INDEX = """INSERT INTO {index} (rowid, content, tool_name, calls)
    SELECT id, content, tool_name, calls FROM message_texts WHERE id > :after AND id <= :through"""
_STEP = [
    _CALLS_OF_ROWS.format(part="messages.id > :after AND messages.id <= :through"),
    _UNSPACED_ROWS.format(part="id > :after AND id <= :through"),
    _PART_OF_INDEX.format(index="messages_fts"),
]
_SQLITE = [
    ("texts", [
        "CREATE TABLE message_call_texts (message_id INTEGER NOT NULL PRIMARY KEY, text TEXT NOT NULL)",
        "CREATE TABLE message_unspaced (message_id INTEGER NOT NULL PRIMARY KEY)",
        f"""CREATE VIEW message_texts AS SELECT {_TEXTS}, message_call_texts.text AS calls
        FROM messages LEFT JOIN message_call_texts ON message_call_texts.message_id = messages.id""",
        f"""CREATE VIEW message_plain_texts AS SELECT {_TEXTS},
        CASE WHEN messages.tool_calls IS NOT NULL THEN {_call_text("messages")} END AS calls FROM messages""",
    ]),
    ("index", [f"CREATE VIRTUAL TABLE messages_fts USING {_FTS5.format(tokenizer=_UNICODE)}"]),
    ("triggers", _triggers("messages_fts")),
    ("fill", _FILL),
    ("step", _STEP),
    ("trigram index", [f"CREATE VIRTUAL TABLE messages_trigram USING {_FTS5.format(tokenizer='trigram')}"]),
    ("trigram step", [_PART_OF_INDEX.format(index="messages_trigram")]),
    ("trigram triggers", _triggers("messages_fts", "messages_trigram")),
]  # fmt: skip
_DOWNGRADE_SQLITE = [
    *[
        f"DROP TRIGGER IF EXISTS messages_search_{name}"
        for name in ("added", "leaving", "changed", "removed")
    ],
    "DROP TABLE IF EXISTS messages_trigram",
    "DROP TABLE IF EXISTS messages_fts",
    "DROP VIEW message_plain_texts",
    "DROP VIEW message_texts",
    "DROP TABLE message_call_texts",
    "DROP TABLE message_unspaced",
]

_FUNCTIONS = (
    "words(text)",
    "json(text)",
    "calls(json)",
    "vector(text, text, text, json)",
    "added()",
    "changed()",
    "removed()",
)
# What the whole transaction must know of is passed on; anything else breaks the index only.
_LOST = """EXCEPTION
    WHEN transaction_rollback OR insufficient_resources OR operator_intervention OR lock_not_available THEN RAISE;
    WHEN OTHERS THEN UPDATE message_search_state SET value = 'degraded' WHERE name = 'index' AND value IN ('on', 'building');"""
_WRITE = """INSERT INTO message_search (message_id, session_id, words)
    SELECT id, session_id, hermes_search_vector(role, content, tool_name, tool_calls) FROM {rows}
    ON CONFLICT (message_id) DO UPDATE SET session_id = excluded.session_id, words = excluded.words;"""


def _postgresql() -> list[tuple[str, list[str]]]:
    changed = " OR ".join(
        f"OLD.{name} IS DISTINCT FROM NEW.{name}" for name in _COLUMNS if name != "tool_calls"
    )
    changed += " OR OLD.tool_calls::text IS DISTINCT FROM NEW.tool_calls::text"
    functions = [
        # Words as a search compares them: lower case, signs as blanks, letters of scripts without blanks each for itself.
        rf"""CREATE FUNCTION hermes_search_words(given text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
        SELECT regexp_replace(regexp_replace(lower(given {_collation()}), '[{_SIGNS}]+', ' ', 'g'), '([{_UNSPACED}])', ' \1 ', 'g') $$""",
        # JSON text as jsonb; NULL for what jsonb cannot hold. An escaped NUL or half a surrogate pair becomes U+FFFD.
        r"""CREATE FUNCTION hermes_search_json(given text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
        BEGIN
            RETURN given::jsonb;
        EXCEPTION WHEN OTHERS THEN
            BEGIN
                RETURN regexp_replace(given, '(?<!\\)((?:\\\\)*)\\u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2})', '\1\\ufffd', 'g')::jsonb;
            EXCEPTION WHEN OTHERS THEN
                RETURN NULL;
            END;
        END $$""",
        """CREATE FUNCTION hermes_search_calls(given json) RETURNS text LANGUAGE sql IMMUTABLE AS $$
        SELECT string_agg(concat_ws(' ', call.value #>> '{function,name}', (
            SELECT string_agg(leaf #>> '{}', ' ')
            FROM (SELECT CASE jsonb_typeof(call.value #> '{function,arguments}')
                WHEN 'string' THEN coalesce(hermes_search_json(call.value #>> '{function,arguments}'),
                    call.value #> '{function,arguments}')
                ELSE call.value #> '{function,arguments}' END AS value) AS argument,
                jsonb_path_query(argument.value, 'strict $.**') AS leaf
            WHERE jsonb_typeof(leaf) IN ('string', 'number') AND leaf #>> '{}' NOT LIKE 'data:%;base64,%')), ' '
            ORDER BY call.place)
        FROM (SELECT hermes_search_json(given::text) AS value) AS calls,
            jsonb_array_elements(CASE jsonb_typeof(calls.value) WHEN 'array' THEN calls.value ELSE '[]' END)
                WITH ORDINALITY AS call (value, place)
        WHERE jsonb_typeof(call.value) = 'object' $$""",
        f"""CREATE FUNCTION hermes_search_vector(role text, content text, tool_name text, tool_calls json)
        RETURNS tsvector LANGUAGE sql IMMUTABLE AS $$
        SELECT to_tsvector('simple', hermes_search_words(left(concat_ws(E'\\n',
            left(content, CASE role WHEN 'tool' THEN {_TOOL_CHARACTERS} ELSE {_MOST_CHARACTERS} END),
            left(tool_name, {_TOOL_CHARACTERS}), hermes_search_calls(tool_calls)), {_MOST_CHARACTERS}))) $$""",
        *[_trigger_function(name, work) for name, work in (
            ("added", _WRITE.format(rows="added")),
            ("changed", "DELETE FROM message_search WHERE message_id = OLD.id AND OLD.id <> NEW.id; "
             + _WRITE.format(rows="(SELECT NEW.*) AS changed")),
            ("removed", "DELETE FROM message_search WHERE message_id IN (SELECT id FROM removed);"),
        )],
        f"""CREATE VIEW message_texts AS SELECT id,
        CASE role WHEN 'tool' THEN left(content, {_TOOL_CHARACTERS}) ELSE content END AS content, tool_name,
        hermes_search_calls(tool_calls) AS calls FROM messages""",
    ]  # fmt: skip
    update = f"""CREATE TRIGGER messages_search_changed AFTER UPDATE OF {", ".join(_COLUMNS)} ON messages
        FOR EACH ROW WHEN ({changed}) EXECUTE FUNCTION hermes_search_changed()"""
    return [
        ("texts", functions),
        ("index", _TABLE_OF_POSTGRESQL),
        ("triggers", [*_TRIGGERS_OF_POSTGRESQL, update]),
        ("fill", ["TRUNCATE message_search", _WRITE.format(rows="messages").rstrip(";")]),
        ("step", [_WRITE.format(rows=_LOCKED_PART).rstrip(";")]),
    ]


# Locked, so that no text is written that somebody is just changing.
_LOCKED_PART = "(SELECT * FROM messages WHERE id > :after AND id <= :through FOR SHARE) AS part"
_TABLE_OF_POSTGRESQL = [
    (
        'CREATE TABLE message_search (message_id BIGINT NOT NULL PRIMARY KEY, session_id TEXT COLLATE "C" NOT NULL, '
        "words TSVECTOR NOT NULL)"
    ),
    "CREATE INDEX ix_message_search__words ON message_search USING gin (words)",
]
_TRIGGERS_OF_POSTGRESQL = [
    (
        "CREATE TRIGGER messages_search_added AFTER INSERT ON messages REFERENCING NEW TABLE AS added "
        "FOR EACH STATEMENT EXECUTE FUNCTION hermes_search_added()"
    ),
    (
        "CREATE TRIGGER messages_search_removed AFTER DELETE ON messages REFERENCING OLD TABLE AS removed "
        "FOR EACH STATEMENT EXECUTE FUNCTION hermes_search_removed()"
    ),
]


_DOWNGRADE_POSTGRESQL = [
    *[
        f"DROP TRIGGER IF EXISTS messages_search_{name} ON messages"
        for name in ("added", "changed", "removed")
    ],
    "DROP VIEW message_texts",
    "DROP TABLE IF EXISTS message_search",
    *[f"DROP FUNCTION IF EXISTS hermes_search_{name}" for name in _FUNCTIONS],
]


def _trigger_function(name: str, work: str) -> str:
    # A broken index must block no write (field report K10).
    return f"CREATE FUNCTION hermes_search_{name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {work} RETURN NULL; {_LOST} RETURN NULL; END $$"


def _collation() -> str:
    # Under the locale C lower() knows ASCII only.
    if op.get_context().as_sql:
        return ""
    stmt = sa.text("SELECT 1 FROM pg_catalog.pg_collation WHERE collname = 'und-x-icu'")
    return 'COLLATE "und-x-icu"' if op.get_bind().scalar(stmt) is not None else ""
