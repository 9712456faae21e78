"""What an archive file says of itself: the session, its counts, and where every block is (AR-3 to AR-8)."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import orjson

from kipu.archive.compression import MAX_BLOCK_BYTES, pack, unpack

FORMAT = 1
EVENTS: Final = "events"
BLOB: Final = "blob"
OUTCOMES: Final = "outcomes"
BlockKind = Literal["events", "blob", "outcomes"]
MAX_MANIFEST_BYTES = 64 << 20
# A zstd frame that every reader of zstd skips: it ends the file, and says where the manifest is.
_SKIPPED, _MARK = 0x184D2A5B, b"KIPUARC1"
_TRAILER = struct.Struct("<II8sQQQ32s32s")
TRAILER_BYTES = _TRAILER.size
_NAME = re.compile(r"(?P<id>[a-z0-9_-]{1,64})\.(?P<seq>[0-9]{1,15})\.[0-9a-f]{12}\.kipu\.zst")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Block(NamedTuple):
    """A stretch of the file: `first` and `last` are the seqs of events, or the place of a blob's part and its end."""

    kind: str
    offset: int
    stored: int
    raw: int
    sha256: str  # of the raw bytes
    first: int
    last: int
    digest: str = ""  # of the blob it is a part of


class Trailer(NamedTuple):
    """The last bytes of the file."""

    manifest_offset: int
    manifest_stored: int
    manifest_raw: int
    manifest_sha256: bytes
    whole_sha256: bytes  # of every byte before the trailer

    def to_bytes(self) -> bytes:
        """Return the trailer as it stands in the file."""
        return _TRAILER.pack(_SKIPPED, TRAILER_BYTES - 8, _MARK, *self)

    @classmethod
    def from_bytes(cls, data: bytes) -> Trailer:
        """Return the trailer. Raises: ValueError."""
        if len(data) != TRAILER_BYTES:
            raise ValueError("it is too short")
        magic, size, mark, *fields = _TRAILER.unpack(data)
        if (magic, size, mark) != (_SKIPPED, TRAILER_BYTES - 8, _MARK):
            raise ValueError("it does not end as an archive does: it was cut, or is another kind of file")
        return cls(*fields)


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that is known of an archive without reading its blocks."""

    session_id: str
    archived_at: str
    first_seq: int
    last_seq: int
    events: int
    head: dict[str, Any]
    keys: tuple[str, ...] = ()
    blobs: tuple[tuple[str, int], ...] = ()  # digest and size
    blocks: tuple[Block, ...] = field(default=(), repr=False)

    def to_bytes(self) -> tuple[bytes, int, bytes]:
        """Return the manifest as one frame, its raw size and the checksum of its raw bytes."""
        names = ("session_id", "archived_at", "first_seq", "last_seq", "events", "head", "keys", "blobs")
        said = {"kipu_archive": FORMAT, **{name: getattr(self, name) for name in names}}
        raw = orjson.dumps({**said, "blocks": [list(block) for block in self.blocks]}, option=orjson.OPT_NON_STR_KEYS)
        return pack(raw), len(raw), hashlib.sha256(raw).digest()

    @classmethod
    def from_bytes(cls, stored: bytes, trailer: Trailer) -> Manifest:
        """Return the manifest of a frame, checked against the file it is in. Raises: ValueError."""
        raw = unpack(stored, size=trailer.manifest_raw)
        if hashlib.sha256(raw).digest() != trailer.manifest_sha256:
            raise ValueError("the checksum of its manifest is wrong")
        try:
            said: dict[str, Any] = orjson.loads(raw)
            if said["kipu_archive"] != FORMAT:
                raise ValueError(f"its format is {said['kipu_archive']!r}, and this Kipu knows {FORMAT}: update Kipu")
            manifest = cls(
                session_id=said["session_id"],
                archived_at=said["archived_at"],
                first_seq=said["first_seq"],
                last_seq=said["last_seq"],
                events=said["events"],
                head=said["head"],
                keys=tuple(said["keys"]),
                blobs=tuple((digest, size) for digest, size in said["blobs"]),
                blocks=tuple(Block(*block) for block in said["blocks"]),
            )
            manifest._check(trailer.manifest_offset)
        except (KeyError, TypeError) as error:
            raise ValueError(f"its manifest lacks something ({error})") from error
        return manifest

    def _check(self, end: int) -> None:
        """Refuse blocks that overlap, lie outside, claim too much, or are about something else."""
        at, seq, count = 0, self.first_seq - 1, 0
        for block in self.blocks:
            if block.kind not in {EVENTS, BLOB, OUTCOMES} or block.offset < at or block.stored < 0:
                raise ValueError("its blocks do not lie one behind the other")
            if not 0 <= block.raw <= MAX_BLOCK_BYTES:
                raise ValueError(f"a block claims {block.raw} bytes")
            at = block.offset + block.stored
            if block.kind == EVENTS:
                if not seq < block.first <= block.last:
                    raise ValueError("its events do not stand in order")
                seq, count = block.last, count + block.last - block.first + 1
        if at > end or seq > self.last_seq or count < self.events:
            raise ValueError("its blocks do not fit the file or the counts")
        if not all(_DIGEST.fullmatch(digest) and size >= 0 for digest, size in self.blobs):
            raise ValueError("a blob has no digest")


def archive_name(session_id: str, *, last_seq: int, last_event_id: str) -> str:
    """Return the file's name: the same for the same log, so that an archiving that was killed writes the same file again."""
    tag = hashlib.sha256(f"{session_id}/{last_seq}/{last_event_id}".encode()).hexdigest()[:12]
    return f"{session_id}.{last_seq}.{tag}.kipu.zst"


def newest_name(names: Iterable[str], *, session_id: str) -> str | None:
    """Return the name of the archive that goes furthest of this session's among these."""
    found = [match for name in names if (match := _NAME.fullmatch(name)) and match["id"] == session_id]
    return max(found, key=lambda match: int(match["seq"]))[0] if found else None


def named(name: str) -> tuple[str, int] | None:
    """Return whose archive a file of this name is and up to which event it goes; None for another file."""
    match = _NAME.fullmatch(name)
    return (match["id"], int(match["seq"])) if match else None


def names_of(names: Iterable[str], *, session_id: str) -> list[str]:
    """Return those of these names that are of this session's archives, and of what was being written when a kill came."""
    whole = {name: name.removeprefix(".").removesuffix(".part") if name.endswith(".part") else name for name in names}
    return [
        name for name, part_of in whole.items() if (match := _NAME.fullmatch(part_of)) and match["id"] == session_id
    ]


def check_name(name: Any, *, session_id: str) -> str:
    """Return a name that can only be a file of this session in its place. Raises: ValueError for any other, paths above all."""
    found = _NAME.fullmatch(name) if isinstance(name, str) else None
    if found is None or found["id"] != session_id:
        raise ValueError("its name is not that of an archive of this session")
    return found[0]
