"""Make every value storable, once, before anything sees it, and say what was changed.

Whatever a tool returned, the event of its side effect must be stored (B16): nothing here raises. All stores then round-trip
the same values, for there is nothing left that one of them would treat in its own way.
"""

from __future__ import annotations

import base64
import dataclasses
import math
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time
from enum import Enum
from typing import Any, NamedTuple

from pydantic import BaseModel

MAX_DEPTH = 64
MAX_INTEGER = (1 << 63) - 1
NUL_SYMBOL = "␀"


class Change(NamedTuple):
    """One value that was changed: where, why, and what it was (escaped, shortened)."""

    path: str
    kind: str  # surrogate, nul, number, key, integer, object, depth
    original: str

    def to_json(self) -> dict[str, Any]:
        """Return the change as it is kept in the event's `normalised` field."""
        return self._asdict()


def normalise(value: Any) -> tuple[Any, list[Change]]:
    """Return `value` as plain JSON data, and the changes that took. A value that needs none comes back as the same object."""
    changes: list[Change] = []
    if _is_plain(value, 0):
        return value, changes
    return _value(value, "", changes, 0), changes


def _is_plain(value: Any, depth: int) -> bool:
    """Say whether there is nothing to change: the usual case, told without keeping track of where things are."""
    kind = type(value)
    if kind is str:
        return _is_storable(value)
    if value is None or kind is bool:
        return True
    if kind is int:
        return bool(-MAX_INTEGER - 1 <= value <= MAX_INTEGER)
    if kind is float:
        return math.isfinite(value)
    if depth >= MAX_DEPTH:
        return False
    if kind is dict:
        for name, item in value.items():
            if type(name) is not str or not _is_storable(name):
                return False
            if not (_is_storable(item) if type(item) is str else _is_plain(item, depth + 1)):
                return False
        return True
    return kind is list and all(_is_plain(item, depth + 1) for item in value)


def _is_storable(text: str) -> bool:
    if text.isascii():
        return "\0" not in text
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def _value(value: Any, path: str, changes: list[Change], depth: int) -> Any:
    kind = type(value)
    if kind is str:
        return value if value.isascii() and "\0" not in value else _text(value, path, changes)
    if value is None or kind is bool:
        return value
    if kind is int:
        return _integer(value, path, changes)
    if kind is float:
        return value if math.isfinite(value) else _note(changes, path, "number", repr(value), repr(value))
    if depth >= MAX_DEPTH:
        return _note(changes, path, "depth", _shown(value), _shown(value))
    if kind is dict:
        return _object(value, path, changes, depth)
    if kind is list:
        return _array(value, path, changes, depth)
    return _value(_plain(value, path, changes), path, changes, depth + 1)


def _text(value: str, path: str, changes: list[Change]) -> str:
    if "\0" in value:
        value = _note(changes, path, "nul", _shown(value), value.replace("\0", NUL_SYMBOL))
    try:
        value.encode()
    except UnicodeEncodeError:
        # A pair of surrogates is one character that was escaped badly; only a lone one is lost.
        repaired = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return str(_note(changes, path, "surrogate", _shown(value), repaired))
    return value


def _integer(value: int, path: str, changes: list[Change]) -> int | str:
    if -MAX_INTEGER - 1 <= value <= MAX_INTEGER:
        return value
    text = hex(value)  # decimal text of a huge integer is refused by the interpreter
    return str(_note(changes, path, "integer", text[:200], text))


def _object(value: Mapping[Any, Any], path: str, changes: list[Change], depth: int) -> dict[str, Any]:
    result: dict[str, Any] = {}
    same = True
    for key, item in value.items():
        name = _value(key, path, changes, depth + 1) if type(key) is str else _key(key, path, changes)
        new = _value(item, f"{path}/{name}", changes, depth + 1)
        same = same and new is item and name is key
        while name in result:
            name += "'"
        result[name] = new
    return value if same and type(value) is dict else result


def _key(key: object, path: str, changes: list[Change]) -> str:
    name = key if isinstance(key, str) else str(_plain_text(key))
    return str(_note(changes, path, "key", _shown(key), _text(str(name), path, changes)))


def _array(value: list[Any], path: str, changes: list[Change], depth: int) -> list[Any]:
    result = [_value(item, f"{path}/{index}", changes, depth + 1) for index, item in enumerate(value)]
    return value if all(new is old for new, old in zip(result, value, strict=True)) else result


def _plain(value: Any, path: str, changes: list[Change]) -> Any:
    """Return a value of another type as one step nearer to JSON."""
    if isinstance(value, BaseModel):
        return {name: item for name, item in value if item is not None}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str | int | float):
        return {str: str, int: int, float: float}[next(base for base in (str, int, float) if isinstance(value, base))](
            value
        )
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, bytes | bytearray | memoryview):
        return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if isinstance(value, tuple):
        return list(value)
    return _note(changes, path, "object", _shown(value), _plain_text(value))


def _plain_text(value: object) -> str:
    for make in (getattr(value, "__fspath__", None), lambda: str(value), lambda: object.__repr__(value)):
        if make is None:
            continue
        try:
            return str(make())
        except Exception:  # noqa: BLE001, S112 - whatever a tool returned, its text may raise anything at all
            continue
    return type(value).__name__


def _shown(value: object) -> str:
    """Return a short escaped form of what stood there; for huge values only their kind."""
    if isinstance(value, str):
        return value[:200].encode("unicode_escape", "surrogatepass").decode("ascii", "replace")
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        return f"{type(value).__name__} of {len(value)}"
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _note(changes: list[Change], path: str, kind: str, original: str, replacement: Any) -> Any:
    changes.append(Change(path or "/", kind, original))
    return replacement


def note_changes(changes: Iterable[Change]) -> list[dict[str, Any]]:
    """Return the changes as JSON, for the event's `normalised` field."""
    return [change.to_json() for change in changes]
