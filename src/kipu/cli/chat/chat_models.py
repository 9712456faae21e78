"""Which model answers: the session's, the one that was asked for, else the one that the settings choose."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kipu.cli.runtime_settings import find_model_choice
from kipu.errors import KipuError

if TYPE_CHECKING:
    from kipu.cli.settings import Settings
    from kipu.ports.model import ModelClient

Say = Callable[[str], None]


class ChatModels:
    """Open models for the runtime. A session's model that cannot be had is said, and the default one answers instead."""

    def __init__(self, settings: Settings, *, asked: str | None, warn: Say) -> None:
        self._settings = settings
        self._warn = warn
        self._ready: dict[str | None, ModelClient] = {}
        self.asked = asked
        self.current: ModelClient | None = None

    def open(self, name: str | None) -> ModelClient:
        """Return the client of a session's model. Raises: ModelError, ConfigurationError where there is none at all."""
        if name in self._ready:
            return self._ready[name]
        if name is None or name == self.asked:
            return self._open(name)[0]
        try:
            return self._open(name)[0]
        except KipuError as error:
            self._warn(f"the session's model {name} cannot be used: {error}")
            self._ready[name] = client = self.open(None)
            return client

    def announce(self, kept: str | None, *, say: Say) -> None:
        """Choose the model for a session that keeps `kept`, and say which it is and why."""
        if self.asked is None and kept is not None:
            try:
                self._announce(kept, say)
                return
            except KipuError as error:
                self._warn(f"the session's model {kept} cannot be used: {error}")
        self._announce(self.asked, say)

    def change(self, name: str, *, say: Say) -> str:
        """Let another model answer from now on, and return its whole name. Raises: ModelNameError, ConfigurationError."""
        self._announce(name, say)
        self.asked = name
        return name

    @property
    def described_name(self) -> str:
        """Return the name of the model that was announced last."""
        return self.current.name if self.current is not None else "(none)"

    def _announce(self, name: str | None, say: Say) -> None:
        client, why = self._open(name)
        self.current = client
        described = client.describe()
        say(f"{described.name} ({why})")
        if described.notice:
            say(described.notice)

    def _open(self, name: str | None) -> tuple[ModelClient, str]:
        from kipu.runtime.models.loader import open_model

        choice = find_model_choice(self._settings, name)
        client = self._ready.get(name)
        if client is None:
            client = self._ready[name] = open_model(choice)
        return client, choice.why

    async def aclose(self) -> None:
        """Close what was opened."""
        for client in self._ready.values():
            await client.aclose()
