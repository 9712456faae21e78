"""The mark of a store of files, and the ids that are taken for ever."""

from __future__ import annotations

import os

import orjson

from kipu.errors import KipuError
from kipu.ports.store import StoreMark, Tombstone
from kipu.stores.jsonl.layout import refuse_when_away
from kipu.stores.jsonl.medium import make_folder, read_whole, remove_file, replace_file, sync_folder
from kipu.stores.jsonl.settings import Settings
from kipu.stores.store_mark import mark_from_text, mark_to_text, refusal

MARK_FILE = "moving.json"
TOMBSTONES = ".tombstones"  # no session id has a dot


class MarkFile:
    """The file that holds the mark. Whoever changes a session looks at it under the session's lock."""

    def __init__(self, settings: Settings) -> None:
        self._path = os.path.join(settings.root, MARK_FILE)
        self._settings = settings
        self.own_move: str | None = None

    def read(self) -> StoreMark | None:
        """Return the mark."""
        if not os.access(self._path, os.F_OK):  # by far the most often
            return None
        said = read_whole(self._path)
        return mark_from_text(said) if said else None

    def write(self, mark: StoreMark | None) -> None:
        """Replace the mark, durably."""
        if mark is not None:
            replace_file(self._path, mark_to_text(mark).encode() + b"\n")
        elif remove_file(self._path):
            sync_folder(self._settings.root)

    def refusal(self, *, claims: bool = False) -> KipuError | None:
        """Return why a change is refused now, or None."""
        return refusal(self.read(), own=self.own_move, store=self._settings.url, claims=claims)

    def check(self, *, claims: bool = False) -> None:
        """Raise where the mark forbids a change. Raises: StoreMovedError, StoreBeingFilledError."""
        refused = self.refusal(claims=claims)
        if refused is not None:
            raise refused


def tombstones_in(root: str, *, after: str, limit: int) -> list[Tombstone]:
    """Return ids that were erased, those behind `after`, sorted."""
    try:
        names = sorted(name for name in os.listdir(os.path.join(root, TOMBSTONES)) if name > after and "." not in name)
    except FileNotFoundError:
        refuse_when_away(root)
        return []
    return [Tombstone(name, _erased_at(os.path.join(root, TOMBSTONES, name))) for name in names[:limit]]


def _erased_at(path: str) -> str:
    try:
        return str(orjson.loads(read_whole(path) or b"")["erased_at"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ""


def leave_tombstone(root: str, tombstone: Tombstone, *, sync: bool) -> None:
    """Make an id taken for ever, durably."""
    folder = os.path.join(root, TOMBSTONES)
    if make_folder(folder) and sync:
        sync_folder(root)
    said = {"session_id": tombstone.session_id, "erased_at": tombstone.erased_at}
    replace_file(os.path.join(folder, tombstone.session_id), orjson.dumps(said) + b"\n", sync=sync)
