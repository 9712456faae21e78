"""Busy policies: what happens to a message that reaches a session which is at work (architecture §5, C12)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, get_args

from kipu.errors import InvalidBusyPolicyError

Mode = Literal["followup", "collect", "steer", "interrupt", "rollback", "reject"]
OnFull = Literal["reject_new", "drop_oldest", "summarize"]
MODES: tuple[str, ...] = get_args(Mode)
SESSION_POLICY = "busy"  # the name of a session's own policy in its metadata
ON_FULL: tuple[str, ...] = get_args(OnFull)
MOST_MS = 30 * 24 * 3600 * 1000
MOST_WAITING = 100_000
_RANGES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"debounce_ms": (0, MOST_MS), "max_wait_ms": (0, MOST_MS), "cap": (1, MOST_WAITING), "ttl_ms": (1, MOST_MS)}
)
_MAY_BE_NONE = frozenset({"cap", "ttl_ms"})


@dataclass(frozen=True, slots=True)
class BusyPolicy:
    """What to do with a message while its session is busy, and how many may wait for how long.

    `debounce_ms` and `max_wait_ms` are the quiet time of `collect`. `cap` bounds the messages that wait (None: no bound),
    `on_full` says what gives way. `ttl_ms` is how long a message may wait (None: for ever). `forced` lets `rollback` undo a
    turn although it had an effect outside.

    >>> BusyPolicy.resolve(message="steer", channel={"mode": "collect", "cap": 5}).to_json()
    {'mode': 'steer', 'cap': 5}
    """

    mode: Mode = "followup"
    debounce_ms: int = 1_000
    max_wait_ms: int = 10_000
    cap: int | None = None
    on_full: OnFull = "reject_new"
    ttl_ms: int | None = None
    forced: bool = False

    def __post_init__(self) -> None:
        for part in fields(self):
            _check(part.name, getattr(self, part.name), level="policy")

    @classmethod
    def resolve(
        cls,
        *,
        message: PolicyChoice = None,
        session: PolicyChoice = None,
        channel: PolicyChoice = None,
        default: PolicyChoice = None,
    ) -> BusyPolicy:
        """Return the policy in force: each field from the nearest level that gives it, message > session > channel > default.

        A level is a mode, some fields, or a whole policy.
        Raises: InvalidBusyPolicyError, with the level and field that is wrong.
        """
        levels = {"default": default, "channel": channel, "session": session, "message": message}
        chosen: dict[str, Any] = {}
        for level, choice in levels.items():
            chosen.update(_fields_of(choice, level=level))
        return cls(**chosen)

    @classmethod
    def from_json(cls, data: object) -> BusyPolicy:
        """Return the policy that `to_json` wrote. Raises: InvalidBusyPolicyError."""
        if not isinstance(data, Mapping):
            raise InvalidBusyPolicyError(level="policy", reason=f"{data!r} is not an object")
        return cls(**_fields_of(data, level="policy"))

    def to_json(self) -> dict[str, Any]:
        """Return the mode and what differs from the defaults."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        return {name: value for name, value in values.items() if name == "mode" or value != _DEFAULTS[name]}


PolicyChoice: TypeAlias = BusyPolicy | Mapping[str, Any] | str | None
_DEFAULTS: Mapping[str, Any] = MappingProxyType({part.name: part.default for part in fields(BusyPolicy)})


def _fields_of(choice: PolicyChoice, *, level: str) -> dict[str, Any]:
    if choice is None:
        return {}
    if isinstance(choice, BusyPolicy):
        return {part.name: getattr(choice, part.name) for part in fields(choice)}
    if isinstance(choice, str):
        choice = {"mode": choice}
    if not isinstance(choice, Mapping):
        raise InvalidBusyPolicyError(level=level, reason=f"{choice!r} is neither a mode nor an object")
    for name, value in choice.items():
        if name not in _DEFAULTS:
            reason = f"it has no field {name!r}; there are {', '.join(_DEFAULTS)}"
            raise InvalidBusyPolicyError(level=level, reason=reason)
        _check(name, value, level=level)
    return dict(choice)


def _check(name: str, value: object, *, level: str) -> None:
    words = {"mode": MODES, "on_full": ON_FULL}.get(name)
    if words is not None:
        if value not in words:
            raise InvalidBusyPolicyError(level=level, reason=f"{name} {value!r} is not one of {', '.join(words)}")
        return
    if name == "forced":
        if not isinstance(value, bool):
            raise InvalidBusyPolicyError(level=level, reason=f"forced is {value!r}, not true or false")
        return
    if value is None and name in _MAY_BE_NONE:
        return
    least, most = _RANGES[name]
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        reason = f"{name} is {value!r}, not a whole number from {least} to {most}"
        raise InvalidBusyPolicyError(level=level, reason=reason)


FOLLOWUP = BusyPolicy()
