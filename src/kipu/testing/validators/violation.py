"""What a validator reports, and the collector that the validators share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """Name one broken rule, where it is broken, and what to change."""

    rule: str
    """Stable id, `<target>.<rule>`."""
    path: str
    """JSON pointer into the request body."""
    message: str

    def __str__(self) -> str:
        return f"{self.rule} at {self.path or '/'}: {self.message}"


class Findings:
    """Collect the violations of one request body, in the order in which they are found."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._violations: list[Violation] = []

    def add(self, rule: str, path: str, *, message: str) -> None:
        """Record one violation."""
        self._violations.append(Violation(f"{self.target}.{rule}", path, message))

    def result(self) -> list[Violation]:
        """Return what was found, each violation once."""
        return list(dict.fromkeys(self._violations))

    def mapping(self, value: object, path: str) -> Mapping[str, object] | None:
        """Return `value` when it is a JSON object, else report it."""
        if isinstance(value, Mapping):
            return value
        self.add("type", path, message=f"must be an object, not {type(value).__name__}")
        return None

    def array(self, value: object, path: str) -> Sequence[object] | None:
        """Return `value` when it is a JSON array, else report it."""
        if isinstance(value, (list, tuple)):
            return value
        self.add("type", path, message=f"must be an array, not {type(value).__name__}")
        return None

    def string(self, value: object, path: str) -> str | None:
        """Return `value` when it is a string, else report it."""
        if isinstance(value, str):
            return value
        self.add("type", path, message=f"must be a string, not {type(value).__name__}")
        return None

    def text(self, value: object, path: str) -> str | None:
        """Return `value` when it is a string with something in it, else report it."""
        text = self.string(value, path)
        if text is None:
            return None
        if not text:
            self.add("text_empty", path, message="text must not be empty: leave the block out")
        elif not text.strip():
            self.add("text_blank", path, message="text must hold more than white space: leave the block out")
        return text

    def keys(
        self, value: Mapping[str, object], path: str, *, required: Iterable[str] = (), allowed: Iterable[str] = ()
    ) -> bool:
        """Report missing and unknown keys, and say whether all required ones are there."""
        required = tuple(required)
        missing = [key for key in required if key not in value]
        for key in missing:
            self.add("key_missing", path, message=f"needs the key {key!r}")
        known = {*required, *allowed}
        for key in value:
            if key not in known:
                self.add("key_unknown", path, message=f"the key {key!r} is not accepted here")
        return not missing

    def choice(self, value: object, path: str, *, among: Iterable[str]) -> None:
        """Report a value outside a closed set."""
        known = sorted(among)
        if not isinstance(value, str) or value not in known:
            self.add("value_unknown", path, message=f"{value!r} is not one of {known}")
