"""Sessions as plain dicts: export with every message whatever its state, import with validation first.

Row ids are not carried over; what a rewound row points to is named by session and uid instead.
"""

from __future__ import annotations

from hermes_state.repositories.exporting import SessionExports
from hermes_state.repositories.importing import SessionImports


class PortableRepository(SessionExports, SessionImports):
    """Export and import of whole sessions."""
