"""What windows are made of: one decoded event with its place and its price."""

from __future__ import annotations

from typing import NamedTuple

from kipu.events.event import SessionEvent


class Item(NamedTuple):
    """One event as the log has it: its `seq`, and the tokens that were counted once, when it was appended."""

    seq: int
    event: SessionEvent
    tokens: int
