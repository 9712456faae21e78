"""Events about the session itself: its beginning, its boundaries, its settings."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from kipu.events.event import Flag, Seq, SessionEvent


class ForkPoint(BaseModel):
    """The parent session and the last of its events that the fork shares."""

    model_config = ConfigDict(frozen=True)

    session_id: str
    seq: Seq


class SessionInitEvent(SessionEvent):
    """A session began (B19)."""

    event_type: Literal["session_init"] = "session_init"
    key: str | None = None
    owner: str = ""
    tenant: str = ""
    title: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    workspace: dict[str, Any] | None = None
    forked_from: ForkPoint | None = None
    origin: dict[str, Any] | None = None
    inherited: dict[str, Any] | None = None  # a fork: where its parent's anchors stood at the fork point


class ForkDetachedEvent(SessionEvent):
    """A fork stands alone from now on: the events up to `base_seq`, which it shared with `parent`, are its own copies."""

    event_type: Literal["fork_detached"] = "fork_detached"
    parent: str
    base_seq: Seq


class CompactionEvent(SessionEvent):
    """Older history is summarised: `summary` stands for from_seq..to_seq, and the window goes on at `first_kept_seq`."""

    event_type: Literal["compaction"] = "compaction"
    from_seq: Seq
    to_seq: Seq
    summary: str
    first_kept_seq: Seq
    previous_seq: Seq = 0
    captured: dict[str, Any] | None = None  # where the anchors stood when the range was taken
    model: str | None = None
    usage: dict[str, Any] | None = None


class ConsolidationEvent(SessionEvent):
    """Memory has taken in everything up to `to_seq`. What was learned is here too: memory is completed from the log (A68)."""

    event_type: Literal["consolidation"] = "consolidation"
    to_seq: Seq
    memory_ids: list[str] = Field(default_factory=list)
    from_seq: Seq | None = None
    facts: list[dict[str, Any]] | None = None
    captured: dict[str, Any] | None = None  # where the anchors stood when the range was taken
    model: str | None = None
    usage: dict[str, Any] | None = None


class RewindEvent(SessionEvent):
    """The tip moved back: events after `to_seq` are undone, not removed. The other fields say where the anchors stand then."""

    event_type: Literal["rewind"] = "rewind"
    to_seq: Seq
    instruction_seq: Seq = 0
    compaction_seq: Seq = 0
    window_seq: Seq = 0
    previous_seq: Seq = 0


class MetadataChangedEvent(SessionEvent):
    """Settings changed: `title`, `tags`, `pinned` and `kipu.workspace` are the session's own, other names free (`vars`, `model` …)."""

    event_type: Literal["metadata_changed"] = "metadata_changed"
    set: dict[str, Any] = Field(default_factory=dict)
    unset: list[str] = Field(default_factory=list)


class StatusChangedEvent(SessionEvent):
    """The session moved along its lifecycle."""

    event_type: Literal["status_changed"] = "status_changed"
    status: Literal["active", "expired", "archived", "trashed"]
    reason: str | None = None


class KeyBoundEvent(SessionEvent):
    """A key leads here from now on."""

    event_type: Literal["key_bound"] = "key_bound"
    key: str
    generation: int = 1
    previous_session_id: str | None = None


class EventPinnedEvent(SessionEvent):
    """These events' exchanges stay in the window (B36)."""

    event_type: Literal["event_pinned"] = "event_pinned"
    seqs: list[Seq]
    on: Flag = True
    by: str | None = None


class NoteEvent(SessionEvent):
    """Anything an application wants kept. Kinds that begin with `kipu.` are Kipu's own."""

    event_type: Literal["note"] = "note"
    kind: str
    data: dict[str, Any] = Field(default_factory=dict)


class DamagedEvent(SessionEvent):
    """A placeholder for a record that was lost in the store this session was copied from."""

    event_type: Literal["damaged"] = "damaged"
    reason: str
    detail: dict[str, Any] = Field(default_factory=dict)


class GenericEvent(SessionEvent):
    """An event of a type this version does not know, with every field kept (B9, B29)."""
