"""The built wheel, installed into a clean environment, works from any directory (issue 2, item 1)."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from hermes_state.models import metadata
from hermes_state.upgrades import HEAD
from tests.support import catalogue
from tests.support.raw import RawSql

ROOT = Path(__file__).parents[2]
TABLES = {*metadata.tables, "alembic_version"}

pytestmark = pytest.mark.slow


def run(*command: object, cwd: Path) -> str:
    # Nothing of the checkout may be found by accident.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the source distribution and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new virtual environment that holds the wheel.

    The dependencies are those of the environment of the tests, so that nothing is downloaded: its folder of packages is
    added by path, which leaves out what its own .pth files name, such as an editable install of the checkout.
    """
    folder = tmp_path_factory.mktemp("clean")
    run(sys.executable, "-m", "venv", folder, cwd=folder)
    programs = folder / "bin"
    run(programs / "python", "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=folder)
    place = run(
        programs / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder
    )
    (Path(place.strip()) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return programs


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


@pytest.fixture
def empty_url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if backend == "sqlite":
        return f"sqlite:///{tmp_path / 'new.db'}"
    return str(request.getfixturevalue("fresh_postgres_url"))


def test_the_wheel_holds_the_package_and_the_migrations_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "hermes_state/__init__.py",
        "hermes_state/py.typed",
        "hermes_state/_migrations/env.py",
        "hermes_state/_migrations/script.py.mako",
        "hermes_state/_migrations/versions/0001_sessions_and_messages.py",
        "hermes_state/_migrations/versions/0002_leases.py",
        "hermes_state/_migrations/versions/0003_superseded_by.py",
        "hermes_state/_migrations/versions/0004_compacted_index.py",
        "hermes_state/_migrations/versions/0005_message_reactions.py",
        "hermes_state/_migrations/versions/0006_usage.py",
        "hermes_state/_migrations/versions/0007_text_in_one_order.py",
    } <= names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"hermes_state"}
    assert not [name for name in names if "__pycache__" in name or name.endswith(".db")]
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "hermes_state").rglob("*.py")}
    assert modules <= names


def test_the_metadata_names_extras_script_and_license(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        folder = next(name for name in archive.namelist() if name.endswith("METADATA")).rpartition("/")[0]
        metadata = Parser().parsestr(archive.read(f"{folder}/METADATA").decode())
        scripts = archive.read(f"{folder}/entry_points.txt").decode()
    assert metadata["Name"] == "hermes-state"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "MIT"
    assert {"postgres", "async", "dev"} <= set(metadata.get_all("Provides-Extra", []))
    assert "hermes-state = hermes_state.cli.main:app" in scripts


def test_the_source_distribution_can_run_the_tests(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "alembic.ini",
        "migrations/env.py",
        "migrations/versions/0001_sessions_and_messages.py",
        "hermes_state/upgrades.py",
        "tests/conftest.py",
        "README.md",
        "LICENSE",
    } <= names


def test_an_installed_package_upgrades_a_database_from_another_directory(
    environment: Path, elsewhere: Path, empty_url: str, backend: str
) -> None:
    upgraded = run(environment / "hermes-state", "--url", empty_url, "upgrade", cwd=elsewhere)
    assert upgraded == f"{HEAD}\n"
    run(environment / "hermes-state", "--url", empty_url, "check", cwd=elsewhere)
    reader = RawSql(empty_url)
    assert catalogue.tables(reader, backend) == TABLES
    reader.close()
    run(environment / "hermes-state", "--url", empty_url, "downgrade", "base", cwd=elsewhere)
    assert list(elsewhere.iterdir()) == []


def test_an_installed_package_works_with_its_own_files(environment: Path, elsewhere: Path) -> None:
    code = "import hermes_state.upgrades as it; print(it.__file__); print(it.script_location())"
    module, scripts = map(Path, run(environment / "python", "-c", code, cwd=elsewhere).splitlines())
    assert environment.parent in module.parents
    assert scripts == module.parent / "_migrations"


def test_opening_an_upgraded_store_imports_neither_alembic_nor_a_server_driver(
    environment: Path, elsewhere: Path
) -> None:
    code = "import sys, hermes_state; hermes_state.SessionDB('state.db').close(); print('alembic' in sys.modules)"
    assert run(environment / "python", "-c", code, cwd=elsewhere) == "True\n"
    again = f"{code}; print('psycopg' in sys.modules)"
    assert run(environment / "python", "-c", again, cwd=elsewhere) == "False\nFalse\n"
