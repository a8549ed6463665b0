"""Names under which the known store has verbs of ours, so that an agent can switch by import."""

from __future__ import annotations

from hermes_state.store.lineages import LineageVerbs
from hermes_state.store.rewrites import RewriteVerbs


class KnownNameVerbs(RewriteVerbs, LineageVerbs):
    """The same verbs under a second name; see the first one for what they do."""

    delete_session_messages = RewriteVerbs.delete_messages
    clear_session_messages = RewriteVerbs.clear_messages
    publish_compression_child = LineageVerbs.publish_continuation
