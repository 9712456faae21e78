"""Checkpoints: what the files were before each change, as notes in the session's log, and the way back to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeGuard

from kipu.errors import InputError, KipuError
from kipu.events.boundary import NoteEvent, RewindEvent
from kipu.events.event import SessionEvent
from kipu.ports.workspace import PutBlob, Workspace
from kipu.runtime.workspaces.carried import CarriedFiles
from kipu.runtime.workspaces.local import LocalWorkspace
from kipu.runtime.workspaces.manifest import Manifest, StoredManifest, get_manifest, put_manifest

if TYPE_CHECKING:
    from kipu.manager.session import Session
    from kipu.ports.principal import Principal
    from kipu.ports.store import EventStore

CHECKPOINT = "kipu.checkpoint"
RESTORED = "kipu.restored"
SAVED = "saved"  # of a checkpoint's data: the manifest of all files then, where they are kept for other machines
_RECENT_EVENTS = 500


class AppendEvents(Protocol):
    """Append a batch to the session; `Session.add_events` is one."""

    def __call__(self, events: Sequence[SessionEvent], /) -> Awaitable[Sequence[SessionEvent]]:
        """Return the events as stored."""
        ...


@dataclass(slots=True)
class CheckpointRecorder:
    """Record what the files are, once before each change of a turn.

    A note is left out where nothing changed since the last note of the same turn. The first of a turn is always made: so the
    first note after a turn's beginning says what the files were then, whatever happened before (see `find_checkpoint`).
    One recorder and one workspace object serve one session; calls that come at once are taken one after another.
    Make it with `open_recorder`, which knows what was kept before.
    """

    append: AppendEvents
    workspace: Workspace
    put_blob: PutBlob
    carried: CarriedFiles | None = (
        None  # keeps all files in the same append, where other machines are to go on with them
    )
    _turn_id: str | None = None
    _last: StoredManifest | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def record(
        self, *, turn_id: str | None, call_id: str | None = None, always: bool = False
    ) -> NoteEvent | None:
        """Keep the files as they are and append the note; return it as stored, None where nothing changed in this turn.

        Outside a turn give None as its id; such a note, and one that is `always` to be made, is never left out.

        When it returns, manifest and contents are durable, so the change may begin.
        Raises: WorkspaceMissingError, GitError, StoreError, and what appending raises.
        """
        async with self._lock:
            manifest = await self._manifest()
            last = self._last
            is_same = last is not None and manifest.holds_same(last.manifest)
            if is_same and turn_id is not None and turn_id == self._turn_id and not always:
                await self.keep()  # what no checkpoint holds may have changed
                return None
            if last is None or not is_same:
                last = await put_manifest(manifest, self.put_blob, last=last)
            note = checkpoint_note(last, turn_id=turn_id, call_id=call_id)
            stored = (await self._added(note))[0]
            self._last, self._turn_id = last, turn_id
            return stored if isinstance(stored, NoteEvent) else note

    async def keep(self) -> None:
        """Keep the files as they are for other machines, where they are to be kept. Raises: what `record` raises."""
        if self.carried is not None:
            await self.carried.keep(self.append)

    async def _added(self, note: NoteEvent) -> Sequence[SessionEvent]:
        if self.carried is None:
            return await self.append([note])

        def named(saved: str | None) -> Sequence[SessionEvent]:
            return [note.model_copy(update={"data": {**note.data, SAVED: saved}})]

        return await self.carried.keep(self.append, named)

    async def _manifest(self) -> Manifest:
        if isinstance(self.workspace, LocalWorkspace):  # spares the way through JSON, a fifth of an unchanged look
            return await self.workspace.take(self.put_blob)
        return Manifest.from_json(await self.workspace.snapshot(self.put_blob))


async def open_recorder(
    session: Session, workspace: LocalWorkspace, *, store: EventStore, principal: Principal | None = None
) -> CheckpointRecorder:
    """Return the recorder of a session; what its newest checkpoint holds is not kept a second time."""
    append = partial(session.add_events, principal=principal)
    recorder = CheckpointRecorder(append, workspace, blobs_into(store, session.session_id), carried=workspace.carried)
    digest = latest_checkpoint(await session.get_recent_events(_RECENT_EVENTS, principal=principal))
    if digest is not None:
        with suppress(KipuError):  # unreadable: everything is kept again
            workspace.know(await get_manifest(digest, partial(session.blob, principal=principal)))
    return recorder


def checkpoint_note(stored: StoredManifest, *, turn_id: str | None, call_id: str | None) -> NoteEvent:
    """Return the note that a manifest stands in the log by."""
    data = {
        "manifest": stored.digest,
        "turn_id": turn_id,
        "call_id": call_id,
        "files": len(stored.manifest.files) + len(stored.manifest.links),
        "left_out": dict(stored.manifest.counts),
    }
    return NoteEvent(kind=CHECKPOINT, data=data)


async def record_checkpoint(
    append: AppendEvents, workspace: Workspace, *, put_blob: PutBlob, turn_id: str | None, call_id: str | None = None
) -> NoteEvent | None:
    """Record one checkpoint without remembering others; for many in a row keep a `CheckpointRecorder`."""
    recorder = CheckpointRecorder(append, workspace, put_blob)
    return await recorder.record(turn_id=turn_id, call_id=call_id)


# ---- finding -------------------------------------------------------------------------------------------------------


def find_checkpoint(events: Iterable[SessionEvent], to_seq: int) -> str | None:
    """Return the manifest's digest for the files as they were right after event `to_seq`, a turn boundary. Pure.

    That is the first checkpoint after it in the log, undone or not: files know one time only, and it is the log's. None
    means that nothing was to change files since, so they are as they were. `events` need be those after `to_seq` only.
    """
    return next((str(event.data["manifest"]) for event in events if _is_checkpoint(event) and event.seq > to_seq), None)


async def checkpoint_after(events: AsyncIterable[SessionEvent], to_seq: int) -> NoteEvent | None:
    """Return the first checkpoint after event `to_seq`, None where there is none; `events` need be those after it only."""
    async for event in events:
        if _is_checkpoint(event) and event.seq > to_seq:
            return event
    return None


def checkpoint_before_call(events: Iterable[SessionEvent], call_id: str) -> str | None:
    """Return the manifest's digest for the files before a call: its own note's, or the last of its turn before it. Pure."""
    latest: str | None = None
    for event in events:
        if _is_checkpoint(event):
            latest = str(event.data["manifest"])
            if event.data.get("call_id") == call_id:
                return latest
        elif event.event_type == "tool_started" and getattr(event, "tool_call_id", None) == call_id:
            return latest
    return None


def latest_checkpoint(events: Iterable[SessionEvent]) -> str | None:
    """Return the digest of the last manifest among `events`: what `/diff` compares with. Pure."""
    found = [str(event.data["manifest"]) for event in events if _is_checkpoint(event)]
    return found[-1] if found else None


def first_checkpoint_of_turn(events: Iterable[SessionEvent], turn_id: str) -> str | None:
    """Return the manifest's digest for the files as a turn found them, None when it was to change none. Pure."""
    for event in events:
        if _is_checkpoint(event) and event.data.get("turn_id") == turn_id:
            return str(event.data["manifest"])
    return None


def _is_checkpoint(event: SessionEvent) -> TypeGuard[NoteEvent]:
    return isinstance(event, NoteEvent) and event.kind == CHECKPOINT and "manifest" in event.data


# ---- going back ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Undone:
    """What going back did: the rewind (None where only files went back), and the paths that changed."""

    to_seq: int
    paths: list[str]
    rewind: SessionEvent | None = None
    manifest: str | None = None  # None: the files were as they had been, nothing was restored


async def restore_files(
    session: Session,
    workspace: Workspace,
    *,
    recorder: CheckpointRecorder,
    to_seq: int,
    principal: Principal | None = None,
) -> Undone:
    """Bring the files back to what they were right after event `to_seq`, a turn boundary; the log's tip stays.

    What they are now is a checkpoint of its own first, so that this too can be gone back from. Restoring again is harmless.
    Raises: InputError (a turn is open), RestoreError, WorkspaceMissingError, BlobNotFoundError, StoreError.
    """
    async with session.holding():
        await session.refresh()
        _refuse_open_turn(session)
        digest = await _first_after(session.events(after=to_seq, principal=principal), to_seq)
        if digest is None:
            return Undone(to_seq, [])
        read = partial(session.blob, principal=principal)
        manifest = await get_manifest(digest, read)
        await recorder.record(turn_id=None)
        paths = await workspace.restore(manifest, read)
        note = NoteEvent(kind=RESTORED, data={"manifest": digest, "to_seq": to_seq, "files": len(paths)})
        await session.add_event(note, principal=principal)
        await recorder.keep()
        return Undone(to_seq, paths, manifest=digest)


async def undo(
    session: Session,
    workspace: Workspace | None,
    *,
    recorder: CheckpointRecorder | None = None,
    to_seq: int | None = None,
    turns: int = 1,
    principal: Principal | None = None,
) -> Undone:
    """Take back the last `turns` turns, or all after `to_seq`: the conversation, and the files where there is a workspace.

    The log's tip goes first; where restoring then fails, the files alone can be gone back with `restore_files` to the same
    `to_seq`. Raises: what `Session.rewind` and `restore_files` raise.
    """
    async with session.holding():
        rewind = await session.rewind(to_seq, turns=turns, principal=principal)
        if not isinstance(rewind, RewindEvent):
            raise InputError(reason=f"session {session.session_id} was not rewound")
        if workspace is None or recorder is None:
            return Undone(rewind.to_seq, [], rewind)
        files = await restore_files(session, workspace, recorder=recorder, to_seq=rewind.to_seq, principal=principal)
        return Undone(rewind.to_seq, files.paths, rewind, files.manifest)


async def fork_files(
    parent: Session,
    child: Session,
    *,
    recorder: CheckpointRecorder,
    workspace: Workspace,
    principal: Principal | None = None,
) -> list[str]:
    """Bring the files of the fork's point into the child's own `workspace` and return their paths (C11, B41).

    `recorder` is the parent's: where nothing changed files since the fork's point, they are recorded as they are now.
    Raises: WorkspaceMissingError (the parent's), RestoreError, StoreError.
    """
    at = child.head.base_seq
    digest = await _first_after(parent.events(after=at, principal=principal), at)
    read = partial(parent.blob, principal=principal)
    if digest is None:
        note = await recorder.record(turn_id=None)
        digest = str(note.data["manifest"]) if note is not None else ""
    return await workspace.restore(await get_manifest(digest, read), read)


async def diff_since(session: Session, workspace: Workspace, *, to_seq: int, principal: Principal | None = None) -> str:
    """Return how the files differ from what they were right after event `to_seq`, "" when they do not (`/diff`)."""
    digest = await _first_after(session.events(after=to_seq, principal=principal), to_seq)
    if digest is None:
        return ""
    read = partial(session.blob, principal=principal)
    return await workspace.diff(await get_manifest(digest, read), read)


async def _first_after(events: AsyncIterable[SessionEvent], to_seq: int) -> str | None:
    async for event in events:
        digest = find_checkpoint([event], to_seq)
        if digest is not None:
            return digest
    return None


def _refuse_open_turn(session: Session) -> None:
    if session.head.open_turn is not None:
        raise InputError(
            reason=f"turn {session.head.open_turn} of session {session.session_id} may still change files; stop it first"
        )


def blobs_into(store: EventStore, session_id: str) -> PutBlob:
    """Return the way for contents into the blobs of a session; the way out is `Session.blob`, which knows its parents too."""

    async def put(data: bytes) -> str:
        return await store.put_blob(session_id, data)

    return put
