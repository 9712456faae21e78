"""The proof of an erasure: bytes of the sessions, remembered in memory only, searched for in every file afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from kipu.manager.erasing.receipt import Proof
from kipu.ports.store import StoredEvent

_MOST_SAMPLES = 24
_SAMPLE_BYTES = 24
_BLOCK_BYTES = 1 << 20
_MOST_PLACES = 20
_SHORTEST = 16  # what is shorter may stand elsewhere by chance


class Samples:
    """Collect what is in no other session: ids of events, and the least compressible words of what they say.

    They are spread over all that is shown, with bounded memory: each is kept with a chance that falls as more come.
    """

    def __init__(self, pick: Callable[[int], int], *, session_ids: Iterable[str]) -> None:
        self._pick = pick
        self._names = " ".join(session_ids).encode()  # they stay, in tombstones and receipts
        self._seen = 0
        self._words: list[bytes] = []
        self._ids: list[bytes] = []

    def take(self, stored: StoredEvent) -> None:
        """Look at one event."""
        self._seen += 1
        self._put(self._ids, stored.record.event_id.encode())
        word = _rarest(stored.record.body)
        if word is not None and word not in self._names:
            self._put(self._words, word)

    def _put(self, kept: list[bytes], sample: bytes) -> None:
        if sample in kept:
            return
        if len(kept) < _MOST_SAMPLES // 2:
            kept.append(sample)
        else:
            place = self._pick(self._seen)
            if place < len(kept):
                kept[place] = sample

    def search(self, roots: Iterable[Path], *, progress: Callable[[int], None] | None = None) -> Proof:
        """Read every file at or below the roots and count what is found. Files that go meanwhile are passed over. Blocking."""
        found = repeated = files = bytes_read = 0
        places: list[str] = []
        for path in files_below(roots):
            size, present = _needles_in(path, [*self._ids, *self._words])
            files, bytes_read = files + 1, bytes_read + size
            ids = sum(needle in self._ids for needle in present)
            found, repeated = found + ids, repeated + len(present) - ids
            if present:
                places.append(path.name)
            if progress is not None:
                progress(bytes_read)
        samples = len(self._ids) + len(self._words)
        return Proof(samples, files, bytes_read, found, repeated, tuple(places[:_MOST_PLACES]))


def _rarest(body: bytes) -> bytes | None:
    """Return a piece of the longest word of random letters in a body: digits and letters mixed, and not from a vocabulary."""
    words: Iterator[bytes] = (
        word for word in body.translate(_SPLIT).split() if len(word) >= _SHORTEST and not _is_digest(word)
    )
    best = max(words, key=_mixture, default=None)
    if best is None or _mixture(best) < _SHORTEST:
        return None
    middle = max(0, (len(best) - _SAMPLE_BYTES) // 2)
    return best[middle : middle + _SAMPLE_BYTES]


def _is_digest(word: bytes) -> bool:
    """Return True for what names a blob: what two sessions keep alike has one name."""
    return len(word) == 64 and not word.strip(b"0123456789abcdef")


_SPLIT = bytes(byte if chr(byte).isalnum() and byte < 128 else 0x20 for byte in range(256))


def _mixture(word: bytes) -> int:
    digits = sum(48 <= byte <= 57 for byte in word)
    return min(len(word), 4 * digits, 4 * (len(word) - digits))


def _needles_in(path: Path, needles: Sequence[bytes]) -> tuple[int, set[bytes]]:
    """Return how many bytes a file has, and which needles are in it."""
    overlap = max(map(len, needles), default=1) - 1
    found: set[bytes] = set()
    size, tail = 0, b""
    try:
        with path.open("rb", buffering=0) as file:
            while block := file.read(_BLOCK_BYTES):
                size += len(block)
                text = tail + block
                found.update(needle for needle in needles if needle in text)
                tail = text[-overlap:] if overlap else b""
    except OSError:
        return size, found
    return size, found


def files_below(roots: Iterable[Path]) -> Iterator[Path]:
    """Yield every regular file at or below the roots once; links are not followed."""
    seen: set[tuple[int, int]] = set()
    for root in roots:
        folders = [root]
        while folders:
            place = folders.pop()
            try:
                status = place.lstat()
                if (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))
                if place.is_symlink():
                    continue
                if place.is_dir():
                    folders += [Path(entry.path) for entry in os.scandir(place)]
                elif place.is_file():
                    yield place
            except OSError:
                continue


def size_of(roots: Iterable[Path]) -> int:
    """Return how many bytes a search will read."""
    total = 0
    for path in files_below(roots):
        try:
            total += path.stat().st_size
        except OSError:
            continue
    return total
