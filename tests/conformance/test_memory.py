"""The memory store under the conformance suite (C25)."""

from __future__ import annotations

from pathlib import Path

from kipu.testing.conformance import Place, UrlPlace
from kipu.testing.conformance.suite import StoreConformance


class TestMemory(StoreConformance):
    """`memory://` does what the contract says, as far as memory can."""

    def make_place(self, folder: Path) -> Place:
        """Return a store that lives in this process only."""
        return UrlPlace("memory://")
