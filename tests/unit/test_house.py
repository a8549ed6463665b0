"""The house rules that a machine can hold: DESIGN.md section 2, CONTRIBUTING.md."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

import hermes_state
from hermes_state.models import metadata

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "hermes_state"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "_migrations" not in path.parts)

# From the ground up: a module imports its own layer and those before it.
LAYERS = (
    ("errors", "driver_errors", "text", "settings", "search_words"),
    ("records", "reports", "checkpoints", "lineage", "json_values", "titles", "transcript_files"),
    ("codec", "payloads", "decoding", "salvage", "alternation", "search_query"),
    ("search_occurrences",),
    ("search_snippets",),
    ("types",),
    ("models",),
    ("engine",),
    ("dialects", "upgrades"),
    ("repositories",),
    ("unit_of_work",),
    ("store",),
    ("agent", "aio", "transfer"),
    ("cli",),
)
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}
KNOWS_DIALECTS = ("dialects", "engine", "types", "models", "upgrades")


def layer_name(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    """The names of this package's modules that the file imports, at any depth."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "hermes_state":
            parts = node.module.split(".")[1:]
            yield from [parts[0]] if parts else (alias.name for alias in node.names)


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    if path == PACKAGE / "__init__.py":
        return
    own = LAYER[layer_name(path)]
    above = [name for name in imported(path) if LAYER.get(name, own) > own]
    assert above == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_functions_have_60_lines_and_modules_400_at_most(path: Path) -> None:
    long = [f.name for f in functions(path) if (f.end_lineno or 0) - f.lineno + 1 > 60]
    assert long == []
    assert path.read_text().count("\n") < 400


@pytest.mark.parametrize(
    "path",
    [path for path in MODULES if layer_name(path) not in (*KNOWS_DIALECTS, "cli")],
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_only_the_lower_layers_ask_which_database_it_is(path: Path) -> None:
    asked = [
        ast.unparse(node)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Compare) and "dialect" in ast.unparse(node)
    ]
    assert asked == []


def test_migrations_import_nothing_of_the_package() -> None:
    allowed = {"alembic", "sqlalchemy", "__future__", "typing", "collections"}
    for path in sorted((ROOT / "migrations" / "versions").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] in allowed, path
            if isinstance(node, ast.Import):
                assert {alias.name.split(".")[0] for alias in node.names} <= allowed, path


def test_importing_the_package_loads_neither_alembic_nor_a_server_driver_nor_the_command_line() -> None:
    code = (
        "import sys, hermes_state; print(sorted({'alembic', 'psycopg', 'typer', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
        env={"PYTHONPATH": "."},
    )
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there_and_says_what_it_is() -> None:
    assert sorted(hermes_state.__all__) == sorted(set(hermes_state.__all__))
    for name in hermes_state.__all__:
        value = getattr(hermes_state, name)
        assert not callable(value) or value.__doc__, name


def test_every_error_is_public_and_stands_in_the_one_tree() -> None:
    from hermes_state import errors

    found = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception) and value.__module__ == errors.__name__
    }
    assert found <= set(hermes_state.__all__)
    assert all(issubclass(getattr(errors, name), errors.HermesStateError) for name in found)


def test_no_key_spans_sessions_other_than_through_the_sessions_table() -> None:
    for table in metadata.tables.values():
        assert {key.column.table.name for key in table.foreign_keys} <= {"sessions"}
    unique = [
        constraint
        for constraint in metadata.tables["messages"].constraints
        if isinstance(constraint, sa.UniqueConstraint)
    ]
    assert all("session_id" in constraint.columns for constraint in unique)
