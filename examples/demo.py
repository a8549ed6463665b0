"""``make demo``: records real conversations with large checkpoints and shows what is left of them on disk.

It works in a folder ``demo`` of the project, which it empties first, and calls the command line as a user would.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
FOLDER = PROJECT / "demo"
STORE = FOLDER / "state.db"
CHECKPOINT_BYTES = 120_000
SHOWN_LINES = 24


def main() -> None:
    """Runs the demonstration; any failing command ends it with that command's exit code."""
    start_afresh()
    samples = sorted((PROJECT / "examples" / "transcripts").glob("*.jsonl"))
    real = sorted((PROJECT.parent / "shared" / "data" / "transcripts").glob("*.jsonl"))
    files = [str(path) for path in (*samples, *real)]
    found = f"{len(samples)} conversations of our own" + (f" and {len(real)} real ones" if real else "")
    say(f"{found}, every turn with a 120 KB checkpoint")
    run("record", "--checkpoint-bytes", str(CHECKPOINT_BYTES), *files)
    say("The same files once more: nothing is written twice")
    run("record", *files, lines=0)
    say("What the store holds now")
    run("sessions", "list")
    say("One conversation, its first lines")
    run("sessions", "show", "balcony-garden", lines=SHOWN_LINES)
    say("The schema is the one that this release expects")
    run("check")
    say(f"The store is {STORE}: an ordinary SQLite file, {STORE.stat().st_size:,} bytes")


def start_afresh() -> None:
    """Removes the store of an earlier run, and nothing else."""
    FOLDER.mkdir(exist_ok=True)
    for suffix in ("", "-wal", "-shm"):
        Path(f"{STORE}{suffix}").unlink(missing_ok=True)


def run(*arguments: str, lines: int | None = None) -> None:
    """Runs ``hermes-state`` on the demonstration's store and prints its output, the first ``lines`` of it at most."""
    print(f"$ hermes-state --db demo/state.db {shortened(arguments)}", flush=True)
    command = [sys.executable, "-m", "hermes_state.cli", "--db", str(STORE), *arguments]
    done = subprocess.run(command, cwd=PROJECT, stdout=subprocess.PIPE, encoding="utf-8", check=False)
    for line in done.stdout.splitlines()[:lines]:
        print(line, flush=True)
    if done.returncode:
        sys.exit(done.returncode)


def shortened(arguments: tuple[str, ...]) -> str:
    """The arguments as one would type them, with long lists of files cut."""
    words = [Path(word).name if word.endswith(".jsonl") else word for word in arguments]
    shown = words if len(words) <= 6 else [*words[:5], f"... ({len(words) - 5} more)"]
    return " ".join(word if word.startswith("...") else shlex.quote(word) for word in shown)


def say(text: str) -> None:
    """A heading between the commands."""
    print(f"\n== {text}", flush=True)


if __name__ == "__main__":
    main()
