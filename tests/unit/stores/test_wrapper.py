"""The wrapper base: the whole contract, passed on."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from kipu.ports.store import Appended, EventStore, Record
from kipu.stores.memory import MemoryStore
from kipu.stores.wrapper import WrappedStore
from kipu.testing.conformance import Capabilities, FunctionPlace, Place
from kipu.testing.conformance.suite import StoreConformance
from kipu.testing.fakes import FakeClock, FakeLiveness

IN_MEMORY = Capabilities(persistent=False, shared=False, multi_process=False, files=False, reason="it is in memory")


async def _wrapped(**settings: Any) -> EventStore:
    return WrappedStore(await MemoryStore.open(**settings))


class TestWrapped(StoreConformance):
    """A wrapper that overrides nothing is the store inside (C25)."""

    def make_place(self, folder: object) -> Place:
        """Return a wrapped store in memory."""
        return FunctionPlace(_wrapped, capabilities=IN_MEMORY)


def test_every_method_of_the_contract_is_passed_on() -> None:
    """The wrapper has each method of the contract with the same parameters (C25)."""
    for name, method in inspect.getmembers(EventStore, inspect.isfunction):
        if not name.startswith("_"):
            ours = inspect.signature(getattr(WrappedStore, name))
            assert list(ours.parameters) == list(inspect.signature(method).parameters), name


async def test_a_wrapper_overrides_only_its_concern() -> None:
    """A derived wrapper changes one call, and the others still reach the store inside."""

    class Counting(WrappedStore):
        appends = 0

        async def append(self, session_id: str, records: Sequence[Record], **options: Any) -> Appended:
            self.appends += 1
            return await super().append(session_id, records, **options)

    store = Counting(await MemoryStore.open(clock=FakeClock(), liveness=FakeLiveness()))
    await store.append("one", [Record("e", "session_init", FakeClock().iso(), b"{}")])
    assert store.appends == 1
    assert await store.head("one") == await store.inner.head("one")
