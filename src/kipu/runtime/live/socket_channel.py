"""Live pieces between the processes of one user on one machine: a socket each, in a folder that is theirs alone."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from kipu.ports.live import CONTROL, Hear

logger = logging.getLogger(__name__)
MOST_BYTES = 30_000
_ROOM_BYTES = 1_000_000
_TRIES, _PAUSE_S = 4, 0.005  # for one that has not read what it has


class SocketChannel:
    """Carry texts as datagrams (contract: `LiveChannel`). Who does not keep up loses some; nobody waits for them."""

    most_bytes = MOST_BYTES

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._path = folder / name
        self._topics = {CONTROL}
        self._socket: socket.socket | None = None
        self._hear: Hear | None = None

    async def open(self, hear: Hear, connected: Callable[[], None]) -> None:
        """Make the socket; where that is not possible, there are no live pieces."""
        self._hear = hear
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            made.setblocking(False)
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                made.setsockopt(socket.SOL_SOCKET, option, _ROOM_BYTES)
            try:
                own_folder(self._folder)
                made.bind(str(self._path))
            except FileNotFoundError:  # somebody else was the last one, and has just taken the folder away
                own_folder(self._folder)
                made.bind(str(self._path))
        except OSError as error:
            made.close()
            logger.debug("no live pieces between processes: %s", error)
            return
        self._socket = made
        asyncio.get_running_loop().add_reader(made, self._read)
        connected()

    def _read(self) -> None:
        while self._socket is not None:
            try:
                data = self._socket.recv(self.most_bytes + 1_000)
            except OSError:
                return
            topic, _, text = data.decode(errors="replace").partition("\n")
            if topic in self._topics and self._hear is not None:
                self._hear(topic, text)

    async def listen(self, topic: str) -> None:
        """Hear a topic from now on."""
        self._topics.add(topic)

    async def unlisten(self, topic: str) -> None:
        """Hear it no more."""
        self._topics.discard(topic)

    async def send(self, messages: Sequence[tuple[str, str]]) -> None:
        """Send texts to every other process there is. Raises: ConnectionError."""
        if self._socket is None:
            raise ConnectionError("there is no socket")
        if not messages:
            return
        try:
            others = [path for path in self._folder.iterdir() if path != self._path]
        except OSError as error:
            raise ConnectionError(str(error)) from error
        data = [f"{topic}\n{text}".encode() for topic, text in messages]
        await asyncio.gather(*(self._send_to(path, data) for path in others))

    async def _send_to(self, path: Path, data: Sequence[bytes]) -> None:
        for one in data:
            for number in range(_TRIES):
                if self._socket is None:
                    return
                try:
                    self._socket.sendto(one, str(path))
                    break
                except BlockingIOError:
                    if number == _TRIES - 1:  # it does not keep up: the rest would be late too
                        return
                    await asyncio.sleep(_PAUSE_S)
                except ConnectionRefusedError:  # its process is gone
                    _forget(path)
                    return
                except OSError as error:
                    logger.debug("a live piece did not go out: %s", error)
                    return

    async def close(self) -> None:
        """Take the socket away."""
        made, self._socket = self._socket, None
        if made is not None:
            asyncio.get_running_loop().remove_reader(made)
            made.close()
            with suppress(OSError):
                self._path.unlink()
            with suppress(OSError):  # the last one
                self._folder.rmdir()


def _forget(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def own_folder(folder: Path) -> None:
    """Make the folder where it is not there. Raises: OSError, also where somebody else could put something into it."""
    for place in (folder.parent, folder):
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()
        if found.st_uid != os.getuid() or found.st_mode & 0o077 or not place.is_dir() or place.is_symlink():
            raise PermissionError(f"{place} is not this user's alone")


def socket_folder(place: str) -> Path:
    """Return the folder of a store at `place`: short, since the name of a socket may have 107 bytes.

    No variable says where: a service and a terminal of one user have different ones, and are to meet.
    """
    user = os.getuid()
    run = Path(f"/run/user/{user}")
    is_there = os.access(run, os.W_OK | os.X_OK)
    base = run if is_there else Path("/tmp")  # noqa: S108 - what is made there is checked to be this user's alone
    mark = hashlib.blake2b(place.encode(), digest_size=8).hexdigest()
    return base / f"kipu-live-{user}" / mark
