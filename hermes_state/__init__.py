"""The store in which agents keep their conversations.

The public names; importing the package loads neither Alembic nor a database driver.
"""

from __future__ import annotations

from hermes_state.agent import PERSISTED_MARKER, SessionPersistenceMixin, TranscriptFlusher
from hermes_state.checkpoints import drop_shadowed_checkpoints
from hermes_state.errors import (
    CompressionSessionClosedError,
    ConstraintViolationError,
    DowngradeRefusedError,
    HermesStateError,
    InvalidArgumentError,
    InvalidMessageError,
    LeaseHeldError,
    MessageConflictError,
    NotADatabaseError,
    ParentNotFoundError,
    QuerySyntaxError,
    RewindConflictError,
    SchemaAheadError,
    SchemaBehindError,
    SchemaError,
    SchemaMismatchError,
    SessionCompressionInProgressError,
    SessionEndedError,
    SessionExistsError,
    SessionNotFoundError,
    SessionTooLargeError,
    SessionTurnLeaseLostError,
    StoreBusyError,
    StoreClosedError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreIncompleteError,
    StoreReadOnlyError,
    StoreUnavailableError,
    TitleConflictError,
    UndecodableTextError,
    UnitOfWorkOpenError,
)
from hermes_state.records import (
    AnchoredView,
    ConversationMessage,
    ImportReport,
    MessageReaction,
    MessageRecord,
    MessageWindow,
    NewMessage,
    NewSession,
    RecentUserMessage,
    ResumeConversations,
    SessionRecord,
)
from hermes_state.repositories.compression_state import CompressionCooldown, CompressionCounters
from hermes_state.repositories.import_entries import ImportLimits
from hermes_state.repositories.lease_holders import local_lease_holder
from hermes_state.settings import Settings
from hermes_state.store import SessionDB
from hermes_state.unit_of_work import UnitOfWork

__version__ = "0.1.0"

__all__ = [
    "PERSISTED_MARKER",
    "AnchoredView",
    "CompressionCooldown",
    "CompressionCounters",
    "CompressionSessionClosedError",
    "ConstraintViolationError",
    "ConversationMessage",
    "DowngradeRefusedError",
    "HermesStateError",
    "ImportLimits",
    "ImportReport",
    "InvalidArgumentError",
    "InvalidMessageError",
    "LeaseHeldError",
    "MessageConflictError",
    "MessageReaction",
    "MessageRecord",
    "MessageWindow",
    "NewMessage",
    "NewSession",
    "NotADatabaseError",
    "ParentNotFoundError",
    "QuerySyntaxError",
    "RecentUserMessage",
    "ResumeConversations",
    "RewindConflictError",
    "SchemaAheadError",
    "SchemaBehindError",
    "SchemaError",
    "SchemaMismatchError",
    "SessionCompressionInProgressError",
    "SessionDB",
    "SessionEndedError",
    "SessionExistsError",
    "SessionNotFoundError",
    "SessionPersistenceMixin",
    "SessionRecord",
    "SessionTooLargeError",
    "SessionTurnLeaseLostError",
    "Settings",
    "StoreBusyError",
    "StoreClosedError",
    "StoreCorruptError",
    "StoreError",
    "StoreFullError",
    "StoreIncompleteError",
    "StoreReadOnlyError",
    "StoreUnavailableError",
    "TitleConflictError",
    "TranscriptFlusher",
    "UndecodableTextError",
    "UnitOfWork",
    "UnitOfWorkOpenError",
    "__version__",
    "drop_shadowed_checkpoints",
    "local_lease_holder",
]
