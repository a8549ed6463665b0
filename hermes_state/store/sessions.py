"""Verbs on sessions."""

from __future__ import annotations

from typing import Any

from hermes_state.records import SessionRecord
from hermes_state.store.core import StoreCore


class SessionVerbs(StoreCore):
    """Creating, ending, finding and listing sessions."""

    def create_session(
        self,
        session_id: str,
        source: str,
        *,
        model: str | None = None,
        model_config: dict[str, Any] | str | None = None,
        system_prompt: str | None = None,
        user_id: str | None = None,
        session_key: str | None = None,
        chat_id: str | None = None,
        chat_type: str | None = None,
        thread_id: str | None = None,
        parent_session_id: str | None = None,
        cwd: str | None = None,
        git_branch: str | None = None,
        git_repo_root: str | None = None,
    ) -> str:
        """Creates the session, or fills what an existing one lacks; see ``SessionRepository.create``."""
        given = {
            "model": model,
            "model_config": model_config,
            "system_prompt": system_prompt,
            "user_id": user_id,
            "session_key": session_key,
            "chat_id": chat_id,
            "chat_type": chat_type,
            "thread_id": thread_id,
            "parent_session_id": parent_session_id,
            "cwd": cwd,
            "git_branch": git_branch,
            "git_repo_root": git_repo_root,
        }
        return self._write(lambda uow: uow.sessions.create(session_id, source, **given))

    def ensure_session(
        self, session_id: str, source: str = "unknown", model: str | None = None, **given: Any
    ) -> str:
        """``create_session`` with a placeholder source, for callers that may come first."""
        return self._write(lambda uow: uow.sessions.ensure(session_id, source, model=model, **given))

    def get_session(self, session_id: str) -> SessionRecord | None:
        """All columns of the session, or ``None``."""
        return self._read(lambda uow: uow.sessions.get(session_id))

    def end_session(self, session_id: str, end_reason: str) -> None:
        """Closes an open session; the first reason wins. Does nothing for an unknown id."""
        self._write(lambda uow: uow.sessions.end(session_id, end_reason))

    def reopen_session(self, session_id: str) -> None:
        """Opens an ended session again. Does nothing for an unknown id."""
        self._write(lambda uow: uow.sessions.reopen(session_id))

    def resolve_session_id(self, id_or_prefix: str) -> str | None:
        """The session of exactly this id, else the only one whose id starts with it, else ``None``."""
        return self._read(lambda uow: uow.sessions.resolve_id(id_or_prefix))

    def list_sessions(
        self,
        limit: int = 20,
        offset: int = 0,
        source: str | None = None,
        *,
        include_children: bool = False,
        include_archived: bool = False,
    ) -> list[SessionRecord]:
        """A page of sessions, most recently active first; see ``SessionRepository.list``."""
        kept = {"include_children": include_children, "include_archived": include_archived}
        return self._read(lambda uow: uow.sessions.list(limit, offset, source, **kept))

    def update_session_cwd(
        self,
        session_id: str,
        cwd: str | None,
        git_branch: str | None = None,
        git_repo_root: str | None = None,
    ) -> None:
        """Sets the directory; branch and root are set when given, and go when the directory changed."""
        self._write(lambda uow: uow.sessions.update_cwd(session_id, cwd, git_branch, git_repo_root))

    def update_session_meta(
        self, session_id: str, model_config_json: str | dict[str, Any] | None, model: str | None = None
    ) -> None:
        """Replaces ``model_config``; raises ``InvalidArgumentError`` for what is no JSON object.

        The model stays when it is ``None``. The session keeps its place in the lineage unless the new text names a marker.
        """
        self._write(lambda uow: uow.sessions.update_meta(session_id, model_config_json, model))

    def patch_session_model_config(self, session_id: str, patch: dict[str, Any]) -> None:
        """Sets the keys of ``patch`` in ``model_config``; ``None`` removes a key."""
        self._write(lambda uow: uow.sessions.patch_model_config(session_id, patch))

    def update_system_prompt(self, session_id: str, system_prompt: str | None) -> None:
        """Sets the system prompt; ``None`` takes it away."""
        self._write(lambda uow: uow.sessions.update_system_prompt(session_id, system_prompt))

    def update_session_model(self, session_id: str, model: str | None, provider: str | None = None) -> None:
        """Sets the model; another one than before takes the system prompt away, which was made for that."""
        self._write(lambda uow: uow.sessions.update_model(session_id, model, provider))

    def update_session_billing_route(
        self, session_id: str, *, provider: str | None, base_url: str | None, billing_mode: str | None = None
    ) -> None:
        """Sets who is billed; the mode stays when it is ``None``."""
        self._write(
            lambda uow: uow.sessions.update_billing_route(
                session_id, provider=provider, base_url=base_url, billing_mode=billing_mode
            )
        )
