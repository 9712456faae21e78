"""Old bodies to the present form. A version that was ever released is never dropped from here (C18)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

JsonObject = dict[str, Any]
Upcast = Callable[[JsonObject], JsonObject]

# (event_type, version) → the step to version + 1. Golden files in tests/formats/golden hold every version.
UPCASTS: Mapping[tuple[str, int], Upcast] = MappingProxyType({})


def upcast(
    event_type: str,
    body: JsonObject,
    *,
    version: int,
    current: int,
    steps: Mapping[tuple[str, int], Upcast] = UPCASTS,
) -> JsonObject:
    """Return `body` brought from `version` to `current`, one step at a time; versions without a step did not change it."""
    for step in range(version, current):
        change = steps.get((event_type, step))
        if change is not None:
            body = change(body)
    return body
