"""The Valkey store under the conformance suite (B54, C25)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from kipu.ports.clock import Clock
from kipu.ports.owner import Liveness
from kipu.ports.store import EventStore
from kipu.security.key_file import key_line
from kipu.testing.conformance import Place
from kipu.testing.conformance.place import Capabilities, FunctionPlace
from kipu.testing.conformance.suite import StoreConformance
from kipu.wiring import open_store
from tests.valkey_servers import fresh_prefix, open_valkey, valkey_url

KEPT_BY_A_SERVER = Capabilities(files=False, search=False, reason="a server keeps its files, and has no index of words")


class TestValkey(StoreConformance):
    """`valkey://` does what the contract says."""

    def make_place(self, folder: Path) -> Place:
        """Return a prefix of its own."""
        return FunctionPlace(partial(open_valkey, fresh_prefix(valkey_url())), KEPT_BY_A_SERVER)


async def open_by_url(url: str, *, clock: Clock, liveness: Liveness) -> EventStore:
    """Open a store as the library does."""
    return await open_store(url, clock=clock, liveness=liveness)


class TestEncryptedValkey(StoreConformance):
    """`valkey://…?encrypt=…` does what the contract says, its vault in a directory that processes share (C20, B55)."""

    @pytest.fixture(autouse=True)
    def _key_in_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KIPU_TEST_KEY", key_line(bytes(range(32))).strip())

    def make_place(self, folder: Path) -> Place:
        """Return a sealed prefix of its own."""
        url = fresh_prefix(valkey_url(), encrypt="env:KIPU_TEST_KEY", vault=str(folder))
        return FunctionPlace(partial(open_by_url, url), KEPT_BY_A_SERVER)
