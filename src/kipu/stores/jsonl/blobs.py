"""Big values beside the log, each in a file named by what it holds."""

from __future__ import annotations

import hashlib
import os
import re

from kipu.stores.jsonl.medium import make_folder, read_whole, replace_file, sync_folder

FOLDER = "blobs"
_DIGEST = re.compile(r"[0-9a-f]{64}")


def put_blob(folder: str, data: bytes, *, sync: bool) -> str:
    """Keep `data` durably in a session's folder and return its digest. The caller holds the session's lock."""
    digest = hashlib.sha256(data).hexdigest()
    place = os.path.join(folder, FOLDER)
    if make_folder(place) and sync:
        sync_folder(folder)
    path = os.path.join(place, digest)
    if read_whole(path) != data:
        replace_file(path, data, sync=sync)
    return digest


def get_blob(folder: str, digest: str) -> bytes | None:
    """Return the bytes, or None when they are not there."""
    return read_whole(os.path.join(folder, FOLDER, digest)) if _DIGEST.fullmatch(digest) else None


def blob_digests(folder: str) -> list[str]:
    """Return the digests of the blobs that are there."""
    try:
        return sorted(name for name in os.listdir(os.path.join(folder, FOLDER)) if _DIGEST.fullmatch(name))
    except FileNotFoundError:
        return []


def damaged_blobs(folder: str) -> list[str]:
    """Return the digests whose bytes are others than they say."""
    return [
        digest
        for digest in blob_digests(folder)
        if hashlib.sha256(get_blob(folder, digest) or b"").hexdigest() != digest
    ]
