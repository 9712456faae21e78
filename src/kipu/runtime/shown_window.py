"""What a model call was shown: recorded with it, and rendered again from the log (C6)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from kipu.context.policy import WindowPolicy
from kipu.context.rendering import RENDERER_VERSION, Rendering
from kipu.errors import InputError
from kipu.events.conversation import ModelCallEvent
from kipu.manager.anchors import anchors_at
from kipu.manager.history import LiveHistory
from kipu.manager.session import Session
from kipu.ports.store import EventStore

TARGET = "neutral"


def window_digest(messages: Sequence[dict[str, Any]]) -> str:
    """Return the digest of neutral messages: SHA-256 over their canonical JSON (sorted keys, no spaces, UTF-8)."""
    return hashlib.sha256(orjson.dumps(messages, option=orjson.OPT_SORT_KEYS)).hexdigest()


def window_record(rendering: Rendering, history: LiveHistory, *, provider: str, model: str) -> dict[str, Any]:
    """Return the `window` of a `model_call`: enough to render the same messages again."""
    return {
        **history.window.jump_record(history.window.start_seq),
        "to": history.last_seq,
        "policy": history.policy.to_json(),
        "target": TARGET,
        "renderer_version": RENDERER_VERSION,
        "reader": {"provider": provider, "model": model},
        "digest": window_digest(rendering.messages),
    }


@dataclass(frozen=True, slots=True)
class Replay:
    """A model call rendered again. `matches` is False where the log no longer gives what the model was shown."""

    call: ModelCallEvent
    messages: list[dict[str, Any]]
    digest: str

    @property
    def expected(self) -> str:
        """Return the digest that was recorded."""
        return str(self.call.window.get("digest", ""))

    @property
    def matches(self) -> bool:
        """Return True when the messages are those the model was shown, byte for byte."""
        return self.digest == self.expected


async def replay(session: Session, call: ModelCallEvent, *, store: EventStore) -> Replay:
    """Return the call's window, rendered from the events it names under the policy it names.

    Raises:
        InputError: it was rendered by a version that is not known here, or does not say what it showed.
    """
    window = call.window
    version, to_seq = window.get("renderer_version"), window.get("to")
    if version != RENDERER_VERSION or not isinstance(to_seq, int):
        raise InputError(reason=f"model call {call.seq} was rendered by version {version!r}, which is not known here")
    policy = WindowPolicy.from_json(window["policy"])
    reader = window.get("reader", {})
    anchors = await anchors_at(session.history, to_seq)
    anchors["pins"] = tuple(anchors["pins"])
    then = replace(session.head, **{**anchors, "window_seq": window["from"], "last_seq": to_seq})
    history = await LiveHistory.open(store, then, policy=policy)
    rendering = history.window.messages(TARGET, provider=reader.get("provider"), model=reader.get("model"))
    return Replay(call, rendering.messages, window_digest(rendering.messages))


async def model_calls(session: Session) -> list[ModelCallEvent]:
    """Return every model call of the session in order."""
    return [event async for event in session.events() if isinstance(event, ModelCallEvent)]


def call_of_turn(calls: Sequence[ModelCallEvent], turn: str | int) -> ModelCallEvent:
    """Return the last model call of a turn: the n-th turn that called a model (from 1, or from the end below 0), or a turn id.

    Raises:
        InputError: there is no such turn.
    """
    turns: dict[str, ModelCallEvent] = {}
    for call in calls:
        turns[call.turn_id or f"seq {call.seq}"] = call
    if isinstance(turn, str):
        found = turns.get(turn)
    else:
        ordered = list(turns.values())
        found = ordered[turn - 1 if turn > 0 else turn] if turn and -len(ordered) <= turn <= len(ordered) else None
    if found is None:
        raise InputError(reason=f"there is no turn {turn} that called a model; there are {len(turns)}")
    return found
