"""`CarriedFiles`: a session's own files as its store keeps them, so that any machine can go on with them (B61)."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kipu.errors import BlobNotFoundError, WorkspaceError, WorkspaceTooLargeError
from kipu.events.boundary import MetadataChangedEvent, NoteEvent
from kipu.events.event import SessionEvent
from kipu.ports.workspace import GetBlob, PutBlob
from kipu.runtime.tools.seen_files import SeenFiles
from kipu.runtime.workspaces.local import LocalWorkspace
from kipu.runtime.workspaces.manifest import StoredManifest, digest_of, load_manifest, put_manifest
from kipu.runtime.workspaces.place import Place
from kipu.runtime.workspaces.record import WorkspaceRecord
from kipu.runtime.workspaces.restore import Restoration
from kipu.runtime.workspaces.snapshot import Look, SnapshotLimits
from kipu.session.patch import WORKSPACE

BOUND_NOTE = "kipu.workspace_bound"
MOVED_NOTE = "kipu.workspace_moved"
CARRIED_LIMITS = SnapshotLimits(max_file_bytes=64_000_000, max_files=50_000, max_total_bytes=1_000_000_000)
_STATE = ".state"
_TOO_MUCH = ("large", "unreadable")
AddEvents = Callable[[Sequence[SessionEvent]], Awaitable[Sequence[SessionEvent]]]
MakeEvents = Callable[[str | None], Sequence[SessionEvent]]


@dataclass(frozen=True, slots=True)
class LocalCopies:
    """Remember, beside the copies on this machine, which kept state each one comes from. Outside of what tools reach.

    `store` names whose sessions they are: a machine's folder may serve several stores, and none knows the others' sessions.
    """

    base: Path
    store: str = ""

    def of(self, session_id: str) -> tuple[str, ...]:
        """Return the manifests that the copy may come from; none where there is no copy that is known. Blocking."""
        return tuple(str(digest) for digest in self._read(session_id).get("from", ()))

    def note(self, session_id: str, *digests: str | None) -> None:
        """Note that the copy comes from one of these. Blocking. Raises: WorkspaceError."""
        path = self._path(session_id)
        temporary = path.with_name(f"{path.name}.tmp")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            known = {"store": self.store, "from": [digest for digest in digests if digest]}
            temporary.write_text(json.dumps(known), encoding="utf-8")
            temporary.replace(path)
        except OSError as error:
            raise WorkspaceError(root=str(path.parent), reason=error.strerror or str(error)) from error

    def unused_s(self, session_id: str) -> float:
        """Return how long ago it was noted the last time, by the clock of the file system's machine. Blocking."""
        try:
            return time.time() - self._path(session_id).stat().st_mtime
        except OSError:
            return 0.0

    def forget(self, session_id: str) -> None:
        """Forget the copy, before it goes. Blocking."""
        self._path(session_id).unlink(missing_ok=True)

    def all(self) -> list[str]:
        """Return the sessions of this store of which there is a copy. Blocking."""
        try:
            names = sorted(path.name for path in (self.base / _STATE).iterdir() if path.suffix != ".tmp")
        except OSError:
            return []
        return [name for name in names if self._read(name).get("store") == self.store]

    def _read(self, session_id: str) -> dict[str, Any]:
        try:
            found = json.loads(self._path(session_id).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _path(self, session_id: str) -> Path:
        return self.base / _STATE / session_id


class CarriedFiles:
    """Keep all files of one session in its blobs, and bring them here from there.

    What is kept is named by the `saved` of the session's record, in the same append as what it belongs to: under a turn's
    fencing token, so that what a worker keeps that lost its lease is never anybody's. Use it as the session's lock is held.
    """

    def __init__(
        self,
        workspace: LocalWorkspace,
        *,
        session_id: str,
        copies: LocalCopies,
        host: Place,
        put_blob: PutBlob,
        is_in_use: Callable[[], bool] = lambda: True,
        limits: SnapshotLimits = CARRIED_LIMITS,
    ) -> None:
        self.workspace = workspace
        self.came_from: str | None = None  # the machine whose files were brought here, until a turn has been told
        self._session_id = session_id
        self._copies = copies
        self._host = host
        self._put_blob = put_blob
        self._is_in_use = is_in_use
        self._taker = workspace.whole(limits)
        self._last: StoredManifest | None = None
        self._seen: SeenFiles | None = None
        self._lock = asyncio.Lock()

    @property
    def saved(self) -> str | None:
        """Return the manifest of what is kept, as far as the log names one."""
        return self.workspace.record.saved

    async def share(self, seen: SeenFiles, get_blob: GetBlob) -> None:
        """Let `seen` know what other processes of the session read, and keep from now on what it knows."""
        self._seen = seen
        known = self.workspace.record.seen
        if known is not None:
            with suppress(BlobNotFoundError):  # then files are to be read again
                seen.recall(json.loads(await get_blob(known)))

    async def know(self, digest: str, get_blob: GetBlob) -> None:
        """Take what is kept for known, so that only what changed is kept again; what cannot be read is kept anew."""
        with suppress(BlobNotFoundError, WorkspaceError):
            self._last = await load_manifest(digest, get_blob)
            self._taker.know(self._last.manifest)

    async def lay_out(self, digest: str, get_blob: GetBlob) -> list[str]:
        """Make the directory hold what is kept, and nothing else that would be kept; return the paths that changed.

        Raises: RestoreError, BlobNotFoundError, WorkspaceError.
        """
        self._last = await load_manifest(digest, get_blob)
        self._taker.know(self._last.manifest)
        return await Restoration(self._taker, manifest=self._last.manifest, get_blob=get_blob).run()

    def forget(self) -> None:
        """Take nothing for kept any more: what was laid out is another session's, and this one keeps its own."""
        self._last = None
        self._taker.kept.stored.clear()
        self._taker.kept.packs.clear()

    def left_behind(self) -> list[str]:
        """Return the folders that were not carried, since programs can fill them again."""
        left_out = {} if self._last is None else self._last.manifest.left_out
        return sorted(path for path, reason in left_out.items() if reason == "heavy")

    async def keep(self, add: AddEvents, make: MakeEvents = lambda _saved: ()) -> Sequence[SessionEvent]:
        """Keep the files as they are now, and append what names them, where they changed.

        What `make` returns, given the manifest that is the newest now, comes before it in the same append.
        Raises: WorkspaceMissingError, StoreError, and what `add` raises; the log then names what it named before.
        """
        async with self._lock:
            if not self._is_in_use():  # somebody chose another directory meanwhile, which stays chosen
                events = make(self.saved)
                return await add(events) if events else []
            record, notes = await self._kept()
            events = make(record.saved)
            if record == self.workspace.record:
                return await add(events) if events else []
            named = MetadataChangedEvent(set={WORKSPACE: record.to_json()})
            before = self.workspace.record.saved
            # Noted before and after: whichever of the two a crash leaves in the log, the copy is known to come from it.
            await asyncio.to_thread(self._copies.note, self._session_id, before, record.saved)
            stored = await add([*events, named, *notes])
            self.workspace.record = record
            await asyncio.to_thread(self._copies.note, self._session_id, record.saved)
            return stored

    async def _kept(self) -> tuple[WorkspaceRecord, list[SessionEvent]]:
        """Return the record that names the files as they are, and what else is to be said."""
        record = replace(self.workspace.record, at=self._host, seen=await self._kept_sights())
        try:
            manifest = await self._taker.take(self._put_blob, judge=self._judge_look)
            self._judge(manifest.left_out, is_cut=manifest.is_cut)
        except WorkspaceTooLargeError as error:
            if record.place is not None:
                return record, []
            reason = str(error.data["reason"])
            data = {"host": self._host.name, "reason": reason, "error": error.code}
            return replace(record, place=self._host, bound=reason), [NoteEvent(kind=BOUND_NOTE, data=data)]
        record = replace(record, place=None, bound=None)
        last = self._last
        if record.saved is None and not (manifest.files or manifest.links or manifest.folders):
            return record, []
        if last is None or last.digest != record.saved or not manifest.holds_same(last.manifest):
            self._last = last = await put_manifest(manifest, self._put_blob, last=last)
        return replace(record, saved=last.digest), []

    async def _kept_sights(self) -> str | None:
        known = self.workspace.record.seen
        data = json.dumps({} if self._seen is None else self._seen.digests()).encode()
        if self._seen is None or data == b"{}" or digest_of(data) == known:
            return known
        return await self._put_blob(data)

    def _judge_look(self, look: Look) -> None:
        self._judge(look.left_out, is_cut=look.is_cut)

    def _judge(self, left_out: Mapping[str, str], *, is_cut: bool) -> None:
        """Refuse what cannot be kept whole: a part of the files would be taken for all of them. Raises: WorkspaceTooLargeError."""
        root, limits = self.workspace.root, self._taker.limits
        there = (path for path, reason in left_out.items() if reason in _TOO_MUCH and os.path.lexists(root / path))
        over = next(there, None)
        if is_cut:
            reason = f"there are more than {limits.max_files} files"
        elif over is not None and left_out[over] == "unreadable":
            reason = f"{over!r} cannot be read"
        elif over is not None:
            reason = (
                f"{over!r} is over the limit: {limits.max_file_bytes // 1_000_000} MB for a file, "
                f"{limits.max_total_bytes // 1_000_000} MB for all"
            )
        else:
            return
        raise WorkspaceTooLargeError(root=str(root), reason=reason)
