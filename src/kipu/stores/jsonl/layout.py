"""The store's folder: made private, marked with its format, and never written by a version that does not know it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping

import orjson

from kipu.errors import NetworkFileSystemError, StoreCorruptError, StoreUrlError
from kipu.stores.jsonl.medium import make_folders, read_whole, replace_file
from kipu.stores.jsonl.settings import FORMAT

FORMAT_FILE = "kipu.json"


def prepare_root(root: str, *, url: str, sync: bool) -> int:
    """Make the folder where there is none, and return the format it has.

    Raises:
        StoreUrlError: something else is there.
        StoreCorruptError: it does not say which format it has.
    """
    if os.path.exists(root) and not os.path.isdir(root):
        raise StoreUrlError(url=url, reason="it names a file, and a JSONL store is a folder")
    make_folders(root)
    path = os.path.join(root, FORMAT_FILE)
    said = read_whole(path)
    if said is None or not said.strip(b"\0 \n"):
        replace_file(path, orjson.dumps({"kind": "kipu-jsonl", "format": FORMAT}) + b"\n", sync=sync)
        return FORMAT
    try:
        found = orjson.loads(said)["format"]
    except (ValueError, KeyError, TypeError):
        found = None
    if not isinstance(found, int):
        raise StoreCorruptError(store=url, reason=f"{FORMAT_FILE} does not say which format it has")
    return found


def local_index_folder(root: str, *, kind: str, network: str, environment: Mapping[str, str], url: str) -> str:
    """Return, and make, the folder of this machine that keeps the index of a folder on a network file system.

    Raises:
        StoreUrlError: `network` is not a word that is known. NetworkFileSystemError: it says to refuse.
    """
    if network not in {"allow", "refuse"}:
        raise StoreUrlError(url=url, reason=f"network={network} is not one of refuse, allow")
    if not kind:
        return ""
    if network == "refuse":
        raise NetworkFileSystemError(store=url, kind=kind, reason="locks are only as good as the server's")
    home = environment.get("XDG_CACHE_HOME") or os.path.join(environment.get("HOME") or "/tmp", ".cache")  # noqa: S108
    folder = os.path.join(home, "kipu", hashlib.sha256(os.path.realpath(root).encode()).hexdigest()[:32])
    make_folders(folder)
    return folder
