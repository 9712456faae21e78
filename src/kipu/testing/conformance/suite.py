"""The suite for pytest: subclass it, say how a place is made, and every requirement is a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from kipu.testing.conformance.catalogue import all_requirements
from kipu.testing.conformance.expectation import NotSupportedError
from kipu.testing.conformance.place import Place
from kipu.testing.conformance.requirement import Requirement
from kipu.testing.conformance.runner import check


class StoreConformance:
    """Check every requirement of the store contract against the place that `make_place` returns.

    Example:
        class TestMine(StoreConformance):
            def make_place(self, folder: Path) -> Place:
                return UrlPlace(f"mine:///{folder}/store", root=folder)
    """

    def make_place(self, folder: Path) -> Place:
        """Return a fresh place in the empty `folder`."""
        raise NotImplementedError

    @pytest.mark.parametrize("requirement", [pytest.param(r, id=f"{r.id}-{r.name}") for r in all_requirements()])
    async def test_requirement(self, requirement: Requirement, tmp_path: Path) -> None:
        """The store does what the numbered sentence of the contract says."""
        try:
            await check(requirement, self.make_place(tmp_path))
        except NotSupportedError as error:
            pytest.skip(str(error))
