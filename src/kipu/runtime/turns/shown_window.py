"""What a model call was shown: recorded with it, and rendered again from the log (C6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kipu.context.digest import Replay, window_digest
from kipu.context.digest import replay as replay_items
from kipu.context.item import Item
from kipu.context.policy import WindowPolicy
from kipu.context.rendering import RENDERER_VERSION, Rendering
from kipu.errors import InputError
from kipu.events.conversation import ModelCallEvent
from kipu.manager.history import LiveHistory, is_read_anew
from kipu.manager.loader import PAGE
from kipu.manager.session import Session
from kipu.ports.store import EventStore
from kipu.session.fold import fold

TARGET = "neutral"
RECENT_EVENTS = 500


def window_record(rendering: Rendering, history: LiveHistory, *, provider: str, model: str) -> dict[str, Any]:
    """Return the `window` of a `model_call`: enough to render the same messages again."""
    return {
        **history.window.jump_record(history.window.start_seq),
        "to": history.last_seq,
        "policy": history.policy.to_json(),
        "target": TARGET,
        "renderer_version": RENDERER_VERSION,
        "reader": {"provider": provider, "model": model},
        "digest": history.window.digest(provider=provider, model=model),
    }


async def replay(session: Session, call: ModelCallEvent, *, store: EventStore) -> Replay:
    """Return the call's window, rendered from the events before it under the policy it names, and whether it is the same.

    There are two ways to it: from the events alone, and by opening the session as it was after its last rewind or the end of
    its fork's sharing. An equal digest proves that either gives what the model was shown.

    Raises:
        InvalidQueryError: it was rendered by a version that is not known here.
    """
    items: list[Item] = []
    while True:
        page = await session.history.reader.forwards(after=items[-1].seq if items else 0, until=call.seq - 1)
        items.extend(page)
        if len(page) < PAGE:
            break
    replayed = replay_items(items, call)
    if replayed.matches is False:
        reopened = await _reopened(store, items, call=call)
        replayed = reopened if reopened is not None and reopened.matches else replayed
    return replayed


async def _reopened(store: EventStore, items: Sequence[Item], *, call: ModelCallEvent) -> Replay | None:
    """Open the session as it was when it was last read anew, else as it began, and take in what came until the call."""
    to_seq = call.window.get("to", call.seq - 1)
    own = [item for item in items if item.event.session_id == call.session_id and item.seq <= to_seq]
    if not own:
        return None
    last = max((index for index, item in enumerate(own) if is_read_anew(item.event)), default=0)
    head = fold([item.event for item in own[: last + 1]], session_id=call.session_id)
    history = await LiveHistory.open(store, head, policy=WindowPolicy.from_json(call.window["policy"]))
    for item in own[last + 1 :]:  # one by one: many at once may have the session read anew, with all that came since
        history.advance([item])
        await history.settle()
    reader = call.window.get("reader") or {}
    rendering = history.window.messages(TARGET, provider=reader.get("provider"), model=reader.get("model"))
    digest = window_digest(rendering.messages)
    return Replay(rendering, digest, digest == call.window.get("digest"))


async def model_calls(session: Session) -> list[ModelCallEvent]:
    """Return every model call of the session in order."""
    return [event async for event in session.events() if isinstance(event, ModelCallEvent)]


async def last_call(session: Session) -> ModelCallEvent | None:
    """Return the newest model call, if it is among the newest events."""
    recent = await session.get_recent_events(RECENT_EVENTS)
    return next((event for event in reversed(recent) if isinstance(event, ModelCallEvent)), None)


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
