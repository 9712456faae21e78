"""The JSONL store under the conformance suite, with big and small segments and at each level of durability (C25, B52)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kipu.testing.conformance import Place, UrlPlace
from kipu.testing.conformance.suite import StoreConformance


class TestJsonl(StoreConformance):
    """`jsonl:///` does what the contract says."""

    def make_place(self, folder: Path) -> Place:
        """Return a folder of logs."""
        return UrlPlace(f"jsonl:///{folder}/store", root=folder)


class TestJsonlSmallSegments(StoreConformance):
    """It does so too where nearly every append begins a new segment (B52)."""

    def make_place(self, folder: Path) -> Place:
        """Return a folder of logs cut into small segments."""
        return UrlPlace(f"jsonl:///{folder}/store?segment_bytes=4096", root=folder)


@pytest.mark.long
class TestJsonlBuffered(StoreConformance):
    """`durability=buffered` changes what a power cut may take, and nothing else (B53)."""

    def make_place(self, folder: Path) -> Place:
        """Return a folder of logs, synced late."""
        return UrlPlace(f"jsonl:///{folder}/store?durability=buffered", root=folder)


@pytest.mark.long
class TestJsonlUnsynced(StoreConformance):
    """`durability=os` changes what a power cut may take, and nothing else (C2)."""

    def make_place(self, folder: Path) -> Place:
        """Return a folder of logs, never synced."""
        return UrlPlace(f"jsonl:///{folder}/store?durability=os", root=folder)
