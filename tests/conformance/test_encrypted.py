"""The encrypting wrapper under the conformance suite, over each kind of store (C20, C25, B55)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kipu.security.key_file import key_line
from kipu.testing.conformance import Place, UrlPlace
from kipu.testing.conformance.suite import StoreConformance

KEY = key_line(bytes(range(32))).strip()


@pytest.fixture(autouse=True)
def key_in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIPU_TEST_KEY", KEY)


class TestEncryptedMemory(StoreConformance):
    """`memory://?encrypt=…` does what the contract says, as far as memory can."""

    def make_place(self, folder: Path) -> Place:
        """Return a store that lives in this process only."""
        return UrlPlace("memory://?encrypt=env:KIPU_TEST_KEY")


class TestEncryptedSqlite(StoreConformance):
    """`sqlite:///…?encrypt=…` does what the contract says."""

    def make_place(self, folder: Path) -> Place:
        """Return a database in the folder, its vault beside it."""
        return UrlPlace(f"sqlite:///{folder}/store.db?encrypt=env:KIPU_TEST_KEY", root=folder)


class TestEncryptedJsonl(StoreConformance):
    """`jsonl:///…?encrypt=…` does what the contract says."""

    def make_place(self, folder: Path) -> Place:
        """Return a folder of logs, its vault beside it."""
        return UrlPlace(f"jsonl:///{folder}/store?encrypt=env:KIPU_TEST_KEY", root=folder)


class TestChained(StoreConformance):
    """`chain=on` does what the contract says."""

    def make_place(self, folder: Path) -> Place:
        """Return a chained and encrypted database."""
        return UrlPlace(f"sqlite:///{folder}/store.db?encrypt=env:KIPU_TEST_KEY&chain=on", root=folder)


@pytest.mark.long
class TestEncryptedFallback(StoreConformance):
    """A database with a spool beside it does so too under encryption (A49)."""

    def make_place(self, folder: Path) -> Place:
        """Return a pair, both under seal."""
        url = f"sqlite:///{folder}/store.db?encrypt=env:KIPU_TEST_KEY&fallback=jsonl:///{folder}/spool"
        return UrlPlace(url, root=folder)
