"""Work on the tables of facts, as statements that are yielded: written once, run by whichever database keeps them.

In a text `@facts` is the table of facts as that database names it, and `?` a value.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")
Row: TypeAlias = tuple[Any, ...]


class Statement(NamedTuple):
    """One statement and its values; what it answers is sent back."""

    sql: str
    values: Sequence[Any] = ()


class Hold(NamedTuple):
    """From here to the end of the transaction nobody else changes this owner's facts; `is_over`: nothing of the owner is left."""

    tenant: str
    owner: str
    is_over: bool = False


Asked: TypeAlias = Statement | Hold
Steps: TypeAlias = Generator[Asked, list[Row], T]


def places(values: Sequence[Any]) -> str:
    """Return as many places as there are values."""
    return ", ".join("?" * len(values))


def hold_all(owners: set[tuple[str, str]]) -> Steps[None]:
    """Hold several owners, in an order that is the same for all, so that nobody waits for each other."""
    for owner in sorted(owners):
        yield Hold(*owner)
