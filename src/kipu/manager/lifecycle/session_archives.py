"""Archiving for principals: whoever may configure a session may put it away and bring it back (C19)."""

from __future__ import annotations

from kipu.manager.access import Verb
from kipu.manager.lifecycle.archiver import Archived, Archiver, Progress
from kipu.manager.manager import SessionManager
from kipu.ports.principal import Principal
from kipu.stores.times import iso_from_us


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

        Raises: SessionNotFoundError, AccessDeniedError, SessionBusyError, TransitionError, ArchiveError, ArchivePlaceError.
        """
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

        Raises: SessionNotFoundError, AccessDeniedError, SessionBusyError, ArchiveError.
        """
        await self._permit(session_id, principal)
        return await self._archiver.unarchive(session_id, source=source, keep_file=keep_file)

    async def _permit(self, session_id: str, principal: Principal | None) -> None:
        caller, head = principal or self._manager.principal, await self._manager.store.head(session_id)
        await self._manager.denials.require(caller, Verb.CONFIGURE, head=head, session_id=session_id)
