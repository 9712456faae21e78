"""A store encrypted or decrypted in place: copied beside itself, verified, exchanged, the old one erased (EN-30 and on).

The store stays what it was until the copy is whole and verified. A mark beside it (`stores.conversion_mark`) says how far
this is, and a kill at any point leaves something that running it again finishes: in `copy` the old store stands and the copy
goes on, in `exchange` the files are given their names, in `clear` the old store is erased.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

from kipu.archive.manifest import named
from kipu.errors import (
    CopyMismatchError,
    EncryptionError,
    InputError,
    StoreConvertingError,
    StoreCorruptError,
    StoreInUseError,
    StoreNotFoundError,
)
from kipu.manager.copying import CopyProgress, CopyReport, copy_store, tombstones_of
from kipu.ports.head import Head
from kipu.ports.store import EventStore, SessionQuery
from kipu.sealing.conversion_files import ConversionFiles, archives_of, vault_of
from kipu.stores.conversion_mark import ConversionMark, mark_path

Open = Callable[[Path], Awaitable[EventStore]]
Beside = Callable[..., Awaitable[None]]  # (old, new, path=, new_path=): converts what stands beside a store
_PAGE = 500


@dataclass(frozen=True, slots=True)
class Converted:
    """What a conversion did. `kept` is where the old store is, None where it was erased."""

    sessions: int = 0
    events: int = 0
    blobs: int = 0
    lost: int = 0  # records that the old store had lost; it is kept then, whatever was asked
    kept: Path | None = None
    notes: tuple[str, ...] = ()


class Conversion:
    """Make the store at `path` an encrypted one, or a plain one again.

    `open_old` and `open_new` open a store of the one and the other kind at a path, in this process alone.
    """

    def __init__(
        self,
        kind: str,
        path: Path,
        *,
        url: str,
        encrypt: bool,
        open_old: Open,
        open_new: Open,
        owner: str,
        beside: Beside | None = None,
        archives_beside: bool = True,
    ) -> None:
        self._places = places = ConversionFiles(kind, path, url=url)
        self._files, self._new, self._old = places.store, places.copy, places.before
        self._url = url
        self._encrypt = encrypt
        self._open_old = open_old
        self._open_new = open_new
        self._owner = owner
        self._beside = beside
        self._archives_beside = archives_beside

    async def run(self, *, keep: bool, progress: Callable[[str, CopyProgress], None] | None = None) -> Converted:
        """Do it, or go on where it was stopped.

        Raises: StoreInUseError, StoreConvertingError (another process does it), StoreFullError and whatever a copy raises:
        the store is as it was then. StoreNotFoundError, InputError (there is an old copy from before).
        """
        if not self._files.exists() and not mark_path(self._files.path).exists():
            raise StoreNotFoundError(store=self._url, path=str(self._files.path))
        mark = ConversionMark(self._files.path, store=self._url)
        try:
            converted = self._begin(mark, keep=keep)
            if mark.said["step"] == "copy":
                converted = await self._copy(mark, progress)
                mark.say(step="exchange", kept=converted.kept is not None, sessions=converted.sessions)
            if mark.said["step"] == "exchange":
                self._places.exchange()
                mark.say(step="clear")
            if not mark.said["kept"]:
                self._places.destroy_before()
            mark.remove()
        finally:
            mark.close()
        return replace(converted, kept=self._old.path if mark.said["kept"] else None)

    def _begin(self, mark: ConversionMark, *, keep: bool) -> Converted:
        """Take up what the mark says, or begin."""
        said = mark.said
        if said and bool(said.get("encrypt")) != self._encrypt:
            if said.get("step") != "copy":
                verb, command = ("encrypted", "encrypt") if said.get("encrypt") else ("decrypted", "decrypt")
                reason = "it was stopped halfway"
                raise StoreConvertingError(store=self._url, verb=verb, command=command, reason=reason)
            self._places.discard_copy()
            said = {}
        if said.get("step") in {"exchange", "clear"}:
            return Converted(sessions=int(said.get("sessions", 0)))
        try:
            if self._old.exists():
                raise InputError(reason=f"{self._old.path} is there, kept from before. Move it away or erase it first")
            if vault_of(self._files.path).exists() == self._encrypt:
                said_already = "is encrypted already" if self._encrypt else "is not encrypted"
                raise InputError(reason=f"{self._url} {said_already}; `kipu key status` says more")
            if self._files.in_use():
                raise StoreInUseError(store=self._url)
            mark.say(encrypt=self._encrypt, step="copy", kept=keep)
        except BaseException:
            if not said:
                mark.remove()
            raise
        return Converted()

    # ---- copying -------------------------------------------------------------------------------------------------------

    async def _copy(self, mark: ConversionMark, progress: Callable[[str, CopyProgress], None] | None) -> Converted:
        """Copy and verify. What was copied before and does not hold, by a power cut or an erasure since, is thrown away once.

        Where it cannot be done the copy goes, and its room with it; stopped by Ctrl-C or a kill it stays, to go on with.
        """
        goes_on = self._new.exists()
        try:
            return await self._copied(mark, progress)
        except Exception as error:
            self._places.discard_copy()
            if not (goes_on and isinstance(error, CopyMismatchError | StoreCorruptError | EncryptionError)):
                mark.remove()
                raise
        return await self._copied(mark, progress)

    async def _copied(self, mark: ConversionMark, progress: Callable[[str, CopyProgress], None] | None) -> Converted:
        old = await self._open_old(self._files.path)
        try:
            new = await self._open_new(self._new.path)
            try:
                await self._check_mark(old)
                await self._check_archives(old)
                await self._check_erased(old, new)
                report = await copy_store(old, new, owner=self._owner, progress=_about("copying", progress))
                await self._verify(old, new, report, progress)
                tokens = await _lease_tokens(old)
                if self._beside is not None:
                    await self._beside(old, new, path=self._files.path, new_path=self._new.path)
            finally:
                await new.close()
        finally:
            await old.close()
        self._new.add_erased(self._files.erased())
        self._new.set_lease_tokens(tokens)
        self._new.settle()
        kept = self._old.path if mark.said["kept"] or report.lost else None
        return Converted(report.sessions, report.events, report.blobs, report.lost, kept, report.notes)

    async def _check_mark(self, old: EventStore) -> None:
        """Refuse a store whose sessions move: its copy would know nothing of it. Raises: InputError."""
        mark = await old.mark()
        if mark is not None:
            raise InputError(reason=f"{self._url} is one end of a move ({mark.state}, {mark.other}): finish that first")

    async def _check_archives(self, old: EventStore) -> None:
        """Refuse where an archive that is not converted with the store would keep telling what it tells now.

        Those beside the store come back into it with the copy; they are archived anew, as the store is then, when asked for.
        """
        async for head in _heads(old):
            if head.archive and (head.archive.get("place") or not self._archives_beside):
                where = head.archive.get("place") or "the place of archive="
                reason = (
                    f"session {head.session_id} is archived in {where}: run `kipu unarchive {head.session_id}` first"
                )
                raise InputError(reason=reason)
        await self._check_lone_archives(old)

    async def _check_lone_archives(self, old: EventStore) -> None:
        """Refuse where a file is all that there is of a session, or of its newest events: it would go with the old store."""
        folder, gone = archives_of(self._files.path), {session_id for session_id, _ in self._files.erased()}
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            session_id, last_seq = named(path.name) or ("", 0)
            head = await old.head(session_id) if session_id and session_id not in gone else None
            if session_id in gone or last_seq <= (head.last_seq if head is not None else 0):
                continue
            reason = (
                f"{path} holds what this store has not of the session {session_id}: run `kipu unarchive {session_id} --from"
                f" {folder}` first, or move the file away"
            )
            raise InputError(reason=reason)

    async def _check_erased(self, old: EventStore, new: EventStore) -> None:
        """Refuse a copy begun before something in it was erased: it would bring that back. Raises: CopyMismatchError."""
        async for page in tombstones_of(old):
            for erased in page:
                if await new.head(erased.session_id) is not None:
                    raise CopyMismatchError(session_id=erased.session_id, seq=0, reason="it was erased meanwhile")

    async def _verify(
        self,
        old: EventStore,
        new: EventStore,
        report: CopyReport,
        progress: Callable[[str, CopyProgress], None] | None,
    ) -> None:
        """Look at the whole copy again. Raises: CopyMismatchError where anything is missing in it or does not hold."""
        if report.skipped:
            first = report.skipped[0]
            more = f", and {len(report.skipped) - 1} more" if len(report.skipped) > 1 else ""
            raise CopyMismatchError(session_id=first.session_id, seq=0, reason=f"{first.reason}{more}")
        again = await copy_store(old, new, owner=self._owner, progress=_about("verifying", progress))
        if (again.unchanged, len(again.skipped), again.events, again.blobs) != (again.sessions, 0, 0, 0):
            raise CopyMismatchError(session_id="", seq=0, reason="the copy was not whole")
        damage = await new.verify()
        if damage:
            found = damage[0]
            raise CopyMismatchError(
                session_id=found.session_id, seq=found.seq or 0, reason=f"{found.where}: {found.detail}"
            )


def _about(what: str, progress: Callable[[str, CopyProgress], None] | None) -> Callable[[CopyProgress], None] | None:
    if progress is None:
        return None
    told = progress
    return lambda moved: told(what, moved)


async def _lease_tokens(store: EventStore) -> dict[str, int]:
    return {head.session_id: head.lease_token async for head in _heads(store) if head.lease_token}


async def _heads(store: EventStore) -> AsyncIterator[Head]:
    query = SessionQuery(order="created_at", limit=_PAGE)
    while True:
        page = await store.list(query)
        for head in page.items:
            yield head
        if page.cursor is None:
            return
        query = replace(query, cursor=page.cursor)
