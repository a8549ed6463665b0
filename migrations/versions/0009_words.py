"""Both databases split texts at the same signs, and the index of PostgreSQL is smaller.

SQLite: FTS5 takes letters of scripts without blanks, which are most of what it does not know, for letters of words; now they divide
words, so that a word beside them is in the index and need not be looked for in the texts. PostgreSQL: the words of a message without
their places, only the repeated ones with their number, and no words of to_tsvector's own making. What was switched off stays off; what was
being built is to be built anew (doctor --repair). It imports nothing of the package: this file must mean the same for ever
(DESIGN.md, decision 8).
"""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa
from alembic import context, op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None
rebuilds_tables = False

# Scripts without blanks between words.
_UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1100-\u139f\u1780-\u17ff\u2d80-\u2ddf\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029"
    r"\u3031-\u303c\u3040-\u4dbf\u4e00-\ua4cf\ua960-\ua97f\uaa60-\uaadf\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc"
    r"\U00010000-\U0001cfff\U00020000-\U0003ffff"
)
# What Unicode 14 calls punctuation, symbol, separator, control or format, with selectors and pictures.
_SIGNS = (
    r"\u0001-\u002f\u003a-\u0040\u005b-\u0060\u007b-\u00a9\u00ab-\u00b1\u00b4\u00b6-\u00b8\u00bb\u00bf\u00d7\u00f7"
    r"\u02c2-\u02c5\u02d2-\u02df\u02e5-\u02eb\u02ed\u02ef-\u02ff\u0375\u037e\u0384-\u0385\u0387\u03f6\u0482"
    r"\u055a-\u055f\u0589-\u058f\u05be\u05c0\u05c3\u05c6\u05f3-\u060f\u061b-\u061f\u066a-\u066d\u06d4\u06dd-\u06de"
    r"\u06e9\u06fd-\u06fe\u0700-\u070f\u07f6-\u07f9\u07fe-\u07ff\u0830-\u083e\u085e\u0888\u0890-\u0891\u08e2"
    r"\u0964-\u0965\u0970\u09f2-\u09f3\u09fa-\u09fb\u09fd\u0a76\u0af0-\u0af1\u0b70\u0bf3-\u0bfa\u0c77\u0c7f\u0c84"
    r"\u0d4f\u0d79\u0df4\u0f01-\u0f17\u0f1a-\u0f1f\u0f34\u0f36\u0f38\u0f3a-\u0f3d\u0f85\u0fbe-\u0fc5\u0fc7-\u0fda"
    r"\u10fb\u1400\u166d-\u166e\u1680\u169b-\u169c\u16eb-\u16ed\u1735-\u1736\u1800-\u180a\u180e\u1940-\u1945"
    r"\u19de-\u19ff\u1a1e-\u1a1f\u1aa0-\u1aa6\u1aa8-\u1aad\u1b5a-\u1b6a\u1b74-\u1b7e\u1bfc-\u1bff\u1c3b-\u1c3f"
    r"\u1c7e-\u1c7f\u1cc0-\u1cc7\u1cd3\u1fbd\u1fbf-\u1fc1\u1fcd-\u1fcf\u1fdd-\u1fdf\u1fed-\u1fef\u1ffd-\u206f"
    r"\u207a-\u207e\u208a-\u208e\u20a0-\u2101\u2103-\u2106\u2108-\u2109\u2114\u2116-\u2118\u211e-\u2123\u2125\u2127"
    r"\u2129\u212e\u213a-\u213b\u2140-\u2144\u214a-\u214d\u214f\u218a-\u244a\u249c-\u24e9\u2500-\u2775\u2794-\u2bff"
    r"\u2ce5-\u2cea\u2cf9-\u2cfc\u2cfe-\u2cff\u2d70\u2e00-\u2e2e\u2e30-\u2e5d\u2ff0-\u3004\u3008-\u3020\u3030"
    r"\u303d-\u303f\u4dc0-\u4dff\ua4fe-\ua4ff\ua60d-\ua60f\ua673\ua67e\ua6f2-\ua716\ua720-\ua721\ua789-\ua78a"
    r"\ua828-\ua82b\ua836-\ua839\ua874-\ua877\ua8ce-\ua8cf\ua8f8-\ua8fa\ua8fc\ua92e-\ua92f\ua95f\ua9c1-\ua9cd"
    r"\ua9de-\ua9df\uaa5c-\uaa5f\uaaf0-\uaaf1\uab5b\uab6a-\uab6b\uabeb\ufb29\ufbb2-\ufbc2\ufd3e-\ufd4f\ufdcf"
    r"\ufdfc-\ufe19\ufe30-\ufe6b\ufeff-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65\uffe0-\uffff\U0001d000-\U0001d164"
    r"\U0001d16a-\U0001d16c\U0001d173-\U0001d17a\U0001d183-\U0001d184\U0001d18c-\U0001d1a9\U0001d1ae-\U0001d241"
    r"\U0001d245\U0001d300-\U0001d356\U0001d6c1\U0001d6db\U0001d6fb\U0001d715\U0001d735\U0001d74f\U0001d76f\U0001d789"
    r"\U0001d7a9\U0001d7c3\U0001d800-\U0001d9ff\U0001da37-\U0001da3a\U0001da6d-\U0001da74\U0001da76-\U0001da83"
    r"\U0001da85-\U0001da8b\U0001e14f\U0001e2ff\U0001e95e-\U0001e95f\U0001ecac\U0001ecb0\U0001ed2e"
    r"\U0001eef0-\U0001fbca\U000e0001-\U000e007f"
)
_TOOL_CHARACTERS = 8192
_MOST_CHARACTERS = 200_000
# GIN takes no lexeme of more than 2,046 bytes.
_LONGEST_WORD = 500
# The rank of a word in a message hardly grows any more behind eight.
_PLACES = "1,2,3,4,5,6,7,8"


def upgrade() -> None:
    if op.get_context().dialect.name == "sqlite":
        _upgrade_sqlite()
    else:
        _upgrade_postgresql()
    if not op.get_context().as_sql:
        op.execute(
            "UPDATE message_search_state SET value = 'degraded' WHERE name = 'index' AND value = 'building'"
        )


def downgrade() -> None:
    """The index of 0008 is built anew, also where it was switched off."""
    if op.get_context().dialect.name == "sqlite":
        _drop_index()
    previous = context.script.get_revision("0008").module
    previous.downgrade()
    if op.get_context().dialect.name == "postgresql":
        op.execute("DROP FUNCTION hermes_search_query(text, text, text)")
    previous.upgrade()


def _upgrade_sqlite() -> None:
    if not _parts():
        return  # a SQLite without FTS5
    _note({"index": [_index_statement()]})
    if _state() == "on":
        _drop_index()
        op.execute(_create_index())
        op.execute("INSERT INTO messages_fts (messages_fts) VALUES ('rebuild')")


def _upgrade_postgresql() -> None:
    _note({"index": [_TABLE, _INDEX], "fill": _FILL, "step": [_WRITE.format(rows=_LOCKED_PART).rstrip(";")]})
    for function in _functions():
        op.execute(sa.text(function.replace(":", "\\:")))
    state = _state()
    if state != "off":
        if not op.get_context().as_sql and not op.get_bind().scalar(sa.text(_IS_WHOLE)):
            op.execute("DROP TABLE IF EXISTS message_search CASCADE")
        for statement in _RENEW if state == "on" else [*_RENEW_EMPTY, _INDEX]:
            op.execute(sa.text(statement))


def _state() -> str:
    stmt = "SELECT value FROM message_search_state WHERE name = 'index'"
    return "on" if op.get_context().as_sql else str(op.get_bind().scalar(sa.text(stmt)))


def _parts() -> bool:
    stmt = "SELECT count(*) FROM message_search_ddl WHERE part = 'index'"
    return op.get_context().as_sql or bool(op.get_bind().scalar(sa.text(stmt)))


def _note(parts: dict[str, list[str]]) -> None:
    ddl = sa.table(
        "message_search_ddl",
        sa.column("place", sa.Integer),
        *[sa.column(name, sa.Text) for name in ("part", "statement")],
    )
    place = sa.text("(SELECT coalesce(max(place), 0) + 1 FROM message_search_ddl)")
    for part, statements in parts.items():
        op.execute(sa.delete(ddl).where(ddl.c.part == part))
        for statement in statements:
            op.execute(sa.insert(ddl).values(place=place, part=part, statement=statement))


def _ranges(characters: str) -> Iterator[tuple[int, int]]:
    """First and last code point of each range of a regular expression's class."""
    left = list(map(ord, reversed(characters.encode().decode("unicode_escape"))))
    while left:
        first = last = left.pop()
        if left and left[-1] == ord("-"):
            left.pop()
            last = left.pop()
        yield first, last


# SQLite.

_BEFORE_SEPARATORS = """CREATE VIRTUAL TABLE messages_fts USING fts5(content, tool_name, calls, content='message_texts',
    content_rowid='id', tokenize="unicode61 remove_diacritics 0 categories 'L* N* M* Co' separators '"""
_BEHIND_SEPARATORS = "'\")"
_SHADOWS = ("data", "idx", "content", "docsize", "config")


def _separators() -> list[tuple[int, int]]:
    """Beyond ASCII, whose signs FTS5 knows, and below the rare letters of unspaced scripts beyond U+FFFF, which would be too many."""
    of_letters = [each for each in _ranges(_UNSPACED) if each[1] <= 0xFFFF]
    of_signs = [(max(first, 0x80), last) for first, last in _ranges(_SIGNS) if last >= 0x80]
    return of_letters + of_signs


def _create_index() -> sa.TextClause:
    # From the last to the first: FTS5 takes six times as long to sort them otherwise, each time that a connection meets the index.
    points = sorted(
        (point for first, last in _separators() for point in range(first, last + 1)), reverse=True
    )
    return sa.text(_BEFORE_SEPARATORS + "".join(map(chr, points)) + _BEHIND_SEPARATORS)


def _index_statement() -> str:
    """A SELECT of the statement, which has a hundred and fifty thousand bytes."""
    before, behind = (
        "'" + part.replace("'", "''") + "'" for part in (_BEFORE_SEPARATORS, _BEHIND_SEPARATORS)
    )
    values = ", ".join(f"({first}, {last})" for first, last in _separators())
    return f"""SELECT {before} || group_concat(char(point), '') || {behind} FROM (
    WITH RECURSIVE points (point, last) AS (
        SELECT column1, column2 FROM (VALUES {values})
        UNION ALL SELECT point + 1, last FROM points WHERE point < last)
    SELECT point FROM points ORDER BY point DESC)"""


def _drop_index() -> None:
    """FTS5 must open an index to drop it, which a damaged one does not allow; so its entry goes, then its tables."""
    try:
        op.execute("DROP TABLE IF EXISTS messages_fts")
    except sa.exc.DBAPIError:
        op.execute("PRAGMA writable_schema = ON")
        op.execute("DELETE FROM sqlite_master WHERE type = 'table' AND name = 'messages_fts'")
        op.execute("PRAGMA writable_schema = RESET")
        for part in _SHADOWS:
            op.execute(f"DROP TABLE IF EXISTS messages_fts_{part}")


# PostgreSQL.

_TABLE = "CREATE TABLE message_search (message_id BIGINT NOT NULL PRIMARY KEY, words TSVECTOR NOT NULL)"
# A short list of what is not yet in its place: it is read by every search, and takes room.
_INDEX = "CREATE INDEX ix_message_search__words ON message_search USING gin (words) WITH (gin_pending_list_limit = 64)"
_WRITE = """INSERT INTO message_search (message_id, words)
    SELECT id, hermes_search_vector(role, content, tool_name, tool_calls) FROM {rows}
    ON CONFLICT (message_id) DO UPDATE SET words = excluded.words;"""
_FILL = ["TRUNCATE message_search", _WRITE.format(rows="messages").rstrip(";")]
# Locked, so that no text is written that somebody is just changing.
_LOCKED_PART = "(SELECT * FROM messages WHERE id > :after AND id <= :through FOR SHARE) AS part"
# As 0008 made it: its columns and its key, and no constraint of anybody else's.
_IS_WHOLE = """SELECT (SELECT count(*) FROM pg_catalog.pg_attribute WHERE attrelid = to_regclass('message_search') AND NOT attisdropped
        AND attname IN ('message_id', 'session_id', 'words')) = 3
    AND (SELECT string_agg(contype::text, '') FROM pg_catalog.pg_constraint
        WHERE conrelid = to_regclass('message_search') AND contype <> 'n') = 'p'"""
# The table stays where it is whole, and so does who may use it.
_RENEW_EMPTY = [
    _TABLE.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"),
    "DROP INDEX IF EXISTS ix_message_search__words",
    "TRUNCATE message_search",
    "ALTER TABLE message_search DROP COLUMN IF EXISTS session_id",
    "ALTER TABLE message_search ADD COLUMN IF NOT EXISTS words TSVECTOR NOT NULL",
]
_RENEW = [*_RENEW_EMPTY, _FILL[1], _INDEX]
# What the whole transaction must know of is passed on; anything else breaks the index only.
_LOST = """EXCEPTION
    WHEN transaction_rollback OR insufficient_resources OR operator_intervention OR lock_not_available THEN RAISE;
    WHEN OTHERS THEN UPDATE message_search_state SET value = 'degraded' WHERE name = 'index' AND value IN ('on', 'building');"""


def _functions() -> list[str]:
    return [
        # Words as a search compares them: lower case, signs as blanks, letters of scripts without blanks each for itself.
        rf"""CREATE OR REPLACE FUNCTION hermes_search_words(given text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
        SELECT regexp_replace(regexp_replace(lower(given {_collation()}), '[{_SIGNS}]+', ' ', 'g'), '([{_UNSPACED}])', ' \1 ', 'g') $$""",
        # What a search wants of the index: all ('&') or any ('|') of the words of a text, the last one perhaps as a beginning (':*').
        f"""CREATE FUNCTION hermes_search_query(given text, joint text, ending text) RETURNS tsquery
        LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
        SELECT CASE WHEN count(*) = 0 THEN NULL ELSE (string_agg(left(word, {_LONGEST_WORD}), joint ORDER BY place) || ending)::tsquery END
        FROM unnest(string_to_array(hermes_search_words(given), ' ')) WITH ORDINALITY AS words (word, place) WHERE word <> '' $$""",
        f"""CREATE OR REPLACE FUNCTION hermes_search_vector(role text, content text, tool_name text, tool_calls json)
        RETURNS tsvector LANGUAGE sql IMMUTABLE AS $$
        SELECT coalesce(string_agg(CASE times WHEN 1 THEN word ELSE word || ':' || left('{_PLACES}', 2 * times::integer - 1) END, ' '),
            '')::tsvector
        FROM (SELECT left(word, {_LONGEST_WORD}) AS word, count(*) AS times
            FROM unnest(string_to_array(hermes_search_words(left(concat_ws(E'\\n',
                left(content, CASE role WHEN 'tool' THEN {_TOOL_CHARACTERS} ELSE {_MOST_CHARACTERS} END),
                left(tool_name, {_TOOL_CHARACTERS}), hermes_search_calls(tool_calls)), {_MOST_CHARACTERS})), ' ')) AS word
            WHERE word <> '' GROUP BY 1) AS words $$""",
        _trigger_function("added", _WRITE.format(rows="added")),
        _trigger_function(
            "changed",
            "DELETE FROM message_search WHERE message_id = OLD.id AND OLD.id <> NEW.id; "
            + _WRITE.format(rows="(SELECT NEW.*) AS changed"),
        ),
    ]


def _trigger_function(name: str, work: str) -> str:
    # A broken index must block no write (field report K10).
    return (
        f"CREATE OR REPLACE FUNCTION hermes_search_{name}() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN {work} RETURN NULL; {_LOST} RETURN NULL; END $$"
    )


def _collation() -> str:
    # Under the locale C lower() knows ASCII only.
    if op.get_context().as_sql:
        return ""
    stmt = sa.text("SELECT 1 FROM pg_catalog.pg_collation WHERE collname = 'und-x-icu'")
    return 'COLLATE "und-x-icu"' if op.get_bind().scalar(stmt) is not None else ""
