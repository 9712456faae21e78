"""A window at once, from all its events: the plain form of what `Window` does step by step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kipu.context.item import Item
from kipu.context.policy import WindowPolicy
from kipu.context.rendering import Rendering
from kipu.context.window import Window

DEFAULT_POLICY = WindowPolicy()


def build_window(
    items: Iterable[Item],
    *,
    policy: WindowPolicy = DEFAULT_POLICY,
    start_seq: int = 0,
    target: str = "neutral",
    provider: str | None = None,
    model: str | None = None,
    media: Mapping[str, bytes] | None = None,
    instruction: Item | None = None,
    summary: Item | None = None,
    pinned: Mapping[int, Sequence[Item]] | None = None,
) -> Rendering:
    """Return what a model is shown of these events: a pure function, the same as a `Window` that they were added to one by one.

    Raises:
        InvalidQueryError: there is no such target.
    """
    window = Window(policy, start_seq=start_seq, instruction=instruction, summary=summary, pinned=pinned or {})
    window.extend(items)
    fit(window)
    return window.messages(target, provider=provider, model=model, media=media)


def fit(window: Window) -> None:
    """Jump until the window is within its policy, or cannot become smaller."""
    start = window.overflow()
    while start is not None:
        window.jump(start)
        start = window.overflow()
