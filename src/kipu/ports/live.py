"""The seam for live pieces between processes: short texts by topic, to whoever listens now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

Hear: TypeAlias = Callable[[str, str], None]
"""Take a text that was sent on a topic. It is called in the event loop, and never waits or raises."""

CONTROL = ""  # the topic that everybody hears: who wants what


class LiveChannel(Protocol):
    """Carry texts to other processes, and promise little.

    Contract:
    - What is sent on a topic reaches who listens to it at that moment, at most once, in the sender's order; any of it may be lost.
    - `CONTROL` is heard by everybody who opened the channel. One's own texts may come back.
    - Nothing that it does holds up an append: it has lines of its own, and never a part in a transaction of the store's.
    - A line that is lost is made anew by itself; `connected` is called each time that one stands, the first time too.
    - `send` returns when the texts are out of hand. Raises: ConnectionError, when some may not be.
    - A text is at most `most_bytes` long in UTF-8 and holds no NUL.
    """

    most_bytes: int

    async def open(self, hear: Hear, connected: Callable[[], None]) -> None:
        """Begin to hear; return at once, also where nobody can be reached."""
        ...

    async def listen(self, topic: str) -> None:
        """Hear this topic too; when it returns and a line stands, what is sent from now on comes."""
        ...

    async def unlisten(self, topic: str) -> None:
        """Hear it no more."""
        ...

    async def send(self, messages: Sequence[tuple[str, str]]) -> None:
        """Send texts, each with its topic. Raises: ConnectionError."""
        ...

    async def close(self) -> None:
        """Stop. Closing twice is harmless."""
        ...
