"""``SessionDB``: the facade, one verb for each intention of a user; each opens one unit of work."""

from __future__ import annotations

from hermes_state.store.cooldowns import CooldownVerbs
from hermes_state.store.deliveries import DeliveryVerbs
from hermes_state.store.edits import EditVerbs
from hermes_state.store.known_names import KnownNameVerbs
from hermes_state.store.leases import LeaseVerbs
from hermes_state.store.lists import ListVerbs
from hermes_state.store.lookups import LookupVerbs
from hermes_state.store.messages import MessageVerbs
from hermes_state.store.notes import NoteVerbs
from hermes_state.store.portable import PortableVerbs
from hermes_state.store.reactions import ReactionVerbs
from hermes_state.store.retention import RetentionVerbs
from hermes_state.store.searching import SearchVerbs
from hermes_state.store.sessions import SessionVerbs
from hermes_state.store.titles import TitleVerbs
from hermes_state.store.turns import TurnVerbs
from hermes_state.store.usage import UsageVerbs
from hermes_state.store.verifying import VerifyingVerbs
from hermes_state.store.views import ViewVerbs

__all__ = ["SessionDB"]


class SessionDB(
    SessionVerbs,
    MessageVerbs,
    DeliveryVerbs,
    LookupVerbs,
    ViewVerbs,
    EditVerbs,
    ReactionVerbs,
    TurnVerbs,
    KnownNameVerbs,
    LeaseVerbs,
    CooldownVerbs,
    NoteVerbs,
    PortableVerbs,
    VerifyingVerbs,
    UsageVerbs,
    RetentionVerbs,
    TitleVerbs,
    ListVerbs,
    SearchVerbs,
):
    """The store of one database, fixed when the object is made; safe to share between threads.

    ``db_path`` names a SQLite file, ``url`` any supported database; without both the default of
    ``hermes_state.settings.default_url`` is opened. ``migrate``: ``"auto"`` creates and upgrades a SQLite file and only
    checks a server database, ``True`` upgrades either, ``False`` only checks and creates no file. ``read_only`` never writes, not even the
    schema. ``search_index="off"`` takes the index of the search away, for every program that opens the
    store, until ``rebuild_search_index``; ``"on"`` leaves it as it is. Errors: the schema errors, ``NotADatabaseError``,
    ``StoreUnavailableError`` and ``InvalidArgumentError``; there is never a fall-back to another database.
    """
