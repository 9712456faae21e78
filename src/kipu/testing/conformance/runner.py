"""Runs requirements against a store, without any test framework."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

from kipu.testing.conformance.catalogue import all_requirements
from kipu.testing.conformance.expectation import NotSupportedError
from kipu.testing.conformance.place import Place, PlaceMaker, UrlPlace
from kipu.testing.conformance.report import Finding, Outcome, Report
from kipu.testing.conformance.requirement import Requirement
from kipu.testing.conformance.subject import Subject

TIMEOUT_S = 120.0


def places_like(url: str) -> PlaceMaker:
    """Return a maker of fresh places of the URL's kind; the place that the URL itself names is never touched."""
    scheme, _, rest = url.partition("://")
    settings, _, fallback = rest.partition("?")[2].partition("fallback=")

    def make(folder: Path) -> Place:
        query = f"?{settings}" if settings else ""
        if scheme == "memory":
            return UrlPlace(f"memory://{query}")
        if fallback:
            query = f"{query or '?'}fallback={_moved(fallback, folder / 'fallback')}"
        name = "store.db" if scheme == "sqlite" else "store"
        return UrlPlace(f"{scheme}:///{quote(str((folder / name).absolute()))}{query}", root=folder)

    return make


def _moved(url: str, path: Path) -> str:
    scheme, _, rest = url.partition("://")
    mark = "?" if "?" in rest else ""
    return f"{scheme}:///{quote(str(path.absolute()))}{mark}{rest.partition('?')[2]}"


@asynccontextmanager
async def subject_at(place: Place) -> AsyncIterator[Subject]:
    """Give a subject whose stores are closed afterwards."""
    subject = Subject(place)
    try:
        yield subject
    finally:
        await subject.close()


async def check(requirement: Requirement, place: Place) -> None:
    """Check one requirement at a fresh place. Raises: UnmetError, NotSupportedError, whatever the store raises."""
    async with subject_at(place) as subject:
        for capability in requirement.needs:
            subject.need(capability)
        async with asyncio.timeout(TIMEOUT_S):
            await requirement.check(subject)


async def find(requirement: Requirement, place: Place) -> Finding:
    """Return what became of one requirement."""
    started = time.perf_counter()
    try:
        await check(requirement, place)
        outcome, detail = Outcome.PASSED, ""
    except NotSupportedError as error:
        outcome, detail = Outcome.NOT_SUPPORTED, str(error)
    except TimeoutError:
        outcome, detail = Outcome.FAILED, f"did not end within {TIMEOUT_S:.0f} s"
    except AssertionError as error:
        outcome, detail = Outcome.FAILED, str(error)
    except Exception as error:  # noqa: BLE001 - whatever a store raises is a finding, not the end of the run
        outcome, detail = Outcome.FAILED, f"{type(error).__name__}: {error}"
    return Finding(requirement, outcome, detail, time.perf_counter() - started)


def _fresh_folder(base: str, requirement: Requirement) -> Path:
    folder = Path(base, requirement.id)
    folder.mkdir()
    return folder


async def run(
    store: str | PlaceMaker,
    *,
    requirements: Sequence[Requirement] | None = None,
    each: Callable[[Finding], None] | None = None,
) -> Report:
    """Run the suite for a store URL or a maker of places and return the report.

    `each` is called with every finding as it is made, for a progress display.
    """
    make = places_like(store) if isinstance(store, str) else store
    findings = []
    with tempfile.TemporaryDirectory(prefix="kipu-conformance-", ignore_cleanup_errors=True) as base:
        for requirement in requirements or all_requirements():
            finding = await find(requirement, make(_fresh_folder(base, requirement)))
            findings.append(finding)
            if each:
                each(finding)
    return Report(store if isinstance(store, str) else getattr(store, "__name__", "store"), tuple(findings))
