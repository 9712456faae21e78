"""From what a person writes to the approval that is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kipu.cli.reference import SHORTEST_PART
from kipu.errors import ApprovalNotFoundError

if TYPE_CHECKING:
    from kipu.runtime.approvals import ApprovalDesk


async def find_approval(desk: ApprovalDesk, text: str) -> tuple[str, str | None]:
    """Return the approval of this id, or the one whose id begins or ends so, with its session; unknown ids as they are.

    Raises: ApprovalNotFoundError (several could be meant, or the part is too short).
    """
    pending = await desk.pending()
    if len(text) < SHORTEST_PART:
        raise ApprovalNotFoundError(
            approval_id=text, reason=f"the part of an id has at least {SHORTEST_PART} characters"
        )
    ids = {approval.approval_id: approval.session_id for approval in pending}
    if text in ids:
        return text, ids[text]
    found = [known for known in ids if known.startswith(text) or known.endswith(text)]
    if len(found) > 1:
        raise ApprovalNotFoundError(approval_id=text, reason=f"it could be any of {', '.join(found[:5])}")
    return (found[0], ids[found[0]]) if found else (text, None)
