"""Live pieces by the publish and subscribe of Valkey or Redis, which keeps nothing of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit, urlunsplit

from kipu.errors import ConfigurationError, MissingExtraError
from kipu.ports.live import CONTROL, Hear
from kipu.ports.url_settings import settings_in

if TYPE_CHECKING:
    from valkey.asyncio import Valkey

logger = logging.getLogger(__name__)
SCHEMES = ("valkey", "valkeys", "redis", "rediss", "unix")
MOST_BYTES = 60_000
_AGAIN_S = 1.0
_WAIT_S = 5.0
_PREFIX = "kipu"


class ValkeyChannel:
    """Carry texts by PUBLISH (contract: `LiveChannel`). `?prefix=` in the URL keeps several stores on one server apart."""

    most_bytes = MOST_BYTES

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        settings = {name: value for name, value in settings_in(parts.query) if value}
        self._prefix = settings.pop("prefix", _PREFIX)
        self._url = urlunsplit(parts._replace(query=urlencode(settings)))
        self._topics = {CONTROL}
        self._client: Valkey | None = None
        self._hearing: Any = None
        self._hear: Hear | None = None
        self._connected: Callable[[], None] = _nobody
        self._standing: asyncio.Task[None] | None = None
        self._lost: tuple[type[Exception], ...] = ()

    async def open(self, hear: Hear, connected: Callable[[], None]) -> None:
        """Begin to hear. Raises: MissingExtraError, ConfigurationError."""
        try:
            from valkey.asyncio import Valkey
            from valkey.exceptions import ValkeyError
        except ImportError as error:
            raise MissingExtraError(extra="valkey", feature="live pieces over Valkey", package="valkey") from error
        self._hear, self._connected = hear, connected
        self._lost = (ValkeyError, OSError, TimeoutError)
        try:
            self._client = Valkey.from_url(self._url, socket_connect_timeout=_WAIT_S, socket_timeout=_WAIT_S)
        except ValueError:
            raise ConfigurationError(reason="live is off, or a URL such as valkey://host:6379/0") from None
        self._standing = asyncio.ensure_future(self._stand(self._client))

    def _name(self, topic: str) -> str:
        return f"{self._prefix}:live:{topic}"

    async def _stand(self, client: Valkey) -> None:
        while True:
            try:
                async with self._subscribed(client) as hearing:
                    self._connected()
                    await self._listen(hearing)
            except self._lost as error:
                logger.debug("no live pieces over Valkey for now: %s", error)
            await asyncio.sleep(_AGAIN_S)

    @asynccontextmanager
    async def _subscribed(self, client: Valkey) -> AsyncIterator[Any]:
        hearing: Any = client.pubsub(ignore_subscribe_messages=True)
        try:
            begun = set(self._topics)
            await hearing.subscribe(*(self._name(topic) for topic in begun))
            self._hearing = hearing
            for topic in self._topics - begun:  # what is to be heard since that was on its way
                await hearing.subscribe(self._name(topic))
            yield hearing
        finally:
            self._hearing = None
            with suppress(*self._lost):
                await hearing.aclose()

    async def _listen(self, hearing: Any) -> None:
        start = len(self._name(CONTROL))
        while True:
            message: dict[str, Any] | None = await hearing.get_message(timeout=_WAIT_S)
            if message is not None and message.get("type") == "message" and self._hear is not None:
                self._hear(_text(message["channel"])[start:], _text(message["data"]))

    async def listen(self, topic: str) -> None:
        """Hear a topic from now on, or from when there is a line."""
        self._topics.add(topic)
        if self._hearing is not None:
            with suppress(*self._lost):
                await self._hearing.subscribe(self._name(topic))

    async def unlisten(self, topic: str) -> None:
        """Hear it no more."""
        self._topics.discard(topic)
        if self._hearing is not None:
            with suppress(*self._lost):
                await self._hearing.unsubscribe(self._name(topic))

    async def send(self, messages: Sequence[tuple[str, str]]) -> None:
        """Publish texts, all on their way together. Raises: ConnectionError."""
        if self._client is None:
            raise ConnectionError("there is no line")
        if not messages:
            return
        try:
            async with self._client.pipeline(transaction=False) as pipeline:
                for topic, text in messages:
                    pipeline.publish(self._name(topic), text)
                await pipeline.execute()
        except self._lost as error:
            raise ConnectionError(type(error).__name__) from error

    async def close(self) -> None:
        """Give the lines back."""
        if self._standing is not None:
            self._standing.cancel()
            await asyncio.gather(self._standing, return_exceptions=True)
            self._standing = None
        client, self._client = self._client, None
        if client is not None:
            with suppress(*self._lost):
                await client.aclose()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _nobody() -> None:
    """Tell nobody."""
