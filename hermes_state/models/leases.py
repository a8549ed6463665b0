"""Who compacts a session, and who runs the turn of a conversation, until when."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from hermes_state.models.base import Base, Id, length_check
from hermes_state.types import EpochNow, epoch


class CompressionLockRow(Base):
    """Who may compact a session, until when. No foreign key: a lock may come before its session."""

    __tablename__ = "compression_locks"

    session_id: Mapped[Id] = mapped_column(primary_key=True)
    holder: Mapped[str] = mapped_column(server_default=sa.text("'unknown'"))
    acquired_at: Mapped[float] = mapped_column(epoch(), server_default=EpochNow())
    expires_at: Mapped[float] = mapped_column(epoch(), server_default=EpochNow())
    """A row of another program that names no end is no live lease."""

    __table_args__ = (length_check("session_id"), length_check("holder"), sa.Index(None, "expires_at"))


class SessionTurnLeaseRow(Base):
    """Who runs the turn of a conversation, until when; the key is the first session of the conversation."""

    __tablename__ = "session_turn_leases"

    conversation_id: Mapped[Id] = mapped_column(primary_key=True)
    holder: Mapped[str] = mapped_column(server_default=sa.text("'unknown'"))
    acquired_at: Mapped[float] = mapped_column(epoch(), server_default=EpochNow())
    expires_at: Mapped[float] = mapped_column(epoch(), server_default=EpochNow())
    """A row of another program that names no end is no live lease."""

    __table_args__ = (length_check("conversation_id"), length_check("holder"), sa.Index(None, "expires_at"))
