"""How much a window may hold, and how strictly it is rendered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

Ladder: TypeAlias = Literal["normal", "strict", "media_as_text", "text_only"]
LADDER: tuple[Ladder, ...] = ("normal", "strict", "media_as_text", "text_only")


@dataclass(frozen=True, slots=True)
class WindowPolicy:
    """Bound a window. Structure wins over bounds: exchanges stay whole and the newest user message stays (A33).

    `low_water` is the share of every bound that a jump leaves in use. Pins take at most `pin_share` of `max_tokens`, one
    message and the results of one exchange at most `text_share` each: longer texts are shown by their head and tail.
    `ladder` is how strict the rendering is, for a provider that refused the one before.
    """

    max_tokens: int = 100_000
    max_messages: int = 500
    low_water: float = 0.6
    ladder: Ladder = "normal"
    pin_share: float = 0.5
    text_share: float = 0.25
    media_max_count: int = 20
    media_max_bytes: int = 3_500_000
    media_max_total_bytes: int = 16_000_000

    @property
    def name(self) -> str:
        """Return a short text that names the policy in a log."""
        return f"tokens={self.max_tokens},messages={self.max_messages},low={self.low_water:g},{self.ladder}"

    @property
    def text_tokens(self) -> int:
        """Return the most tokens that one message, or the results of one exchange, may take."""
        return max(16, int(self.max_tokens * self.text_share))

    @property
    def strict(self) -> bool:
        """Say whether roles and ids follow the narrowest rules."""
        return self.ladder != "normal"

    @property
    def shows_media(self) -> bool:
        """Say whether images and files are shown as such."""
        return self.ladder in {"normal", "strict"}

    def to_json(self) -> dict[str, Any]:
        """Return every field, for the `window` of a `model_call` event."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WindowPolicy:
        """Return the policy that `to_json` gave."""
        return cls(**data)
