"""The digest of a window, and the proof that a past model call can be shown again (C6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kipu.context.canonical import list_digest
from kipu.context.item import Item
from kipu.context.log_view import standing
from kipu.context.neutral import Message
from kipu.context.policy import WindowPolicy
from kipu.context.rendering import RENDERER_VERSION, Rendering
from kipu.context.retention import is_queued, pinned_exchange, takes
from kipu.context.window import Window
from kipu.errors import InvalidQueryError
from kipu.events.conversation import ModelCallEvent


def window_digest(messages: Sequence[Message]) -> str:
    """Return the digest, in hex, of neutral messages."""
    return list_digest(messages)


@dataclass(frozen=True, slots=True)
class Replay:
    """A past window shown again. `matches` is None where the call recorded no digest to compare with."""

    rendering: Rendering
    digest: str
    matches: bool | None


def replay(items: Iterable[Item], call: ModelCallEvent) -> Replay:
    """Render the window of a past model call again, from the events before it, and compare the digests.

    `items` are the session's events from the first one on; those after the call are left out.

    Raises:
        InvalidQueryError: the call names a renderer version that this version of Kipu does not have.
    """
    record = call.window
    version = record.get("renderer_version", RENDERER_VERSION)
    if version != RENDERER_VERSION:
        raise InvalidQueryError(reason=f"there is no renderer version {version!r}, only {RENDERER_VERSION}")
    until = min(record.get("to", call.seq - 1), call.seq - 1)
    policy = record.get("policy")
    window = Window(WindowPolicy.from_json(policy) if isinstance(policy, Mapping) else WindowPolicy())
    known: dict[int, Item] = {}
    for item in items:
        if item.seq > until:
            continue
        known[item.seq] = item
        window.extend([item])
        window.extend(known[seq] for seq in window.missing if seq in known)
        for pin in window.missing_pins:
            window.bring(pin, _exchange_of(pin, list(known.values()), window=window))
    window.extend([Item(call.seq, call, 0)])
    # Whatever waited for a jump had taken effect when the model was called.
    window.jump(window.start_seq)
    reader = record.get("reader") or {}
    rendering = window.messages(
        str(record.get("target", "neutral")), provider=reader.get("provider"), model=reader.get("model")
    )
    digest = window_digest(rendering.messages)
    recorded = record.get("digest")
    return Replay(rendering, digest, digest == recorded if isinstance(recorded, str) else None)


def _exchange_of(pin: int, items: Sequence[Item], *, window: Window) -> list[Item]:
    """Return the exchange of an event that was pinned when the window was past it; a message that nobody took is in none."""
    stands = standing(items)
    pinned = [item for item in stands if item.seq == pin]
    if not pinned or not is_queued(pinned[0]):
        return pinned_exchange(pin, stands, policy=window.policy) if pinned else []
    return pinned if any(takes(item, pin) and item.seq < window.start_seq for item in stands) else []
