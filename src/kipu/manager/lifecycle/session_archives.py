"""Archiving for principals: whoever may configure a session may put it away and bring it back (C19)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kipu.errors import ArchiveError, ArchivePlaceError
from kipu.events.ids import check_session_id
from kipu.manager.access import Verb
from kipu.manager.begun import begun
from kipu.manager.lifecycle.archiver import Archived, Archiver, Progress
from kipu.manager.manager import SessionManager
from kipu.ports.head import Head
from kipu.ports.principal import Principal
from kipu.stores.times import iso_from_us

if TYPE_CHECKING:
    from kipu.manager.lifecycle.lone_archive import LoneArchive


class SessionArchives:
    """Archive and bring back the sessions of one manager. See docs/concepts/lifecycle.md."""

    def __init__(self, manager: SessionManager) -> None:
        self._manager = manager
        self._archiver = Archiver(
            manager.store, writer=manager.writer, owner=manager.owner, now=lambda: iso_from_us(manager.now_us())
        )

    async def archive(
        self,
        session_id: str,
        *,
        to: str | None = None,
        progress: Progress | None = None,
        principal: Principal | None = None,
    ) -> Archived:
        """Move a session's events into one file; it stays listed, found and usable. See `Archiver.archive`.

        Raises: InvalidSessionIdError, SessionNotFoundError, AccessDeniedError, SessionBusyError, TransitionError, ArchiveError,
        ArchivePlaceError.
        """
        check_session_id(session_id)
        await self._permit(session_id, principal)
        return await self._archiver.archive(session_id, to=to, progress=progress)

    async def unarchive(
        self,
        session_id: str,
        *,
        source: str | None = None,
        keep_file: bool = False,
        principal: Principal | None = None,
    ) -> Archived:
        """Bring a session back whole, as active; what came in meanwhile stays. See `Archiver.unarchive`.

        One that the store does not know any more is taken in from its newest file at `source`, the store's own archive folder
        where nothing is said. Raises: InvalidSessionIdError, SessionNotFoundError, AccessDeniedError, SessionBusyError, ArchiveError,
        and what `LoneArchive` raises.
        """
        check_session_id(session_id)
        head = await begun(self._manager.store, session_id)
        if head is not None:  # before any file is looked at: what is wrong with one tells that there is a session
            await self._permit(session_id, principal)
        lone = await self._lone(session_id, head, source)
        if lone is None:
            await self._permit(session_id, principal)
            return await self._archiver.unarchive(session_id, source=source, keep_file=keep_file)
        await self._permit_taking_in(lone, head=head, caller=principal or self._manager.principal)
        await lone.take_in(owner=f"{self._manager.owner}.archive")
        await self._archiver.unarchive(session_id)
        if not keep_file:
            await lone.remove()
        return lone.archived

    async def _lone(self, session_id: str, head: Head | None, source: str | None) -> LoneArchive | None:
        """Return the archive of a session that the store lacks, wholly or from some event on: a kill may have broken it off."""
        if head is not None and head.archive is not None:
            return None
        from kipu.manager.lifecycle.lone_archive import LoneArchive

        try:
            lone = await LoneArchive.find(self._manager.store, session_id, place=source)
        except (ArchiveError, ArchivePlaceError):
            if source is not None or head is None:
                raise
            return None
        if lone is not None and head is not None and lone.head.last_seq <= head.last_seq:
            return None  # a copy that was kept of what is in the store
        return lone

    async def _permit_taking_in(self, lone: LoneArchive, *, head: Head | None, caller: Principal) -> None:
        """Let the owner that the file names take it in, and administrators: anybody can write a file that says more.

        So its members count for nothing until it is in the store, and what it shares is asked of the store's own session.
        """
        require, session_id = self._manager.denials.require, lone.head.session_id
        owned = head or replace(lone.head, members=None)
        await require(caller, Verb.CONFIGURE, head=owned, session_id=session_id)
        if lone.parent_id is not None:
            await require(caller, Verb.READ, head=await lone.parent(), session_id=lone.parent_id)

    async def _permit(self, session_id: str, principal: Principal | None) -> None:
        caller, head = principal or self._manager.principal, await self._manager.store.head(session_id)
        await self._manager.denials.require(caller, Verb.CONFIGURE, head=head, session_id=session_id)
