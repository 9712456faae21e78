"""Copies of rendered messages, so that callers may change what they get (B34), as cheap as the form of each allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from kipu.context.neutral import Message

Copier: TypeAlias = Callable[[Any], Any]
"""What copies JSON data of one form, so that copy and original share nothing that can be changed."""

_ATOMS = frozenset({str, int, float, bool, type(None)})
_MOST_FORMS = 256


class KeptMessages:
    """The messages of a window that will not change, with what copies each.

    A window is copied on every turn, and few of its messages are new: the form of each is looked at once. All messages of a
    form have one copier, since whatever is kept for every message is in the way of every garbage collection.
    """

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._copiers: list[Copier] = []
        self._shared: dict[tuple[Any, ...], Copier] = {}

    def __len__(self) -> int:
        return len(self._messages)

    def extend(self, messages: Sequence[Message]) -> None:
        """Take in the messages that follow."""
        self._messages += messages
        self._copiers += map(self._copier, messages)

    def forget(self, start: int, stop: int) -> None:
        """Let go of the messages from `start` up to `stop`."""
        del self._messages[start:stop]
        del self._copiers[start:stop]

    def copies(self) -> list[Message]:
        """Return copies of the messages that share nothing with them that can be changed."""
        return [copier(message) for copier, message in zip(self._copiers, self._messages, strict=True)]

    def _copier(self, value: Any) -> Copier:
        """Return what copies `value`, and whatever else has its form: differs from it in texts and numbers only."""
        if type(value) is dict:
            return self._object_copier(value)
        return self._list_copier(value) if type(value) is list else _itself

    def _object_copier(self, value: Message) -> Copier:
        if _ATOMS.issuperset(map(type, value.values())):
            return dict.copy
        nested = [(name, item) for name, item in value.items() if type(item) not in _ATOMS]
        if len(nested) > 1:
            return self._one_of(_with_several, tuple([(name, self._copier(item)) for name, item in nested]))
        ((name, item),) = nested
        if type(item) is list and len(item) == 1 and type(item[0]) not in _ATOMS:
            return self._one_of(_with_part, (name, self._copier(item[0])))
        return self._one_of(_with_one, (name, self._copier(item)))

    def _list_copier(self, value: Sequence[Any]) -> Copier:
        if _ATOMS.issuperset(map(type, value)):
            return list.copy
        copiers = tuple([self._copier(item) for item in value])
        return self._one_of(_of_all, copiers[:1]) if len(set(copiers)) == 1 else self._one_of(_of_each, copiers)

    def _one_of(self, make: Callable[[Any], Copier], parts: tuple[Any, ...]) -> Copier:
        copier = self._shared.get((make, *parts))
        if copier is None:
            if len(self._shared) >= _MOST_FORMS:
                self._shared.clear()
            copier = self._shared[(make, *parts)] = make(parts)
        return copier


def copy_of(value: Any) -> Any:
    """Return a copy of JSON data that shares nothing with it that can be changed."""
    if type(value) is dict:
        copied = value.copy()
        for name, item in value.items():
            if type(item) not in _ATOMS:
                copied[name] = copy_of(item)
        return copied
    return [copy_of(item) for item in value] if type(value) is list else value


def _itself(value: Any) -> Any:
    return value


def _with_part(parts: tuple[str, Copier]) -> Copier:
    """Copy a message whose content is one part, or one call: the form of most."""
    name, copier = parts

    def copy(value: Message) -> Message:
        copied = value.copy()
        copied[name] = [copier(copied[name][0])]
        return copied

    return copy


def _with_one(parts: tuple[str, Copier]) -> Copier:
    name, copier = parts

    def copy(value: Message) -> Message:
        copied = value.copy()
        copied[name] = copier(copied[name])
        return copied

    return copy


def _with_several(nested: Sequence[tuple[str, Copier]]) -> Copier:
    def copy(value: Message) -> Message:
        copied = value.copy()
        for name, copier in nested:
            copied[name] = copier(copied[name])
        return copied

    return copy


def _of_all(copiers: Sequence[Copier]) -> Copier:
    (copier,) = copiers
    return lambda value: list(map(copier, value))


def _of_each(copiers: Sequence[Copier]) -> Copier:
    return lambda value: [copier(item) for copier, item in zip(copiers, value, strict=True)]
