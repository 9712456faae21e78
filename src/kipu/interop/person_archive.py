"""The archive of all that is a person's: one ZIP file, what may be in it, and what is refused (docs/formats/person-archive.md)."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

import orjson

from kipu.errors import PersonArchiveError

FORMAT = "kipu person archive"
VERSION = 1
MANIFEST, README, MEMORY, ELSEWHERE = "manifest.json", "README.txt", "memory.jsonl", "said-elsewhere.jsonl"
EVENTS, MARKDOWN, HTML = "events.jsonl", "transcript.md", "transcript.html"
MAGIC = b"PK\x03\x04"

# Nothing else is in such an archive: no folder above, no absolute or device name, no twin in another case can be written so.
_NAMES = re.compile(
    r"manifest\.json|README\.txt|memory\.jsonl|said-elsewhere\.jsonl"
    r"|sessions/[a-z0-9_-]{1,64}/(events\.jsonl|transcript\.md|transcript\.html|blobs/[0-9a-f]{64})"
)
_DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])", re.IGNORECASE)
_KINDS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, struct.error)
_MOST_ENTRIES = 1_000_000
_MOST_MANIFEST_BYTES = 256 << 20
_DIRECTORY_BYTES = 256 << 20
_FREE_BYTES = 1 << 30  # so much may be packed however small
_RATIO = 100
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Listed:
    """What the manifest says of one file of the archive."""

    size: int
    sha256: str


def session_path(session_id: str, name: str) -> str:
    """Return where a file of a session stands in the archive."""
    return f"sessions/{session_id}/{name}"


class PersonArchive:
    """Read an archive that anybody may have made: everything is checked before the first byte of it is used.

    Raises: PersonArchiveError, naming the entry. What it says of sizes is believed only where it is small enough, and no
    more is ever read of an entry than it says.
    """

    def __init__(self, path: Path, *, max_bytes: int | None = None) -> None:
        self.path = path
        self._check_directory_size()
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
            raise self._refusal(f"it is not a whole ZIP file ({error})") from error
        try:
            self._entries = self._checked(max_bytes)
            self.manifest = self._read_manifest()
            self.files = self._listed()
        except BaseException:
            self._zip.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._zip.close()

    def _refusal(self, reason: str, entry: str = "") -> PersonArchiveError:
        return PersonArchiveError(source=str(self.path), entry=entry, reason=reason)

    # ---- what may be in it -----------------------------------------------------------------------------------------

    def _check_directory_size(self) -> None:
        """Refuse a directory of entries that would not fit into memory, before it is read."""
        with self.path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - (1 << 16) - 22))
            tail = file.read()
        at = tail.rfind(b"PK\x05\x06")
        if at < 0 or len(tail) - at < 22:
            raise self._refusal("it is not a ZIP file, or it is cut")
        entries, directory = struct.unpack("<HI", tail[at + 10 : at + 16])
        wide = tail.rfind(b"PK\x06\x06", 0, at)
        if wide >= 0 and len(tail) - wide >= 56:
            entries, directory = struct.unpack("<QQ", tail[wide + 32 : wide + 48])
        if entries > _MOST_ENTRIES or directory > min(_DIRECTORY_BYTES, size):
            raise self._refusal(f"it says that it has {entries} entries in a directory of {directory} bytes")

    def _checked(self, max_bytes: int | None) -> dict[str, zipfile.ZipInfo]:
        limit = max_bytes or max(_FREE_BYTES, _RATIO * self.path.stat().st_size)
        found: dict[str, zipfile.ZipInfo] = {}
        total = end = 0
        for info in sorted(self._zip.infolist(), key=lambda each: each.header_offset):
            self._check_entry(info)
            if info.filename in found:
                raise self._refusal("it is there twice", info.filename)
            if info.header_offset < end:
                raise self._refusal("it lies in another entry", info.filename)
            end = info.header_offset + 30 + len(info.filename) + info.compress_size
            total += info.file_size
            if total > limit:
                reason = f"unpacked it has more than {limit} bytes; give --max-bytes where that is right"
                raise self._refusal(reason, info.filename)
            found[info.filename] = info
        return found

    def _check_entry(self, info: zipfile.ZipInfo) -> None:
        # As it stands in the file: what zipfile cuts at a NUL, or turns round, is no name of ours either.
        name = info.orig_filename
        if not _NAMES.fullmatch(name) or name != info.filename:
            raise self._refusal("no file of such an archive has this name", name)
        if any(_DEVICES.fullmatch(part.partition(".")[0]) for part in name.split("/")):
            raise self._refusal("it is the name of a device", name)
        mode = info.external_attr >> 16
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            raise self._refusal("it is a link or something else that is no file", name)
        if info.flag_bits & 0x1:
            raise self._refusal("it is encrypted", name)
        if info.compress_type not in _KINDS:
            raise self._refusal("it is packed in a way that is not read", name)

    def _read_manifest(self) -> dict[str, Any]:
        info = self._entries.get(MANIFEST)
        if info is None or info.file_size > _MOST_MANIFEST_BYTES:
            raise self._refusal("it has no manifest that can be read", MANIFEST)
        try:
            manifest = orjson.loads(b"".join(self._blocks(info)))
        except orjson.JSONDecodeError as error:
            raise self._refusal("its manifest is not JSON", MANIFEST) from error
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise self._refusal("its manifest is of something else", MANIFEST)
        if manifest.get("version") != VERSION:
            raise self._refusal(f"it has version {manifest.get('version')!r}, and {VERSION} is read here", MANIFEST)
        return manifest

    def _listed(self) -> dict[str, Listed]:
        files: dict[str, Listed] = {}
        told = self.manifest.get("files")
        for name, values in (told if isinstance(told, dict) else {}).items():
            match values:
                case {"bytes": int(size), "sha256": str(digest)}:
                    files[name] = Listed(size, digest)
                case _:
                    raise self._refusal("its manifest does not say what it has to", str(name))
        for name in sorted(files.keys() ^ (self._entries.keys() - {MANIFEST})):
            raise self._refusal("the manifest and the archive differ about it", name)
        for name, listed in files.items():
            if self._entries[name].file_size != listed.size:
                raise self._refusal("the manifest and the archive differ about its size", name)
        return files

    # ---- reading ---------------------------------------------------------------------------------------------------

    def _blocks(self, info: zipfile.ZipInfo) -> Iterator[bytes]:
        read = 0
        try:
            with self._zip.open(info) as file:
                while block := file.read(min(_BLOCK, info.file_size - read + 1)):
                    read += len(block)
                    if read > info.file_size:
                        raise self._refusal("it is longer than it says", info.filename)
                    yield block
        except _BROKEN as error:
            raise self._refusal(f"it cannot be unpacked ({error})", info.filename) from error

    def blocks(self, name: str) -> Iterator[bytes]:
        """Yield a file's bytes; at their end they were what the manifest says, or PersonArchiveError is raised."""
        listed, digest, size = self.files[name], hashlib.sha256(), 0
        for block in self._blocks(self._entries[name]):
            digest.update(block)
            size += len(block)
            yield block
        if (size, digest.hexdigest()) != (listed.size, listed.sha256):
            raise self._refusal("its checksum is not that of the manifest", name)

    def verify(self) -> None:
        """Read every file once."""
        for name in self.files:
            for _ in self.blocks(name):
                pass

    def extract(self, name: str, to: Path) -> None:
        """Write a file's bytes to a new file, for its owner only."""
        with os.fdopen(os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            for block in self.blocks(name):
                file.write(block)

    def blobs_of(self, session_id: str) -> list[str]:
        """Return the digests of a session's blobs."""
        prefix = session_path(session_id, "blobs/")
        return [name.removeprefix(prefix) for name in self.files if name.startswith(prefix)]

    def sessions(self) -> list[Mapping[str, Any]]:
        """Return what the manifest says of each session, parents before their forks as they were written."""
        found = self.manifest.get("sessions")
        sessions = [each for each in (found if isinstance(found, list) else []) if isinstance(each, dict)]
        return [each for each in sessions if session_path(str(each.get("session_id")), EVENTS) in self.files]


class ArchiveWriter:
    """Write an archive entry by entry, keeping size and checksum of each for the manifest."""

    def __init__(self, file: IO[bytes], *, date_time: tuple[int, int, int, int, int, int]) -> None:
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, allowZip64=True)
        self._date_time = date_time
        self.files: dict[str, dict[str, Any]] = {}

    def entry(self, name: str) -> _Entry:
        """Return an entry to be written with `with`."""
        info = zipfile.ZipInfo(name, self._date_time)
        info.compress_type = zipfile.ZIP_DEFLATED
        info.external_attr = (stat.S_IFREG | 0o600) << 16
        return _Entry(self._zip.open(info, "w", force_zip64=True), name, files=self.files)

    def put(self, name: str, data: bytes) -> None:
        """Write an entry at once."""
        with self.entry(name) as entry:
            entry.write(data)

    def finish(self, manifest: Mapping[str, Any]) -> None:
        """Write the manifest, which names everything else, and the directory."""
        listed = {"format": FORMAT, "version": VERSION, **manifest, "files": dict(self.files)}
        self.put(MANIFEST, orjson.dumps(listed, option=orjson.OPT_INDENT_2) + b"\n")
        self._zip.close()


class _Entry:
    def __init__(self, file: IO[bytes], name: str, *, files: dict[str, dict[str, Any]]) -> None:
        self._file = file
        self._name = name
        self._files = files
        self._digest = hashlib.sha256()
        self._size = 0

    def write(self, data: bytes) -> None:
        """Add bytes."""
        self._file.write(data)
        self._digest.update(data)
        self._size += len(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        if self._name != MANIFEST:  # also one that a failure cut off: it is in the archive, and its session is not
            self._files[self._name] = {"bytes": self._size, "sha256": self._digest.hexdigest()}
