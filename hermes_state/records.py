"""The shapes that cross the API: what reads return, and checked input for callers who want it."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypedDict

from pydantic import BaseModel, ConfigDict, Field


class MessageRecord(TypedDict):
    """A whole message row. Absent values are ``None``; unknown keys of the message stand beside these."""

    id: int
    session_id: str
    message_uid: str
    role: str
    content: Any
    tool_call_id: str | None
    tool_calls: Any
    tool_name: str | None
    timestamp: float
    """Seconds since the epoch; shown, never an order."""
    token_count: int | None
    finish_reason: str | None
    reasoning: str | None
    reasoning_content: str | None
    reasoning_details: Any
    codex_reasoning_items: Any
    codex_message_items: Any
    platform_message_id: str | None
    observed: bool
    effect_disposition: str | None
    api_content: str | None
    display_kind: str | None
    display_metadata: Any
    active: bool
    compacted: bool


class ConversationMessage(TypedDict, total=False):
    """A message as it is sent to a model; what is absent is left out, ``role`` and ``content`` never are."""

    role: str
    content: Any
    timestamp: float
    tool_call_id: str
    tool_name: str
    tool_calls: Any
    message_id: str
    observed: bool
    token_count: int
    effect_disposition: str
    api_content: str
    display_kind: str
    display_metadata: Any
    finish_reason: str
    reasoning: str
    reasoning_content: str
    reasoning_details: Any
    codex_reasoning_items: Any
    codex_message_items: Any


class ResumeConversations(NamedTuple):
    """What an agent goes on with after a resume, both of one moment."""

    model: list[ConversationMessage]
    """The active messages of the session, as they are sent to a model."""
    display: list[ConversationMessage]
    """The history as a person sees it, each message once, those of the sessions it continues included."""


class MessageWindow(TypedDict):
    """Rows around an anchor, in insertion order, and how many stand before and after it."""

    window: list[MessageRecord]
    messages_before: int
    messages_after: int


class AnchoredView(MessageWindow):
    """A window, and the first and last messages of the session outside it."""

    bookend_start: list[MessageRecord]
    bookend_end: list[MessageRecord]


class RecentUserMessage(TypedDict):
    """A user's message in one line of at most 80 characters; its time in epoch seconds."""

    id: int
    timestamp: float
    preview: str


class DelegationDelivery(NamedTuple):
    """Where the message of a delegation stands, and whether this call has appended it."""

    session_id: str
    row_id: int
    is_new: bool


class MessageReaction(TypedDict):
    """What somebody thinks of a message; at most one for each actor."""

    row_id: int
    """The newest row of the message that is shown."""
    message_uid: str
    role: str
    """Whose the message is."""
    actor: str
    emoji: str
    set_at: float
    """Seconds since the epoch."""
    seen: bool
    """Whether ``take_unseen_reactions`` has handed it out."""


class RewindResult(TypedDict):
    """What a rewind did: how many rows it took back, the target as it stood before, and the last active row's id."""

    rewound_count: int
    target_message: MessageRecord
    new_head_id: int | None


class SessionRecord(TypedDict):
    """A whole session row. Times are seconds since the epoch, counters whole numbers, absent values ``None``."""

    id: str
    source: str
    created_source: str | None
    user_id: str | None
    session_key: str | None
    chat_id: str | None
    chat_type: str | None
    thread_id: str | None
    model: str | None
    model_config: str | None
    """JSON text exactly as it was given."""
    system_prompt: str | None
    system_prompt_hash: str | None
    tool_names: str | None
    parent_session_id: str | None
    kind: str
    root_session_id: str | None
    """``None`` means the session itself."""
    started_at: float
    ended_at: float | None
    end_reason: str | None
    last_active_at: float | None
    message_count: int
    tool_call_count: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    api_call_count: int
    estimated_cost_usd: float | None
    actual_cost_usd: float | None
    cost_status: str | None
    cost_source: str | None
    pricing_version: str | None
    billing_provider: str | None
    billing_base_url: str | None
    billing_mode: str | None
    cwd: str | None
    git_branch: str | None
    git_repo_root: str | None
    title: str | None
    title_source: str | None
    compression_failure_cooldown_until: float | None
    compression_failure_error: str | None
    compression_fallback_streak: int
    compression_ineffective_count: int
    compression_overload_streak: int
    compression_recovery_deadline: float | None
    rewind_count: int
    archived: bool
    pinned: bool
    hidden: bool
    auto_archived: bool
    last_read_at: float | None
    last_activity_at: float | None
    last_activity_description: str | None
    last_activity_provenance: str | None


class ImportReport(TypedDict):
    """What became of an import. ``ok`` is false exactly when ``errors`` names bad entries and nothing was written."""

    ok: bool
    imported: int
    skipped: int
    detached: int
    """Sessions whose parent is missing, or would close a circle; they were imported without it."""
    imported_ids: list[str]
    skipped_ids: list[str]
    detached_ids: list[str]
    renamed_ids: dict[str, str]
    """New id of each session that was imported under another one, by the id it was given with."""
    errors: list[dict[str, Any]]
    """``index``, ``session_id`` and ``error`` of each bad entry."""


class NewMessage(BaseModel):
    """A message checked as it is made. Other keys are taken too and come back on reading."""

    model_config = ConfigDict(extra="allow")

    role: str = Field(min_length=1, max_length=64)
    content: Any = None
    message_uid: str | None = Field(default=None, min_length=1, max_length=512)
    tool_call_id: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_name: str | None = None
    timestamp: float | None = None
    token_count: int | None = Field(default=None, ge=0)
    finish_reason: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    platform_message_id: str | None = Field(default=None, min_length=1, max_length=512)

    def to_message(self) -> dict[str, Any]:
        """The dict of the fields that were set."""
        return self.model_dump(exclude_unset=True)


class NewSession(BaseModel):
    """The arguments of ``create_session``, checked as they are made: ``db.create_session(**new.to_arguments())``."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    session_id: str = Field(min_length=1, max_length=512)
    source: str = Field(min_length=1)
    model: str | None = None
    settings: dict[str, Any] | None = Field(default=None, alias="model_config")
    system_prompt: str | None = None
    user_id: str | None = None
    session_key: str | None = None
    chat_id: str | None = None
    chat_type: str | None = None
    thread_id: str | None = None
    parent_session_id: str | None = Field(default=None, min_length=1, max_length=512)
    cwd: str | None = None

    def to_arguments(self) -> dict[str, Any]:
        """The keyword arguments that were set."""
        return self.model_dump(exclude_unset=True, by_alias=True)


class AutoPruneReport(TypedDict):
    """What ``maybe_auto_prune_and_vacuum`` did. ``skipped``: the last run was not long enough ago."""

    skipped: bool
    pruned: int
    """How many sessions were deleted."""
    vacuumed: bool
    error: str | None


class UsageRecord(TypedDict, total=False):
    """Sums of usage. ``reasoning_tokens`` are part of ``output_tokens``; costs are US dollars, ``None`` when nobody told any.

    The group that was asked for stands under its own name: ``model``, ``provider``, ``task``, ``day`` or ``session``.
    """

    model: str
    provider: str
    task: str
    """Empty for the conversation itself."""
    day: str
    """A date of UTC, ``YYYY-MM-DD``."""
    session: str
    api_call_count: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    total_tokens: int
    """Input, read from and written to the cache, and output."""
    estimated_cost_usd: float | None
    actual_cost_usd: float | None
    first_seen: float | None
    last_seen: float | None


class ListedSession(SessionRecord, total=False):
    """A session of a list. One that was compressed shows what its live end says, and keeps its own ``started_at``."""

    preview: str
    """The beginning of the first user text, at most 60 characters and ``...``; empty without one."""
    last_active: float
    """Time of the newest message, else of the start."""
    _lineage_root_id: str
    """The first session of the chain; only where the live end is another one."""


class SessionPage(TypedDict):
    """A page of sessions, and the cursor of the page behind it, ``None`` at the end."""

    sessions: list[ListedSession]
    next_cursor: str | None


class SessionCwd(TypedDict):
    """A working folder and the sessions in it."""

    cwd: str
    sessions: int
    last_active: float


class ContextMessage(TypedDict):
    """A message beside a hit, or the hit itself; the text is cut at 200 characters."""

    role: str
    content: str


class SearchHit(TypedDict):
    """A message that a search found."""

    id: int
    session_id: str
    role: str
    snippet: str
    """The text around what was found, which stands between ``>>>`` and ``<<<``; ``...`` where it was cut."""
    timestamp: float
    tool_name: str | None
    source: str
    model: str | None
    session_started: float
    context: list[ContextMessage]
    """The visible neighbour before, the hit, the visible neighbour behind."""


class SearchIndexState(TypedDict):
    """What the search index is; see ``SessionDB.search_index_state``."""

    state: Literal["on", "off", "building", "degraded"]
    trigram: bool
