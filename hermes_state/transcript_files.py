"""The files that an agent keeps beside the store for each session (known-store.md 2.12)."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Any

from hermes_state.errors import InvalidArgumentError

_DUMP = "request_dump_"
_ENDINGS = (".jsonl", ".json")


def checked_folder(argument: str, folder: Any) -> str | None:
    """``folder`` as text; ``InvalidArgumentError`` for what is no path."""
    if folder is None:
        return None
    try:
        path: str | bytes = os.fspath(folder)
    except TypeError as error:
        raise InvalidArgumentError(argument, "it must be a path") from error
    if not isinstance(path, str) or not path or "\0" in path:
        raise InvalidArgumentError(argument, "it must be the path of a folder")
    return path


def remove(folder: str, deleted: Collection[str], still_there: Callable[[list[str]], set[str]]) -> None:
    """Removes ``<id>.json``, ``<id>.jsonl`` and ``request_dump_<id>_*.json`` of the deleted sessions; no other file.

    A file belongs to the longest id that fits its name, so ``still_there`` is asked which of the ids exist. The folder is read
    once. What cannot be removed is left: the sessions are gone already.
    """
    gone = set(deleted)
    with suppress(OSError):
        names = [entry.name for entry in os.scandir(folder) if entry.name.endswith(_ENDINGS)]
        owners = {name: ids for name in names if not gone.isdisjoint(ids := list(_possible_owners(name)))}
        others = (
            still_there(sorted({each for ids in owners.values() for each in ids} - gone)) if owners else set()
        )
        for name, ids in owners.items():
            if next(each for each in ids if each in gone or each in others) in gone:
                with suppress(OSError):
                    os.unlink(os.path.join(folder, name))


def _stem(name: str) -> str:
    return next(name.removesuffix(ending) for ending in _ENDINGS if name.endswith(ending))


def _possible_owners(name: str) -> Iterator[str]:
    """The ids whose file this may be, the longest first: that of its whole name, then those whose dump it may be."""
    yield _stem(name)
    if not (name.startswith(_DUMP) and name.endswith(".json")):
        return
    rest = _stem(name)[len(_DUMP) :]
    place = rest.rfind("_")
    while place > 0:
        yield rest[:place]
        place = rest.rfind("_", 0, place)
