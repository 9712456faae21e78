"""The demo model's view of a window with tools: what was asked last, and what has been done about it since."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kipu.ports.model import JsonObject

# Texts that stand in the user's role and that no person said now (docs/concepts/windows.md).
RECALLED = "Recalled from memory"
TOLD = ("[Late result of the tool call", RECALLED, "Summary of the conversation so far:")
NOT_DONE = ("denied", "[denied", "not allowed", "nobody decided", "the approval came", "the call is not the one")


@dataclass(frozen=True, slots=True)
class Call:
    """One call that the demo model makes."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Done:
    """One call that was made, with its result as text."""

    call: Call
    result: str
    is_error: bool

    @property
    def is_refused(self) -> bool:
        """Return whether a person or a policy said no."""
        return self.is_error and self.result.lower().startswith(NOT_DONE)

    @property
    def lines(self) -> list[str]:
        """Return the result's lines that say something."""
        return [line.rstrip() for line in self.result.splitlines() if line.strip()]


@dataclass(frozen=True, slots=True)
class Task:
    """What people said since the last answer, the calls made for it, and how many calls the window holds in all."""

    text: str
    done: tuple[Done, ...] = ()
    calls_before: int = 0


def task_of(window: Sequence[JsonObject]) -> Task:
    """Return the task at the end of a window. A message in the middle of a turn is a new task: it takes the old one's place."""
    said: list[str] = []
    done: list[Done] = []
    open_calls: dict[str, Call] = {}
    calls = 0
    for message in window:
        if message["role"] == "user":
            texts = [text for part in message["content"] if (text := part.get("text")) and not text.startswith(TOLD)]
            if texts and (done or open_calls or not said):
                said, done, open_calls = [], [], {}
            said += texts
        elif message["role"] == "assistant":
            called = [part for part in message["content"] if part["type"] == "tool_call"]
            calls += len(called)
            open_calls |= {part["id"]: Call(part["name"], part.get("input") or {}) for part in called}
            if not called:
                said, done, open_calls = [], [], {}
        elif message["role"] == "tool":
            for part in message["content"]:
                call = open_calls.get(part["id"], Call(part["name"], {}))
                done.append(Done(call, _text(part), bool(part.get("is_error"))))
    return Task("\n".join(said), tuple(done), calls)


def _text(result: JsonObject) -> str:
    return "\n".join(
        part["text"] if part["type"] == "text" else f"[{part['media_type']}]" for part in result["content"]
    )


def arguments_text(call: Call) -> str:
    """Return a call's arguments as the JSON text that is streamed."""
    return json.dumps(call.arguments, ensure_ascii=False)
