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


class FileState(NamedTuple):
    """A file's content by hash (SHA-256), its permissions, and its size."""

    digest: str
    mode: int
    size: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files and links of a workspace, the paths left out with the reason, and how many of what else was left out."""

    files: Mapping[str, FileState] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)  # path -> large, special, unreadable, closed
    counts: Mapping[str, int] = field(default_factory=dict)
    is_cut: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the manifest as JSON, the same for the same files."""
        return {
            "format": FORMAT,
            "files": {path: list(state) for path, state in sorted(self.files.items())},
            "links": dict(sorted(self.links.items())),
            "left_out": dict(sorted(self.left_out.items())),
            "counts": dict(sorted(self.counts.items())),
            "is_cut": self.is_cut,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Manifest:
        """Return the manifest of its JSON. Raises: WorkspaceError (a format of a newer version, or none at all)."""
        if data.get("format") != FORMAT:
            found = data.get("format")
            raise WorkspaceError(root="of the checkpoint", reason=f"its manifest has format {found}, not {FORMAT}")
        try:
            return cls(
                files={path: FileState(str(d), int(m), int(s)) for path, (d, m, s) in data["files"].items()},
                links=dict(data["links"]),
                left_out=dict(data["left_out"]),
                counts=dict(data["counts"]),
                is_cut=bool(data["is_cut"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise WorkspaceError(root="of the checkpoint", reason=f"its manifest is damaged ({error})") from error

    def holds_same(self, other: Manifest) -> bool:
        """Return True when both stand for the same files; how much was ignored does not count."""
        return (self.files, self.links, self.left_out) == (other.files, other.links, other.left_out)


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
    whole = _decoded(await get_blob(str(data["base"])))
    for name in ("files", "links", "left_out"):
        merged = {**whole.get(name, {}), **data["set"].get(name, {})}
        gone = set(data["unset"].get(name, ()))
        whole[name] = {path: value for path, value in merged.items() if path not in gone}
    return {**whole, "counts": data["counts"], "is_cut": data["is_cut"]}


def digest_of(data: bytes) -> str:
    """Return the digest under which a store keeps `data`."""
    return hashlib.sha256(data).hexdigest()


def _delta(manifest: Manifest, last: StoredManifest) -> dict[str, Any] | None:
    now, whole = manifest.to_json(), last.whole.to_json()
    changed: dict[str, dict[str, Any]] = {}
    removed: dict[str, list[str]] = {}
    for name in ("files", "links", "left_out"):
        before, after = whole[name], now[name]
        changed[name] = {path: value for path, value in after.items() if before.get(path) != value}
        removed[name] = [path for path in before if path not in after]
    size = sum(map(len, changed.values())) + sum(map(len, removed.values()))
    if size > _DELTA_SHARE * (len(whole["files"]) + len(whole["links"])):
        return None
    told = {"set": changed, "unset": removed, "counts": now["counts"], "is_cut": now["is_cut"]}
    return {"format": FORMAT, "base": last.whole_digest, **told}


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
