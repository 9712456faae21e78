"""`Manifest`: the files of a workspace at one moment, by path, with their contents by hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kipu.errors import WorkspaceError
from kipu.ports.workspace import GetBlob, PutBlob

FORMAT = 1
# A manifest is stored whole, or as what differs from a whole one while that is less than this share of it.
_DELTA_SHARE = 0.25
_BY_PATH = ("files", "links", "left_out")
_NOT_BY_PATH = ("counts", "is_cut", "packs")


class FileState(NamedTuple):
    """A file's content by hash (SHA-256), its permissions, and its size."""

    digest: str
    mode: int
    size: int


class Place(NamedTuple):
    """Where a content lies that shares a blob with others: the number of the pack, and the offset in it."""

    pack: int
    offset: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files and links of a workspace, the paths left out with the reason, and how many of what else was left out.

    A content is a blob of its own under its digest, or a part of a pack: one blob for many small files, since a store takes
    one large value much faster than a thousand small ones.
    """

    files: Mapping[str, FileState] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)  # path -> large, special, unreadable, closed
    counts: Mapping[str, int] = field(default_factory=dict)
    is_cut: bool = False
    packs: tuple[str, ...] = ()
    places: Mapping[str, Place] = field(default_factory=dict)
    folders: tuple[str, ...] = ()  # those without anything in them, where they count

    def to_json(self) -> dict[str, Any]:
        """Return the manifest as JSON, the same for the same files."""
        empty = {"folders": list(self.folders)} if self.folders else {}
        return {
            "format": FORMAT,
            "files": {path: [*state, *self.places.get(state.digest, ())] for path, state in sorted(self.files.items())},
            "links": dict(sorted(self.links.items())),
            "left_out": dict(sorted(self.left_out.items())),
            "counts": dict(sorted(self.counts.items())),
            "is_cut": self.is_cut,
            "packs": list(self.packs),
            **empty,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Manifest:
        """Return the manifest of its JSON. Raises: WorkspaceError (a format of a newer version, or none at all)."""
        if data.get("format") != FORMAT:
            found = data.get("format")
            raise WorkspaceError(root="of the checkpoint", reason=f"its manifest has format {found}, not {FORMAT}")
        try:
            return cls(
                files={path: FileState(str(d), int(m), int(s)) for path, (d, m, s, *_) in data["files"].items()},
                links=dict(data["links"]),
                left_out=dict(data["left_out"]),
                counts=dict(data["counts"]),
                is_cut=bool(data["is_cut"]),
                packs=tuple(data["packs"]),
                places={entry[0]: Place(int(entry[3]), int(entry[4])) for entry in data["files"].values() if entry[3:]},
                folders=tuple(data.get("folders", ())),
            )
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise WorkspaceError(root="of the checkpoint", reason=f"its manifest is damaged ({error})") from error

    def holds_same(self, other: Manifest) -> bool:
        """Return True when both stand for the same files; how much was ignored does not count."""
        mine = (self.files, self.links, self.left_out, self.folders)
        return mine == (other.files, other.links, other.left_out, other.folders)


class Contents:
    """Read the contents of a manifest; the last pack is held, since neighbours lie in one."""

    def __init__(self, manifest: Manifest, get_blob: GetBlob) -> None:
        self._manifest = manifest
        self._get_blob = get_blob
        self._pack: tuple[int, bytes] = (-1, b"")

    async def of(self, state: FileState) -> bytes:
        """Return the bytes of a file as it was. Raises: BlobNotFoundError, WorkspaceError (the pack is not what it was)."""
        place = self._manifest.places.get(state.digest)
        if place is None:
            return await self._get_blob(state.digest)
        if self._pack[0] != place.pack:
            self._pack = (place.pack, await self._get_blob(self._manifest.packs[place.pack]))
        data = self._pack[1][place.offset : place.offset + state.size]
        if digest_of(data) != state.digest:
            raise WorkspaceError(root="of the checkpoint", reason=f"content {state.digest} is damaged")
        return data


class StoredManifest(NamedTuple):
    """A manifest that is kept, and the whole one that those after it may be told by."""

    digest: str
    manifest: Manifest
    whole_digest: str
    whole: Manifest


async def put_manifest(manifest: Manifest, put_blob: PutBlob, *, last: StoredManifest | None = None) -> StoredManifest:
    """Keep a manifest, as what differs from the last whole one while that is little, and return where it is."""
    if last is not None:
        delta = _delta(manifest, last)
        if delta is not None:
            digest = await put_blob(_encoded(delta))
            return StoredManifest(digest, manifest, last.whole_digest, last.whole)
    digest = await put_blob(_encoded(manifest.to_json()))
    return StoredManifest(digest, manifest, digest, manifest)


async def get_manifest(digest: str, get_blob: GetBlob) -> dict[str, Any]:
    """Return a kept manifest as its JSON. Raises: BlobNotFoundError, WorkspaceError (it is damaged)."""
    data = _decoded(await get_blob(digest))
    if "base" not in data:
        return data
    return _merged(data, _decoded(await get_blob(str(data["base"]))))


async def load_manifest(digest: str, get_blob: GetBlob) -> StoredManifest:
    """Return a kept manifest as `put_manifest` returned it, so that the next one can be told by it.

    Raises: BlobNotFoundError, WorkspaceError (it is damaged).
    """
    data = _decoded(await get_blob(digest))
    whole_digest = str(data.get("base", digest))
    whole = data if whole_digest == digest else _decoded(await get_blob(whole_digest))
    manifest = Manifest.from_json(_merged(data, whole) if "base" in data else data)
    return StoredManifest(digest, manifest, whole_digest, Manifest.from_json(whole))


def _merged(delta: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest that a whole one becomes by what differs."""
    found: dict[str, Any] = {}
    for name in _BY_PATH:
        merged = {**whole.get(name, {}), **delta["set"].get(name, {})}
        gone = set(delta["unset"].get(name, ()))
        found[name] = {path: value for path, value in merged.items() if path not in gone}
    told = {name: delta[name] for name in (*_NOT_BY_PATH, "folders") if name in delta}
    return {"format": whole.get("format"), **found, **told}


def digest_of(data: bytes) -> str:
    """Return the digest under which a store keeps `data`."""
    return hashlib.sha256(data).hexdigest()


def _delta(manifest: Manifest, last: StoredManifest) -> dict[str, Any] | None:
    now, whole = manifest.to_json(), last.whole.to_json()
    changed: dict[str, dict[str, Any]] = {}
    removed: dict[str, list[str]] = {}
    for name in _BY_PATH:
        before, after = whole[name], now[name]
        changed[name] = {path: value for path, value in after.items() if before.get(path) != value}
        removed[name] = [path for path in before if path not in after]
    size = sum(map(len, changed.values())) + sum(map(len, removed.values()))
    if size > _DELTA_SHARE * (len(whole["files"]) + len(whole["links"])):
        return None
    told = {name: now[name] for name in (*_NOT_BY_PATH, "folders") if name in now}
    return {"format": FORMAT, "base": last.whole_digest, "set": changed, "unset": removed, **told}


def _encoded(data: Mapping[str, Any]) -> bytes:
    # ASCII only: a name that is not UTF-8 is half a character here, and comes back as the bytes it was.
    return json.dumps(data, ensure_ascii=True, separators=(",", ":")).encode()


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        decoded = json.loads(data)
    except ValueError as error:
        raise WorkspaceError(root="of the checkpoint", reason="its manifest is not JSON") from error
    if not isinstance(decoded, dict):
        raise WorkspaceError(root="of the checkpoint", reason="its manifest is not an object")
    return decoded
