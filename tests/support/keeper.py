"""Runs a PostgreSQL server and stops it when the tests are gone, even when they were killed.

``keeper.py POSTGRES ARGUMENT...``: standard input is a pipe that only the tests hold; its end is the signal.
As root the keeper becomes the user ``postgres`` first: the server refuses to run as root.
"""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
import threading


def become_postgres() -> None:
    """Changes the user of this process for good, when it is root's."""
    if os.geteuid() == 0:
        user = pwd.getpwnam("postgres")
        os.setgroups([])
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)


def main() -> int:
    """Runs the server until it ends by itself or the pipe does."""
    become_postgres()
    server = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)

    def stop_at_the_end_of_the_pipe() -> None:
        sys.stdin.buffer.read()
        server.send_signal(signal.SIGINT)  # PostgreSQL's fast shutdown

    threading.Thread(target=stop_at_the_end_of_the_pipe, daemon=True).start()
    return server.wait()


if __name__ == "__main__":
    sys.exit(main())
