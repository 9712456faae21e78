"""The store's folder: made private, marked with its format, and never written by a version that does not know it."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import replace

import orjson

from kipu.errors import NetworkFileSystemError, StoreCorruptError, StoreUrlError
from kipu.stores.file_system import OBJECT_KINDS, Mount, file_system_kind, is_network, is_untold, mount_of
from kipu.stores.jsonl.failure import translating
from kipu.stores.jsonl.line import BOM
from kipu.stores.jsonl.medium import make_folders, read_whole, replace_file
from kipu.stores.jsonl.settings import FORMAT, Settings

FORMAT_FILE = "kipu.json"
_AWAY = "its folder was moved or removed while it was open, or what it stands on was unmounted"


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
        found = orjson.loads(said.removeprefix(BOM))["format"]
    except (ValueError, KeyError, TypeError):
        found = None
    if not isinstance(found, int):
        raise StoreCorruptError(store=url, reason=f"{FORMAT_FILE} does not say which format it has")
    return found


def refuse_when_away(root: str) -> None:
    """Raise where an open store's folder does not hold it any more: what is missing then says nothing of its sessions (A50).

    Raises: FileNotFoundError. An empty folder may be there, where its file system was mounted.
    """
    if not os.path.exists(os.path.join(root, FORMAT_FILE)):
        raise FileNotFoundError(errno.ENOENT, _AWAY, root)


def settled(settings: Settings, *, network: str, index: str, kind: str, try_locks: Callable[[str], str]) -> Settings:
    """Return the settings with what their folder's place makes of them; the folder and its index's are made.

    Raises: StoreUrlError, NetworkFileSystemError, StoreCorruptError.
    """
    root, url = settings.root, settings.url
    with translating(url):
        check_place(root, kind=kind, network=network, url=url)
        elsewhere = index_folder(root, kind=kind, index=index, environment=os.environ, url=url)
        found = prepare_root(root, url=url, sync=settings.durability != "os")
        writable = os.access(root, os.W_OK)
        if writable and is_untold(kind) and (reason := try_locks(root)):
            raise NetworkFileSystemError(store=url, kind=kind, reason=reason)
    is_remote = is_network(kind)
    return replace(
        settings,
        format=found,
        index_root=elsewhere,
        writable=writable,
        remote=kind if is_remote else "",
        lock_reach=lock_words(root, kind=kind) if is_remote else "",
    )


def check_place(root: str, *, kind: str, network: str, url: str) -> None:
    """Refuse a folder where a log cannot be kept, before anything is made there.

    Raises:
        StoreUrlError: `network` is not a word that is known. NetworkFileSystemError: it, or the kind of file system, says to refuse.
    """
    if network not in {"auto", "allow", "refuse"}:
        raise StoreUrlError(url=url, reason=f"network={network} is not one of auto, refuse, allow")
    if network == "refuse" and is_network(kind):
        raise NetworkFileSystemError(store=url, kind=kind, reason="locks are only as good as the server's")
    if network == "auto" and kind in OBJECT_KINDS:
        reason = (
            "files are whole objects, so that a log cannot grow line by line; archives may be kept in an object store"
        )
        raise NetworkFileSystemError(store=url, kind=kind, reason=reason)


def lock_words(root: str, *, kind: str) -> str:
    """Return how far the locks of a network file system reach, in words, by its kind and the options it is mounted with."""
    mount = mount_of(root)
    if mount is None or mount.kind != kind:
        mount = Mount("", "", kind)
    if mount.lock_reach == "machines":
        return (
            "locks hold between machines as far as its server keeps them, and every append takes its way there and back"
        )
    return "locks hold on this machine alone: no second machine may write to this store, and every append takes its way there and back"


def index_folder(root: str, *, kind: str, index: str, environment: Mapping[str, str], url: str) -> str:
    """Return, and make, the folder that keeps the index where it is not in the store's own; "" where it is.

    `index` names a folder for the indexes of many stores; of one on a network file system it is otherwise the user's cache folder.

    Raises: StoreUrlError where that is on a network file system too, whose locks and shared memory no index can rely on.
    """
    folder = local_index_folder(root, kind=kind, index=index, environment=environment)
    if not folder:
        return ""
    there = file_system_kind(folder)
    if is_network(there):
        reason = (
            f"the index would be in {folder}, on a network file system too ({there}); name a local folder with ?index="
        )
        raise StoreUrlError(url=url, reason=reason)
    make_folders(folder)
    return folder


def local_index_folder(root: str, *, kind: str, index: str, environment: Mapping[str, str]) -> str:
    """Return where the index is that is not in the store's own folder, or ""."""
    if not index and not is_network(kind):
        return ""
    home = environment.get("XDG_CACHE_HOME") or os.path.join(environment.get("HOME") or "/tmp", ".cache")  # noqa: S108
    place = os.path.realpath(root)
    mount = mount_of(place) if is_network(kind) else None
    if mount is not None:  # another server's folder at the same place is another store
        place = f"{place}\0{mount.source}"
    name = hashlib.sha256(place.encode(errors="surrogateescape")).hexdigest()[:32]
    return os.path.join(os.path.abspath(index) if index else os.path.join(home, "kipu"), name)
