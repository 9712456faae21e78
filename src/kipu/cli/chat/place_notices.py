"""What a person is told of where a session works, and of what else is at work there."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kipu.cli.chat.workplace import neighbours_notice, standing_of_place
from kipu.cli.project_files import ProjectFiles, project_notice
from kipu.cli.runtime_settings import project_files
from kipu.stores.host import SystemLiveness

if TYPE_CHECKING:
    from kipu.cli.chat.conversation import Conversation
    from kipu.manager.session import Session


class PlaceNotices:
    """Say it on the chat's screen."""

    def __init__(self, chat: Conversation) -> None:
        self._chat = chat

    async def tell_place(self, session: Session) -> None:
        """Say how the session's directory stands, and who else uses it."""
        provision = self._chat.runtime.builder.provision
        standing = await standing_of_place(session, provision=provision)
        if standing is not None:
            self._chat.screen.say(standing[0], style=standing[1])
            self._chat.root = Path((session.head.workspace or {})["path"])
            self.tell_project(self._chat.root)
        await self.tell_neighbours(session)

    async def tell_neighbours(self, session: Session) -> None:
        """Say who else uses the same files."""
        notice = await neighbours_notice(session, manager=self._chat.manager, known=self._chat.served.sessions.keys())
        if notice is not None:
            self._chat.screen.say(notice, style="yellow")

    def tell_project(self, folder: Path) -> None:
        """Say what the project brings of its own, and whether it counts."""
        files = self.project_files()
        project = files.find(folder)
        if project is not None:
            is_trusted = files.is_trusted(project)
            self._chat.screen.say(
                project_notice(project, is_trusted=is_trusted), style="dim" if is_trusted else "yellow"
            )

    def project_files(self) -> ProjectFiles:
        """Return the projects' own files."""
        return project_files(self._chat.invocation.settings, os.environ)

    async def where_it_runs(self, session: Session) -> str | None:
        """Return where the session's turn runs now, None where it does not."""
        if session.head.open_turn is None or session.head.parked:
            return None
        if self._chat.is_running(session):
            return "here"
        stored = await self._chat.manager.store.head(session.session_id)  # leases are in no event
        now = datetime.fromtimestamp(self._chat.manager.now_us() / 1_000_000, UTC).isoformat()
        if stored is None or not stored.lease_owner or not stored.lease_until or stored.lease_until <= now[:19]:
            return None
        return None if SystemLiveness().is_dead(stored.lease_owner) else "in another process"

    async def tell_sandbox(self) -> None:
        """Say where commands are not shut in: nobody should find that out by accident."""
        if self._chat.invocation.settings["sandbox"] == "off":
            self._chat.screen.say("commands run without a sandbox: it is switched off", style="yellow")
            return
        probe = await self._chat.runtime.builder.sandbox_probe()
        if probe.path is None:
            self._chat.screen.say(f"commands run without a sandbox: {probe.reason}", style="yellow")
