"""Asking a model for one text beside all turns: no tools, an end in sight, and an error rather than half an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kipu.errors import ModelAnswerError, ModelStreamCutError
from kipu.ports.model import ModelClient, ModelReply, ModelRequest, ModelStream, TextDelta

MOST_CHARACTERS = 40_000  # an answer that goes on beyond is none
SILENCE_S = 120.0


async def ask_for_text(
    model: ModelClient, text: str, *, instruction: str, what: str, max_tokens: int, silence_s: float = SILENCE_S
) -> ModelReply:
    """Return the model's whole answer to `text`.

    Raises: ModelAnswerError (it is empty, does not end, or the model is silent for `silence_s`; `what` names it), ModelError.
    """
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": [{"type": "text", "text": instruction}]},
        {"role": "user", "content": [{"type": "text", "text": text}]},
    ]
    request = ModelRequest(model=model.name, messages=messages, settings={"max_tokens": max_tokens})
    with cut_where_unasked(model):
        async with model.stream(request) as stream:
            reply = await _reply(stream, silence_s)
    if reply is None or reply.state != "complete" or not reply.text.strip():
        raise ModelAnswerError(model=model.name, reason=f"it gave no {what}")
    return reply


@contextmanager
def cut_where_unasked(model: ModelClient) -> Iterator[None]:
    """Take a cancellation that nobody wanted of this task for its client's: some library let its own out, and the answer broke off.

    Raises: ModelStreamCutError (instead of it).
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        yield
    except asyncio.CancelledError as error:
        if task is None or task.cancelling() > before:
            raise
        endpoint = model.describe().endpoint or "the provider"
        reason = "its client cancelled it by itself"
        raise ModelStreamCutError(model=model.name, endpoint=endpoint, reason=reason, retry_after_s=None) from error


async def _reply(stream: ModelStream, silence_s: float) -> ModelReply | None:
    """Read to the end of an answer; None where it is silent for too long, or does not end."""
    characters = 0
    while characters <= MOST_CHARACTERS:
        try:
            async with asyncio.timeout(silence_s):
                event = await anext(stream, None)
        except TimeoutError:
            return None
        if event is None or isinstance(event, ModelReply):
            return event
        characters += len(event.text) if isinstance(event, TextDelta) else 0
    return None
