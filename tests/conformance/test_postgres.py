"""The PostgreSQL store under the conformance suite (B54, C25)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from kipu.testing.conformance import Place
from kipu.testing.conformance.place import Capabilities, FunctionPlace
from kipu.testing.conformance.suite import StoreConformance
from tests.servers import fresh_schema, open_postgres, postgres_url

KEPT_BY_A_SERVER = Capabilities(files=False, reason="a server keeps its files")


class TestPostgres(StoreConformance):
    """`postgresql://` does what the contract says."""

    def make_place(self, folder: Path) -> Place:
        """Return a schema of its own."""
        return FunctionPlace(partial(open_postgres, fresh_schema(postgres_url())), KEPT_BY_A_SERVER)
