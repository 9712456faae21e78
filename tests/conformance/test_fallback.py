"""The fallback pair under the conformance suite, with a healthy primary (C25, A49)."""

from __future__ import annotations

from pathlib import Path

from kipu.testing.conformance import Place, UrlPlace
from kipu.testing.conformance.suite import StoreConformance


class TestFallback(StoreConformance):
    """`sqlite:///…?fallback=jsonl:///…` does what the contract says."""

    def make_place(self, folder: Path) -> Place:
        """Return a database with a spool beside it."""
        return UrlPlace(f"sqlite:///{folder}/store.db?fallback=jsonl:///{folder}/spool", root=folder)
