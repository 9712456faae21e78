"""Pieces to and from other processes: sent while somebody there wants them, gathered for a moment, sealed where the store is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol

import orjson

from kipu.errors import KipuError
from kipu.ports.live import CONTROL, LiveChannel
from kipu.runtime.live.piece import Piece, cut, decoded, encoded
from kipu.runtime.live.streams import LiveStreams, Stream

logger = logging.getLogger(__name__)
FIRST_S = 0.005  # after a silence
GATHER_S = 0.04
WANTED_S = 10.0  # how long a wish counts that is not said again
SAY_AGAIN_S = 3.0
FLUSH_BYTES = 200_000  # of one sending; what is left waits for the next
SEND_S = 5.0
MOST_WANTED = 10_000
MOST_HEARD = 4_000  # texts that wait to be taken in
_IDS_AT_ONCE = 64


class LiveSeal(Protocol):
    """Seal what leaves the process, and open what comes in."""

    def room(self, most_bytes: int) -> int:
        """Return how many bytes may be sealed for the outcome to fit."""
        ...

    async def seal(self, session_id: str, data: bytes) -> str:
        """Return the data as text that only who has the session's keys opens. Raises: EncryptionError."""
        ...

    async def open(self, session_id: str, text: str) -> bytes:
        """Return what was sealed for this session. Raises: EncryptionError."""
        ...


class NoSeal:
    """Send as it is: the store keeps its events so too."""

    def room(self, most_bytes: int) -> int:
        """Return all of it."""
        return most_bytes

    async def seal(self, session_id: str, data: bytes) -> str:
        """Return the data as text."""
        return data.decode()

    async def open(self, session_id: str, text: str) -> bytes:
        """Return the text as data."""
        return text.encode()


class LiveRelay:
    """Connect the streams of this process with those of others. Whatever fails here costs liveness, and nobody waits for it.

    Who watches a session says so on the control topic, again every 3 s; who runs its turn sends what streams until nobody has said
    it for 10 s, beginning with all there is. Nothing is sent that nobody wants.
    """

    def __init__(
        self,
        streams: LiveStreams,
        channel: LiveChannel,
        *,
        seal: LiveSeal | None = None,
        monotonic_s: Callable[[], float] | None = None,
    ) -> None:
        self._streams = streams
        self._channel = channel
        self._seal = seal or NoSeal()
        self._given_clock = monotonic_s
        self._wants: dict[str, dict[str, float]] = {}  # by session: who wants it, until when
        self._own: dict[str, None] = {}  # what is watched here
        self._fresh: set[str] = set()  # of that, what is to come from its beginning
        self._gone: set[str] = set()
        self._is_new = False  # a line stands that nobody was asked over yet
        self._dirty: dict[int, Stream] = {}
        self._said: list[Piece] = []
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._sending: asyncio.Task[None] | None = None
        self._heard: asyncio.Queue[tuple[str, str]] = asyncio.Queue(MOST_HEARD)
        self.sent_count = 0  # texts with pieces
        self.heard_s: float | None = None  # when the channel was last known to carry what is sent

    def _now_s(self) -> float:
        return self._given_clock() if self._given_clock is not None else asyncio.get_running_loop().time()

    async def open(self) -> None:
        """Begin. Raises: MissingExtraError, ConfigurationError: what the settings name cannot carry anything."""
        await self._channel.open(self._hear, self._connected)
        self._streams.elsewhere = self
        self._streams.is_wanted = self.is_wanted
        self._tasks = [asyncio.ensure_future(self._take_in()), asyncio.ensure_future(self._say_wishes())]

    async def close(self) -> None:
        """Say that nothing is wanted any more, and end."""
        self._streams.elsewhere = None
        self._streams.is_wanted = lambda _session_id: False
        tasks = [*self._tasks, *([self._sending] if self._sending is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        gone = [*self._gone, *self._own]
        if gone:
            with suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(0.5):
                    await self._channel.send(list(self._control("g", gone)))
        await self._channel.close()

    # ---- what streams here -----------------------------------------------------------------------------------------

    def is_wanted(self, session_id: str) -> bool:
        """Return True where somebody elsewhere watches the session."""
        return session_id in self._wants

    def moved(self, stream: Stream) -> None:
        """Send what is new soon, if somebody wants it."""
        if not self._wants or stream.begun.session_id not in self._wants:
            return
        self._dirty[id(stream)] = stream
        self._send_soon()

    def said(self, piece: Piece) -> None:
        """Send a piece of no stream that goes on."""
        if piece.session_id in self._wants:
            self._said.append(piece)
            self._send_soon()

    def _send_soon(self) -> None:
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._send_all())

    async def _send_all(self) -> None:
        try:
            await asyncio.sleep(FIRST_S)
            while self._dirty or self._said:
                self._forget_wishes()
                try:
                    async with asyncio.timeout(SEND_S):
                        await self._channel.send(await self._gathered())
                except (ConnectionError, TimeoutError) as error:  # who misses it asks for it, or reads it in the log
                    logger.debug("live pieces were not sent: %s", error)
                await asyncio.sleep(GATHER_S)
        finally:
            self._sending = None

    async def _gathered(self) -> list[tuple[str, str]]:
        """Return what is to be sent now, in turns where it is too much."""
        texts: list[tuple[str, str]] = []
        said, self._said = self._said, []
        size = 0
        for piece in said:
            texts += await self._texts(piece)
        for key, stream in list(self._dirty.items()):
            if size > FLUSH_BYTES:
                break
            del self._dirty[key]
            if not stream.has_unsent or not self.is_wanted(stream.begun.session_id):
                continue
            found = await self._texts(stream.unsent())
            texts += found
            size += sum(len(text) for _, text in found)
        self.sent_count += len(texts)
        return texts

    async def _texts(self, piece: Piece) -> list[tuple[str, str]]:
        most = self._seal.room(self._channel.most_bytes)
        try:
            return [
                (piece.session_id, await self._seal.seal(piece.session_id, data))
                for data in cut(piece, most_bytes=most, measure=encoded)
            ]
        except KipuError as error:  # without its key nothing leaves
            logger.debug("live pieces of session %s are not sent: %s", piece.session_id, error)
            return []

    # ---- who wants what --------------------------------------------------------------------------------------------

    def wanted(self, session_id: str) -> None:
        """Say that it is watched here, and that all there is shall come."""
        self._own[session_id] = None
        self._fresh.add(session_id)
        self._gone.discard(session_id)
        self._changed.set()

    def unwanted(self, session_id: str) -> None:
        """Say that it is watched here no more."""
        self._own.pop(session_id, None)
        self._fresh.discard(session_id)
        self._gone.add(session_id)
        self._changed.set()

    def _connected(self) -> None:
        """Ask who wants what, and say what is wanted here: either may have gone by."""
        self._fresh.update(self._own)
        self._is_new = True
        self._changed.set()

    async def _say_wishes(self) -> None:
        """Say what is watched here when that changes, and again and again."""
        topics: set[str] = set()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(SAY_AGAIN_S if self._own else None):
                    await self._changed.wait()
            self._changed.clear()
            try:
                async with asyncio.timeout(SEND_S):
                    await self._follow_topics(topics)
                    texts = list(self._wishes())
                    if texts:
                        await self._channel.send(texts)
            except (ConnectionError, TimeoutError) as error:  # said again soon, and when there is a line again
                logger.debug("nobody was told what is watched here: %s", error)

    async def _follow_topics(self, topics: set[str]) -> None:
        for topic in topics.difference(self._own):
            topics.discard(topic)
            await self._channel.unlisten(topic)
        for topic in [one for one in self._own if one not in topics]:
            topics.add(topic)
            await self._channel.listen(topic)

    def _wishes(self) -> Iterator[tuple[str, str]]:
        if self._is_new:
            self._is_new = False
            yield CONTROL, orjson.dumps({"by": self._streams.name, "q": True}).decode()
        gone, self._gone = list(self._gone), set()
        fresh, self._fresh = [one for one in self._own if one in self._fresh], set()
        known = [one for one in self._own if one not in set(fresh)]
        yield from self._control("g", gone)
        yield from self._control("f", fresh)
        yield from self._control("w", known)

    def _control(self, word: str, ids: Sequence[str]) -> Iterator[tuple[str, str]]:
        for start in range(0, len(ids), _IDS_AT_ONCE):
            text = {"by": self._streams.name, word: list(ids[start : start + _IDS_AT_ONCE])}
            yield CONTROL, orjson.dumps(text).decode()

    def _take_wishes(self, wishes: dict[str, Any]) -> None:
        who = str(wishes["by"])
        if who == self._streams.name:
            self.heard_s = self._now_s()
            return
        if wishes.get("q") and self._own:  # whoever asks has heard nothing so far
            self._fresh.update(self._own)
            self._changed.set()
        until = self._now_s() + WANTED_S
        for word in ("w", "f"):
            for session_id in wishes.get(word, ()):
                if session_id in self._wants or len(self._wants) < MOST_WANTED:
                    self._wants.setdefault(str(session_id), {})[who] = until
                    if word == "f":
                        self._begin_again(str(session_id))
        for session_id in wishes.get("g", ()):
            wanting = self._wants.get(session_id, {})
            wanting.pop(who, None)
            if not wanting:
                self._wants.pop(session_id, None)

    def _begin_again(self, session_id: str) -> None:
        for stream in self._streams.running(session_id):
            if stream.end:
                stream.again()
                self.moved(stream)

    def _forget_wishes(self) -> None:
        now_s = self._now_s()
        for session_id in [one for one, wanting in self._wants.items() if max(wanting.values()) < now_s]:
            del self._wants[session_id]

    # ---- what streams elsewhere ------------------------------------------------------------------------------------

    def _hear(self, topic: str, text: str) -> None:
        if topic != CONTROL and topic not in self._own:
            return
        with suppress(asyncio.QueueFull):  # too much at once: what is missing is asked for
            self._heard.put_nowait((topic, text))

    async def _take_in(self) -> None:
        while True:
            topic, text = await self._heard.get()
            try:
                if topic == CONTROL:
                    self._take_wishes(orjson.loads(text))
                    continue
                piece = decoded(await self._seal.open(topic, text))
            except (KipuError, ValueError, KeyError, TypeError, AttributeError) as error:
                logger.debug("a live text could not be taken in: %s", error)
                continue
            if piece is not None and piece.session_id == topic and piece.stream[0] != self._streams.name:
                self._streams.bring(piece)
