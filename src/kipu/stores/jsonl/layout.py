"""The store's folder: made private, marked with its format, and never written by a version that does not know it."""

from __future__ import annotations

import os

import orjson

from kipu.errors import StoreCorruptError, StoreUrlError
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
