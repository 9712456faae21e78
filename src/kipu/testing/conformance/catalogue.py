"""Every requirement there is, in the order of the numbers."""

from __future__ import annotations

from kipu.testing.conformance import (
    adopting,
    append,
    bindings,
    blobs,
    cancelling,
    clocks,
    contending,
    erasing,
    following,
    heads,
    idempotency,
    lasting,
    leases,
    letting_go,
    listing,
    marking,
    moving,
    reading,
    searching,
    spoiling,
    work,
)
from kipu.testing.conformance.requirement import Requirement

_TOPICS = (
    append, idempotency, leases, bindings, reading, heads, listing, work, searching, following, blobs, erasing, letting_go, cancelling,
    contending, clocks, lasting, spoiling, moving, adopting, marking,
)  # fmt: skip


def all_requirements() -> tuple[Requirement, ...]:
    """Return all requirements, sorted by number."""
    found = [value for topic in _TOPICS for value in vars(topic).values() if isinstance(value, Requirement)]
    return tuple(sorted(found, key=lambda each: each.number))


def markdown_table() -> str:
    """Return the table of numbers, sentences and promises, for the format document."""
    rows = [
        f"| **{r.id}** | {r.sentence} | {', '.join(r.promises)} | {', '.join(r.needs)} |" for r in all_requirements()
    ]
    return "\n".join(["| id | requirement | promises | needs |", "|---|---|---|---|", *rows])
