"""The SQLite store under the conformance suite, at each level of durability (C25, A48)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kipu.testing.conformance import Place, UrlPlace
from kipu.testing.conformance.suite import StoreConformance


class TestSqlite(StoreConformance):
    """`sqlite:///` does what the contract says."""

    def make_place(self, folder: Path) -> Place:
        """Return a database in the folder."""
        return UrlPlace(f"sqlite:///{folder}/store.db", root=folder)


@pytest.mark.long
class TestSqliteBuffered(StoreConformance):
    """`durability=buffered` changes what a power cut may take, and nothing else (B53)."""

    def make_place(self, folder: Path) -> Place:
        """Return a database in the folder, synced late."""
        return UrlPlace(f"sqlite:///{folder}/store.db?durability=buffered", root=folder)


@pytest.mark.long
class TestSqliteUnsynced(StoreConformance):
    """`durability=os` changes what a power cut may take, and nothing else (C2)."""

    def make_place(self, folder: Path) -> Place:
        """Return a database in the folder, never synced."""
        return UrlPlace(f"sqlite:///{folder}/store.db?durability=os", root=folder)
