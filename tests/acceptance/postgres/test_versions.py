"""The store on the other versions of PostgreSQL that this machine has, beside the run's own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kipu.testing.conformance import Place, Requirement, all_requirements
from kipu.testing.conformance.place import Capabilities, FunctionPlace
from kipu.testing.conformance.suite import StoreConformance
from tests.acceptance.postgres.cluster import Server, a_server
from tests.acceptance.postgres.kit import begin, opened
from tests.servers import fresh_schema, open_postgres

KEPT_BY_A_SERVER = Capabilities(files=False, reason="a server keeps its files")
# What rests on how a server locks, orders, searches and follows; `make test-long` runs all of it.
TOPICS = {"append", "idempotency", "leases", "contending", "searching", "following", "adopting", "letting_go"}
NAMED = "KIPU_TEST_POSTGRES"  # folders with the programs of more versions, one after the other as in PATH


def others() -> list[Path]:
    """Return where the programs of other versions are: where Debian has them, and in what the environment names."""
    named = [Path(place) for place in os.environ.get(NAMED, "").split(os.pathsep) if place]
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    return [path for path in (*sorted(found), *named) if (path / "initdb").exists()]


def version_of(path: Path) -> str:
    """Return the version, as a name for a test."""
    return subprocess.run([path / "postgres", "--version"], capture_output=True, text=True, check=True).stdout.split()[
        2
    ]


@pytest.fixture(scope="module", params=[pytest.param(path, id=version_of(path)) for path in others()])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Give a server of each version there is."""
    with a_server(binaries=request.param) as server:
        yield server


class VersionConformance(StoreConformance):
    """The suite against a server of another version."""

    url = ""

    @pytest.fixture(autouse=True)
    def on(self, server: Server) -> None:
        """Take the module's server."""
        type(self).url = server.url

    def make_place(self, folder: Path) -> Place:
        """Return a schema of its own."""
        return FunctionPlace(partial(open_postgres, fresh_schema(self.url)), KEPT_BY_A_SERVER)


@pytest.mark.long
class TestVersions(VersionConformance):
    """On every version that this machine has, `postgresql://` does all that the contract says (B54, C25)."""


def chosen_requirements() -> list[Any]:
    """Return what is tried in every run."""
    return [pytest.param(one, id=f"{one.id}-{one.name}") for one in all_requirements() if one.topic in TOPICS]


class TestVersionsInShort(VersionConformance):
    """On every version that this machine has, the store locks, orders, searches and follows as on the newest (B54, C25)."""

    @pytest.mark.parametrize("requirement", chosen_requirements())
    async def test_requirement(self, requirement: Requirement, tmp_path: Path) -> None:
        """The store does what the numbered sentence of the contract says."""
        await super().test_requirement(requirement, tmp_path)


async def test_other_version_is_opened_and_told(server: Server) -> None:
    """A server of another version is opened, heard and found safe (B54)."""
    async with opened(fresh_schema(server.url)) as store:
        await begin(store, "one")
        assert store.describe().durability == "fsync"
        assert store.describe().notes == ()  # its notices get through too
