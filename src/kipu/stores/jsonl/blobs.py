"""Big values beside the log, each in a file named by what it holds."""

from __future__ import annotations

import hashlib
import os
import re

from kipu.ports.store import Damage
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


def damaged_blobs(folder: str, session_id: str) -> list[Damage]:
    """Return what is wrong with the blobs that are there: one that the medium does not give keeps no other from being looked at."""
    found = []
    for digest in blob_digests(folder):
        where = f"{session_id}/{FOLDER}/{digest}"
        try:
            data = get_blob(folder, digest) or b""
        except OSError as error:
            found.append(Damage(session_id, "unreadable", where, detail=str(error.strerror)))
            continue
        if hashlib.sha256(data).hexdigest() != digest:
            found.append(Damage(session_id, "checksum", where, 0, detail="not what its name says"))
    return found
