"""Holders that say which process they are, so that others can tell whether it still runs (issue 3, item 4).

Only Linux gives the proof: a boot id, namespaces and the start time of each process. Elsewhere a holder is just a
name, and its leases end by their expiry.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
from pathlib import Path
from uuid import uuid4

from hermes_state.repositories.base import require_id

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACES = Path("/proc/self/ns")
_PROCESSES = Path("/proc")
_LOCAL = re.compile(
    r"process:(?P<place>[0-9a-f]{32}):(?P<pid>[1-9][0-9]{0,9}):(?P<started>[0-9]{1,20}):.*", re.DOTALL
)
_token = uuid4().hex


def local_lease_holder(label: str = "") -> str:
    """A lease holder for the current process; the same text at every call with the same ``label``.

    Its leases are reclaimed by the next acquisition on this machine once the process is provably gone (Linux); on
    other systems they end by their expiry. Turns that run side by side in one process need a label each, since one
    holder may acquire its own lease again. Raises ``InvalidArgumentError`` for a label that makes no holder id: NUL,
    surrogates, or more than 512 characters in all.
    """
    pid, place = os.getpid(), _place()
    started = None if place is None else _state_of(pid)
    if started is None:
        return require_id("label", f"name:{_token}:{pid}:{label}")
    return require_id("label", f"process:{place}:{pid}:{started[0]}:{label}")


def is_gone(holder: str) -> bool:
    """Whether ``holder`` names a process of this machine, boot and namespace that has provably ended.

    Anything in doubt is ``False``: other machines, other forms of holder, processes that cannot be looked at.
    """
    named = _LOCAL.fullmatch(holder)
    if named is None or named["place"] != _place():
        return False
    pid = int(named["pid"])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        # Somebody else's process, or no pid at all; /proc may hide it, so its absence there proves nothing.
        return False
    state = _state_of(pid)
    return state is not None and (state[0] != named["started"] or state[1])


def _place() -> str | None:
    """What must be equal for pids and start times to be comparable; ``None`` where the system does not tell."""
    try:
        parts = [socket.gethostname(), _BOOT_ID.read_text().strip(), os.readlink(_NAMESPACES / "pid")]
    except OSError:
        return None
    try:
        # Start times are shown relative to the reader's time namespace, which older kernels do not have.
        parts.append(os.readlink(_NAMESPACES / "time"))
    except OSError:
        parts.append("")
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _state_of(pid: int) -> tuple[str, bool] | None:
    """Start time of a process, and whether nothing of it runs any more; ``None`` when it cannot be read."""
    try:
        stat = (_PROCESSES / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # The name of the program stands in parentheses and may hold anything, more of them included.
    fields = stat.rpartition(b")")[2].split()
    if len(fields) < 20:
        return None
    # A main thread that has ended leaves a zombie too; the process lives while it has other threads.
    is_over = fields[0] in (b"Z", b"X") and int(fields[17]) <= 1
    return fields[19].decode(), is_over
