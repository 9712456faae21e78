"""Copies of rendered messages, so that callers may change what they get (B34), as cheap as the form of each allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from kipu.context.neutral import Message

Maker: TypeAlias = Callable[[], Any]
Nested: TypeAlias = tuple[int, str, Maker]
"""Index of a message, the name of a value in it that can be changed itself, and what makes copies of that value."""

_ATOMS = frozenset({str, int, float, bool, type(None)})


def copies(messages: Sequence[Message], nested: Sequence[Nested]) -> list[Message]:
    """Return copies of messages that share nothing that can be changed; `nested` is what `nested_in` said of each.

    A window is copied on every turn, but few of its messages are new: their form is looked at once.
    """
    copied = list(map(dict.copy, messages))
    for index, name, make in nested:
        copied[index][name] = make()
    return copied


def nested_in(message: Message, index: int = 0) -> list[Nested]:
    """Return the values of a message that are objects or lists themselves."""
    if _is_flat(message):
        return []
    return [(index, name, maker_of(item)) for name, item in message.items() if type(item) not in _ATOMS]


def maker_of(value: Any) -> Maker:
    """Return what makes copies of JSON data that share nothing that can be changed."""
    if type(value) is list:
        return _list_maker(value)
    if type(value) is not dict:
        return lambda: value
    nested = nested_in(value)
    if not nested:
        flat: Maker = value.copy
        return flat

    return _with_nested(value, nested)


def _with_nested(value: Message, nested: Sequence[Nested]) -> Maker:
    if len(nested) == 1:  # as every call of a tool is
        _, only, make_only = nested[0]

        def with_one() -> Message:
            copied = value.copy()
            copied[only] = make_only()
            return copied

        return with_one

    def with_all() -> Message:
        copied = value.copy()
        for _, name, make in nested:
            copied[name] = make()
        return copied

    return with_all


def _list_maker(value: list[Any]) -> Maker:
    if _ATOMS.issuperset(map(type, value)):
        return value.copy
    if all(_is_flat(item) for item in value):
        if len(value) == 1:
            only = value[0]
            return lambda: [only.copy()]
        return lambda: list(map(dict.copy, value))
    if len(value) == 1:
        make_only = maker_of(value[0])
        return lambda: [make_only()]
    makers = [maker_of(item) for item in value]
    return lambda: [make() for make in makers]


def _is_flat(value: Any) -> bool:
    return type(value) is dict and _ATOMS.issuperset(map(type, value.values()))
