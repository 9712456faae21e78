"""Counting tokens: once per event, when it is appended."""

from __future__ import annotations

from typing import Protocol


class TokenCounter(Protocol):
    """Say what a text costs a model.

    Contract:
    - Deterministic: the same text always costs the same.
    - `name` names the method and its version; it is stored with a window, so that a count can be explained later.
    - An estimate errs upwards on JSON, logs and Chinese (facts.md), for a window that is too big is refused.
    """

    @property
    def name(self) -> str:
        """Return the method's name, such as "estimate-1" or "o200k"."""
        ...

    def count(self, text: str) -> int:
        """Return the tokens of `text`."""
        ...
