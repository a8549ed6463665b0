"""Stores and conversations on the move: adoption, copies, exports, imports, transcripts, backups.

What programs call is found here; each part is loaded when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_state.transfer.adoption import adopt_store
    from hermes_state.transfer.copying import copy_store
    from hermes_state.transfer.exports import write_json_lines, write_page
    from hermes_state.transfer.imports import import_file

__all__ = ["adopt_store", "copy_store", "import_file", "write_json_lines", "write_page"]

_PLACES = {
    "adopt_store": "adoption",
    "copy_store": "copying",
    "import_file": "imports",
    "write_json_lines": "exports",
    "write_page": "exports",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
