"""One command of the chat."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kipu.cli.chat.conversation import Conversation


@dataclass(frozen=True, slots=True)
class Command:
    """What it takes, what it does, and the function that does it."""

    takes: str
    meaning: str
    run: Callable[[Conversation, str], Awaitable[None]]
