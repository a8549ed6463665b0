"""Notes of the store by key, and system prompts by hash."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from hermes_state.models.base import Base, Id, length_check


class MetaRow(Base):
    """A note of the store or of its owner, by key."""

    __tablename__ = "state_meta"

    key: Mapped[Id] = mapped_column(primary_key=True)
    value: Mapped[str | None]

    __table_args__ = (length_check("key"),)


class SystemPromptRow(Base):
    """A system prompt, kept once for all sessions that use it. ``hash`` is the SHA-256 of the text in hexadecimal.

    No foreign key leads here: the key would span sessions (DESIGN.md, decision 10).
    """

    __tablename__ = "system_prompts"

    hash: Mapped[str] = mapped_column(primary_key=True)
    prompt: Mapped[str]
