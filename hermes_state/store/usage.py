"""Verbs on tokens and money."""

from __future__ import annotations

from typing import Any, overload

from hermes_state.records import UsageRecord
from hermes_state.repositories.usage import Grouping
from hermes_state.repositories.usage_values import checked_usage
from hermes_state.store.core import StoreCore


class UsageVerbs(StoreCore):
    """Counting what model calls used, and summing it up (known-store.md 2.8).

    Counters are whole numbers from 0, costs finite numbers of US dollars from 0; anything else is refused with
    ``InvalidArgumentError`` before any SQL. Reasoning tokens are part of the output tokens and never added to them.
    """

    def update_token_counts(
        self,
        session_id: str,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cache_read_tokens: int = 0,
        cache_write_tokens: int = 0,
        reasoning_tokens: int = 0,
        api_call_count: int = 0,
        absolute: bool = False,
        model: str | None = None,
        estimated_cost_usd: float | None = None,
        actual_cost_usd: float | None = None,
        cost_status: str | None = None,
        cost_source: str | None = None,
        pricing_version: str | None = None,
        billing_provider: str | None = None,
        billing_base_url: str | None = None,
        billing_mode: str | None = None,
    ) -> None:
        """Adds to the session's totals; with ``absolute`` the numbers given are the totals.

        A session that is not there is made with source ``unknown``. A cost of ``None`` changes nothing, in either form;
        status, source and version of the cost are kept unless given; model and billing route fill only what is empty.
        What was added, or the difference to the former totals, is booked by model, route and day (UTC) as well: on the
        model and route given, else on the session's own. There too nothing falls below 0.
        """
        usage = checked_usage(
            {
                "input_tokens": input_tokens,
                "output_tokens": output_tokens,
                "cache_read_tokens": cache_read_tokens,
                "cache_write_tokens": cache_write_tokens,
                "reasoning_tokens": reasoning_tokens,
                "api_call_count": api_call_count,
                "model": model,
                "estimated_cost_usd": estimated_cost_usd,
                "actual_cost_usd": actual_cost_usd,
                "cost_status": cost_status,
                "cost_source": cost_source,
                "pricing_version": pricing_version,
                "billing_provider": billing_provider,
                "billing_base_url": billing_base_url,
                "billing_mode": billing_mode,
            }
        )
        self._write(lambda uow: uow.usage.count(session_id, usage, absolute=absolute))

    def record_auxiliary_usage(self, session_id: str, task: str, **usage: Any) -> None:
        """Books what a side task (a summary, a title) used, by task, model and day; the session's totals stay.

        ``usage``: the keywords of ``update_token_counts``. Raises ``InvalidArgumentError`` for a task without a name.
        """
        checked = checked_usage(usage)
        self._write(lambda uow: uow.usage.count_auxiliary(session_id, task, checked))

    def auxiliary_usage_by_task(self, session_id: str) -> list[UsageRecord]:
        """What the side tasks of the session's whole conversation used, one record a task, by name."""
        found = self.usage_totals(session_id, by="task", lineage=True)
        return [record for record in found if record["task"]]

    @overload
    def usage_totals(
        self,
        session_id: str | None = None,
        *,
        by: None = None,
        lineage: bool = False,
        task: str | None = None,
    ) -> UsageRecord: ...

    @overload
    def usage_totals(
        self, session_id: str | None = None, *, by: Grouping, lineage: bool = False, task: str | None = None
    ) -> list[UsageRecord]: ...

    def usage_totals(
        self,
        session_id: str | None = None,
        *,
        by: Grouping | None = None,
        lineage: bool = False,
        task: str | None = None,
    ) -> UsageRecord | list[UsageRecord]:
        """What a session used, its whole conversation (``lineage``), or the store (no id), side tasks included.

        One record; or a list with one for each ``"model"``, ``"provider"``, ``"task"``, ``"session"`` or ``"day"``, in the
        order of their names, and empty without any usage. ``task`` counts only that task, which the days do not know; ``""``
        is the conversation itself.
        """
        found = self._read(lambda uow: uow.usage.totals(session_id, by=by, lineage=lineage, task=task))
        return found[0] if by is None else found

    def get_recent_session_model_route(self, session_id: str) -> dict[str, str | None] | None:
        """``model``, ``billing_provider``, ``billing_base_url`` and ``billing_mode`` of the latest accounted call."""
        return self._read(lambda uow: uow.usage.recent_route(session_id))
