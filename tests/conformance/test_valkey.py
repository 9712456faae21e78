"""The Valkey store under the conformance suite (B54, C25)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from kipu.testing.conformance import Place
from kipu.testing.conformance.place import Capabilities, FunctionPlace
from kipu.testing.conformance.suite import StoreConformance
from tests.valkey_servers import fresh_prefix, open_valkey, valkey_url

KEPT_BY_A_SERVER = Capabilities(files=False, search=False, reason="a server keeps its files, and has no index of words")


class TestValkey(StoreConformance):
    """`valkey://` does what the contract says."""

    def make_place(self, folder: Path) -> Place:
        """Return a prefix of its own."""
        return FunctionPlace(partial(open_valkey, fresh_prefix(valkey_url())), KEPT_BY_A_SERVER)
