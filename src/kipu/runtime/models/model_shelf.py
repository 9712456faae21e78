"""The models of a process: each is opened once and shared, and closed again when nobody has used it for a while."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from typing import Any

from kipu.ports.model import ModelClient

logger = logging.getLogger(__name__)

MAX_MODELS = 8  # that are kept open although nobody uses them
IDLE_S = 600.0  # longer than anybody who asked for one, and is no agent, takes to ask it


class ModelShelf:
    """Hold clients by name; at most `max_models` of those that no agent has stay, the ones used last."""

    def __init__(
        self,
        open_model: Callable[[str | None], ModelClient],
        *,
        monotonic_s: Callable[[], float],
        max_models: int = MAX_MODELS,
        idle_s: float = IDLE_S,
    ) -> None:
        self._open_model = open_model
        self._monotonic_s = monotonic_s
        self._max_models = max_models
        self._idle_s = idle_s
        self._models: dict[str | None, tuple[ModelClient, float]] = {}

    def get(self, name: Any = None) -> ModelClient:
        """Return the client of a model, opened where it is not; None is the default one. Raises: ModelError, and the like."""
        key = name if isinstance(name, str) and name else None
        kept = self._models.pop(key, None)
        model = self._open_model(key) if kept is None else kept[0]
        self._models[key] = (model, self._monotonic_s())  # behind those that were used before
        return model

    async def tidy(self, used: Collection[ModelClient]) -> int:
        """Close what is too much and nobody uses any more, the oldest first; return how many."""
        now_s, closed = self._monotonic_s(), 0
        for name, (model, used_s) in list(self._models.items()):
            too_many = len(self._models) - len(used) > self._max_models
            if not too_many or now_s - used_s < self._idle_s:
                break
            if any(model is each for each in used):
                continue
            del self._models[name]
            closed += 1
            try:
                await model.aclose()
            except Exception:  # whatever a client does
                logger.warning("the model %s could not be closed", model.name, exc_info=True)
        return closed

    async def close(self) -> None:
        """Close all, also when one of them fails."""
        models, self._models = [model for model, _ in self._models.values()], {}
        async with AsyncExitStack() as stack:
            for model in models:
                stack.push_async_callback(model.aclose)

    def __len__(self) -> int:
        return len(self._models)
