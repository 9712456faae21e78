"""The PostgreSQL store under seal, its key vault in its own tables, under the conformance suite (B54, B55, C20)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from kipu.ports.clock import Clock
from kipu.ports.owner import Liveness
from kipu.ports.store import EventStore
from kipu.testing.conformance import Place
from kipu.testing.conformance.place import Capabilities, FunctionPlace
from kipu.testing.conformance.suite import StoreConformance
from kipu.wiring import open_store
from tests.servers import fresh_schema, postgres_url
from tests.unit.stores.encrypted.kit import keys

KEPT_BY_A_SERVER = Capabilities(files=False, reason="a server keeps its files")


async def open_encrypted(url: str, *, clock: Clock, liveness: Liveness) -> EventStore:
    """Open an encrypted store with a clock that a test moves."""
    return await open_store(url, clock=clock, liveness=liveness, keys=keys())


class TestEncryptedPostgres(StoreConformance):
    """`postgresql://` with keys does what the contract says."""

    def make_place(self, folder: Path) -> Place:
        """Return a schema of its own, its vault within."""
        return FunctionPlace(partial(open_encrypted, fresh_schema(postgres_url())), KEPT_BY_A_SERVER)
