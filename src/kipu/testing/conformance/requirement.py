"""One sentence of the store contract and the function that finds out whether it holds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kipu.testing.conformance.subject import Subject

Check = Callable[[Subject], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Requirement:
    """A numbered sentence. `needs` names capabilities of the place without which it does not apply."""

    number: int
    sentence: str
    promises: tuple[str, ...]
    needs: tuple[str, ...]
    check: Check
    topic: str

    @property
    def id(self) -> str:
        """Return the stable id, such as `ST-12`."""
        return f"ST-{self.number}"

    @property
    def name(self) -> str:
        """Return the name of the function that checks it."""
        return getattr(self.check, "__name__", self.id)


def requirement(number: int, *promises: str, needs: tuple[str, ...] = ()) -> Callable[[Check], Requirement]:
    """Make a requirement of an async function whose docstring is the sentence."""

    def make(check: Check) -> Requirement:
        sentence = " ".join((check.__doc__ or "").split())
        topic = check.__module__.rpartition(".")[2]
        return Requirement(number, sentence, promises, needs, check, topic)

    return make
