"""How a fork begins: what it shares, and what it takes over of its parent's row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kipu.errors import InputError
from kipu.events.boundary import ForkPoint, SessionInitEvent
from kipu.manager.anchors import anchors_at
from kipu.manager.head_limits import check_title, shortened_title
from kipu.ports.principal import Principal
from kipu.session.patch import patch_for

if TYPE_CHECKING:
    from kipu.manager.session import Session

_PAGE = 32  # the first message is one of the first events


async def beginning_of_fork(
    parent: Session, *, seq: int | None, title: str | None, principal: Principal
) -> SessionInitEvent:
    """Return the first event of a session that shares `parent`'s events up to `seq` (None: all). Raises: InputError."""
    await parent.refresh()
    last = parent.history.last_seq
    at = last if seq is None else seq
    if type(at) is not int or not 0 < at <= last:
        raise InputError(reason=f"session {parent.session_id} has no event {at!r} to fork at; its last one is {last}")
    head = parent.head
    check_title(title)
    first_text = await _first_text(parent, at) if head.first_text else None
    named = head.title or first_text or parent.session_id  # nothing that the parent said after the fork
    return SessionInitEvent(
        owner=principal.id,
        tenant=principal.tenant,
        title=title or shortened_title(named, ending=" (fork)"),
        metadata=dict(head.metadata),
        workspace=head.workspace,
        forked_from=ForkPoint(session_id=parent.session_id, seq=at),
        inherited={**await anchors_at(parent.history, at), "first_text": first_text},
    )


async def _first_text(parent: Session, at: int) -> str | None:
    """Return how the first message up to event `at` begins, None where nobody had said anything yet."""
    after = 0
    while items := await parent.history.reader.forwards(after=after, until=at, limit=_PAGE):
        for item in items:
            text: str | None = patch_for([item.event]).default.get("first_text")
            if text:
                return text
        after = items[-1].event.seq
    return None
