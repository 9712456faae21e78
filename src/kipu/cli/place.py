"""Where a store is, or would be: looked at before it is opened, so that a mistyped URL makes nothing."""

from __future__ import annotations

import os
from pathlib import Path

from kipu.errors import StoreNotFoundError, StoreUrlError
from kipu.store_url import StoreUrl
from kipu.stores.conversion_mark import mark_path

# What tells a JSONL store, also one that lost its marker: then opening it puts the marker back.
_MARKS = ("kipu.json", "bindings.jsonl", "bindings.lock", "index.sqlite", ".tombstones")


def require_place(url: str, *, create: bool) -> None:
    """Return where a store is at `url`, or where one may be made if `create` says so.

    Raises:
        StoreNotFoundError: there is none, and none is to be made.
        StoreUrlError: it is not a URL, or it names a folder of other things.
    """
    parsed = StoreUrl.parse(url)
    if parsed.kind == "jsonl" and _is_other_folder(parsed.path):
        reason = "the folder holds other files and no store (kipu.json). Name a folder that is empty or not there yet"
        raise StoreUrlError(url=url, reason=reason)
    if not create and not is_there(url):
        raise StoreNotFoundError(store=url, path=str(parsed.path.absolute()))


def is_there(url: str) -> bool:
    """Return True when a store, or anything that opening will name as none, is at `url` or at its fallback."""
    parsed = StoreUrl.parse(url)
    if parsed.kind == "memory" or parsed.is_on_server:
        return True  # whether a server has one is told when it is opened
    fallback = parsed.settings.get("fallback")
    if fallback is not None and is_there(fallback):
        return True
    if mark_path(parsed.path).exists():
        return True  # its files are being exchanged; opening it says so
    if parsed.kind == "jsonl" and parsed.path.is_dir():
        return any(_entries(parsed.path))
    try:
        parsed.path.stat()
    except FileNotFoundError:
        return False
    except OSError:
        return True  # what is wrong with it is told when it is opened
    return True


def is_same_place(url: str, other: str) -> bool:
    """Return True where both URLs lead to one store, also by a link or by `..`: moved to itself, it would wait for itself."""
    one, two = StoreUrl.parse(url), StoreUrl.parse(other)
    if one.kind != two.kind or one.kind == "memory":
        return False
    if os.path.realpath(one.path) == os.path.realpath(two.path):
        return True
    try:
        return one.path.samefile(two.path)  # one file under two names
    except OSError:
        return False


def _is_other_folder(path: Path) -> bool:
    if not path.is_dir() or any((path / mark).exists() for mark in _MARKS):
        return False
    return any(_entries(path)) and not any(path.glob("*/000001.jsonl"))


def _entries(path: Path) -> list[str]:
    """Return what is in the folder, but for what a killed process leaves of a marker half written."""
    try:
        return [name for name in (each.name for each in path.iterdir()) if not name.startswith("kipu.json.")]
    except OSError:
        return []  # opening it says why it cannot be listed
