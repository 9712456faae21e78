"""Copies of rendered messages, so that callers may change what they get (B34), as cheap as the form of each allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from kipu.context.neutral import Message

Maker: TypeAlias = Callable[[], Any]

_ATOMS = frozenset({str, int, float, bool, type(None)})


def maker_of(value: Any) -> Maker:
    """Return what makes copies of JSON data that share nothing that can be changed.

    The form is looked at once; each copy is then made by the fewest steps. A window is copied on every turn, but few of its
    messages are new.
    """
    if type(value) is list:
        return _list_maker(value)
    if type(value) is not dict:
        return lambda: value
    nested = [name for name, item in value.items() if type(item) not in _ATOMS]
    if not nested:
        copy: Maker = value.copy
        return copy
    if len(nested) == 1:
        return _with_one_nested(value, nested[0])
    makers = [(name, maker_of(value[name])) for name in nested]
    return lambda: {**value, **{name: make() for name, make in makers}}


def _with_one_nested(value: Message, name: str) -> Maker:
    inner = value[name]
    if type(inner) is list and len(inner) == 1 and type(inner[0]) is dict:
        make_only = maker_of(inner[0])
        if list(value) == ["role", "content"]:
            role = value["role"]
            return lambda: {"role": role, "content": [make_only()]}
        return lambda: {**value, name: [make_only()]}
    if type(inner) is dict and all(type(item) in _ATOMS for item in inner.values()):
        return lambda: {**value, name: inner.copy()}
    make = maker_of(inner)
    return lambda: {**value, name: make()}


def _list_maker(value: list[Any]) -> Maker:
    if all(type(item) in _ATOMS for item in value):
        return value.copy
    makers = [maker_of(item) for item in value]
    return lambda: [make() for make in makers]
