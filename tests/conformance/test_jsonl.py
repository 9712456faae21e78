"""The JSONL store under the conformance suite (C25)."""

from __future__ import annotations

from pathlib import Path

from kipu.testing.conformance import Place, UrlPlace
from kipu.testing.conformance.suite import StoreConformance


class TestJsonl(StoreConformance):
    """`jsonl:///folder` does what the contract says."""

    def make_place(self, folder: Path) -> Place:
        """Return a store in files below the folder."""
        return UrlPlace(f"jsonl:///{folder}/store", root=folder / "store")
