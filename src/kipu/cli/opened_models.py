"""Models that one command asks: each opened once, all closed at its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from kipu.cli.runtime_settings import model_opener

if TYPE_CHECKING:
    from kipu.cli.settings import Settings
    from kipu.ports.model import ModelClient


@asynccontextmanager
async def opened_models(settings: Settings) -> AsyncIterator[Callable[[str | None], ModelClient]]:
    """Give a function from a model's name to its client; None is the one that the settings choose."""
    open_by_name, clients = model_opener(settings), dict[str | None, "ModelClient"]()
    async with AsyncExitStack() as stack:

        def opened(name: str | None) -> ModelClient:
            if name not in clients:
                clients[name] = client = open_by_name(name)
                stack.push_async_callback(client.aclose)
            return clients[name]

        yield opened
