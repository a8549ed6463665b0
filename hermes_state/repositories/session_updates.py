"""Changing what a session says about itself (known store, section 2.2). Unknown ids: nothing happens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from hermes_state import lineage
from hermes_state.repositories import system_prompts
from hermes_state.repositories.session_placing import SESSIONS, SessionPlacing
from hermes_state.repositories.session_values import checked_patch, config_text, optional_text
from hermes_state.text import is_usable_id

_NO_PROMPT = {"system_prompt": None, "system_prompt_hash": None}


class SessionUpdates(SessionPlacing):
    """Setters. ``InvalidArgumentError`` for a value that is no text, or no JSON where JSON is asked for."""

    def update_cwd(
        self,
        session_id: str,
        cwd: str | None,
        git_branch: str | None = None,
        git_repo_root: str | None = None,
    ) -> None:
        """Sets the directory. Branch and root are set when given; else they go when the directory changed."""
        values: dict[str, Any] = {"cwd": optional_text("cwd", cwd)}
        given = {"git_branch": git_branch, "git_repo_root": git_repo_root}
        has_moved = SESSIONS.c.cwd.is_distinct_from(values["cwd"])
        for name, value in given.items():
            kept = sa.case((has_moved, sa.null()), else_=SESSIONS.c[name])
            values[name] = optional_text(name, value) or kept
        self._set(session_id, SESSIONS.c.id == session_id, **values)

    def update_meta(
        self, session_id: str, model_config_json: str | dict[str, Any] | None, model: str | None = None
    ) -> None:
        """Replaces ``model_config`` by the JSON text of an object; the model stays when it is ``None``.

        A lineage marker in the new text decides about ``kind``; without one the kind stays what it is, so that replacing
        the config cannot tear a branch or a delegate out of its lineage (known store, W15).
        """
        text = config_text("model_config_json", model_config_json)
        name = optional_text("model", model)
        with self._transaction.verb():
            stored = self._stored(session_id)
            if stored is not None:
                self._change_config(stored, text, {} if name is None else {"model": name})

    def patch_model_config(self, session_id: str, patch: Mapping[str, Any]) -> None:
        """Sets the keys of ``patch`` in ``model_config``, whole values; ``None`` removes a key.

        A stored text that is no JSON object is replaced. Markers count as in ``update_meta``.
        """
        changes = checked_patch("patch", patch)
        with self._transaction.verb():
            stored = self._stored(session_id)
            if stored is not None:
                self._change_config(stored, _patched(stored["model_config"], changes), {})

    def update_system_prompt(self, session_id: str, system_prompt: str | None) -> None:
        """Sets the prompt; ``None`` takes it away."""
        text = optional_text("system_prompt", system_prompt)
        with self._transaction.verb():
            stored = self._stored(session_id)
            if stored is None:
                return
            values = {**_NO_PROMPT, **self.with_stored_prompt({"system_prompt": text})}
            self._set(session_id, SESSIONS.c.id == session_id, **values)
            system_prompts.drop_unused(self._transaction, [stored["system_prompt_hash"]])

    def update_model(self, session_id: str, model: str | None, provider: str | None = None) -> None:
        """Sets the model. Another one than before takes the prompt, which was made for that, away.

        ``provider`` is kept under that key of ``model_config``.
        """
        name, route = optional_text("model", model), optional_text("provider", provider)
        with self._transaction.verb():
            stored = self._stored(session_id)
            if stored is None:
                return
            changes: dict[str, Any] = {"model": name} | (_NO_PROMPT if name != stored["model"] else {})
            if route:
                changes["model_config"] = _patched(stored["model_config"], {"provider": route})
            self._set(session_id, SESSIONS.c.id == session_id, **changes)
            if "system_prompt_hash" in changes:
                system_prompts.drop_unused(self._transaction, [stored["system_prompt_hash"]])

    def update_billing_route(
        self, session_id: str, *, provider: str | None, base_url: str | None, billing_mode: str | None = None
    ) -> None:
        """Sets who is billed; the mode stays when it is ``None``."""
        values = {
            "billing_provider": optional_text("provider", provider),
            "billing_base_url": optional_text("base_url", base_url),
        }
        if billing_mode is not None:
            values["billing_mode"] = optional_text("billing_mode", billing_mode)
        self._set(session_id, SESSIONS.c.id == session_id, **values)

    def with_stored_prompt(self, values: dict[str, Any]) -> dict[str, Any]:
        """A copy of ``values`` with the system prompt replaced by its hash; the prompt is stored once per text."""
        prompt = values.get("system_prompt")
        if prompt is None:
            return dict(values)
        digest = system_prompts.stored_hash(self._transaction, prompt)
        return {**{k: v for k, v in values.items() if k != "system_prompt"}, "system_prompt_hash": digest}

    def _stored(self, session_id: str) -> Mapping[str, Any] | None:
        return self.locked(session_id) if is_usable_id(session_id) else None

    def _change_config(self, stored: Mapping[str, Any], text: str | None, changes: dict[str, Any]) -> None:
        changes["model_config"] = text
        if lineage.has_marker(text):
            changes |= self._reclassified({**stored, "model_config": text})
        self._set(stored["id"], SESSIONS.c.id == stored["id"], **changes)

    def _set(self, session_id: str, condition: sa.ColumnElement[bool], **values: Any) -> None:
        with self._transaction.verb() as conn:
            if is_usable_id(session_id):
                conn.execute(sa.update(SESSIONS).where(condition).values(values))


def _patched(model_config: str | None, patch: Mapping[str, Any]) -> str | None:
    merged = {**lineage.parsed_config(model_config), **patch}
    return config_text("patch", {key: value for key, value in merged.items() if value is not None})
