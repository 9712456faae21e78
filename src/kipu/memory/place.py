"""Where a session's facts belong and which it may recall: its project, its owner, its tenant, itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kipu.manager.access import owner_of
from kipu.ports.head import Head
from kipu.ports.memory import SCOPES, Fact, Scope, Space
from kipu.session.branch import Span

HELPER = "kipu.parent"  # in the metadata of a session that an agent gave a task to
_CHAT = "chat:"
PROJECT = "project"
"""Name of the metadata by which an application says itself which project a session belongs to."""


@dataclass(frozen=True, slots=True)
class MemoryPlace:
    """One session as memory sees it. `ancestors` are the sessions it was forked from, each with the last seq that it shares.

    Where somebody else than the owner asks, or may read what is shown, what is known of the owner stays out (A19).
    """

    session_id: str
    tenant: str
    owner: str
    project: str | None
    ancestors: tuple[tuple[str, int], ...] = ()
    is_owner_asking: bool = True
    is_shared: bool = False

    @classmethod
    def of(cls, head: Head, spans: Sequence[Span] = (), *, asker: str | None = None) -> MemoryPlace:
        """Return the place of the session of this head, for whoever asks (None: its owner)."""
        owner = owner_of(head)
        return cls(
            session_id=head.session_id,
            tenant=owner.tenant,
            owner=owner.id,
            project=project_of(head),
            ancestors=tuple((span.session_id, span.until) for span in spans if span.session_id != head.session_id),
            is_owner_asking=asker is None or asker == owner.id,
            is_shared=bool(head.members),
        )

    def space(self, scope: Scope) -> Space:
        """Return the space of a scope as this session sees it; without a project the session is the narrowest that there is."""
        if scope == "project" and self.project is None:
            scope = "session"
        subjects: dict[str, str] = {"session": self.session_id, "project": self.project or "", "user": self.owner}
        return Space(self.tenant, self.owner, scope, subjects.get(scope, ""))

    @property
    def narrowest(self) -> Scope:
        """Return the scope that a fact gets where nobody widened it: of use in later sessions, and in no other project (A4)."""
        return "project" if self.project is not None else "session"

    @property
    def is_project_a_chat(self) -> bool:
        """Say whether the project is only the chat that the session is of."""
        return self.project is not None and self.project.startswith(_CHAT)

    def spaces(self) -> list[Space]:
        """Return the spaces whose facts this session may recall, the narrowest first."""
        hidden = {
            "project" if self.project is None else "",
            "" if self.is_owner_asking and not self.is_shared else "user",
        }
        scopes = [scope for scope in SCOPES if scope not in hidden]
        own = [self.space(scope) for scope in scopes]
        inherited = [Space(self.tenant, self.owner, "session", session_id) for session_id, _ in self.ancestors]
        return [own[0], *inherited, *own[1:]]

    def may_recall(self, fact: Fact) -> bool:
        """Say whether a fact of these spaces is for this session: of a parent's own facts, what was so before the fork."""
        if fact.space.scope != "session" or fact.space.subject == self.session_id:
            return True
        shared = dict(self.ancestors).get(fact.space.subject)
        if shared is None:
            return False
        return all(source.session_id != fact.space.subject or source.seq <= shared for source in fact.sources)


def is_helper(head: Head) -> bool:
    """Say whether an agent talks in a session where a person would: nothing in it is a person's word."""
    return HELPER in head.metadata


def project_of(head: Head) -> str | None:
    """Return what names the session's project: what its application says, the directory it works in, or the chat it is of.

    A worktree belongs to its repository. A session with a private directory and without a chat is of no project.
    """
    named = head.metadata.get(PROJECT)
    if isinstance(named, str) and named.strip():
        return f"name:{named.strip()}"
    folder = _folder(head.workspace)
    if folder is not None:
        return f"folder:{folder}"
    return f"{_CHAT}{head.key}" if head.key else None


def _folder(workspace: Mapping[str, Any] | None) -> str | None:
    if workspace is None or workspace.get("kind", "directory") not in ("directory", "worktree"):
        return None
    folder = workspace.get("repository") or workspace.get("path")
    return folder if isinstance(folder, str) and folder else None
