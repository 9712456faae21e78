"""What `kipu verify --chain` does: every chain followed from its first link to its last, and compared with links kept elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kipu.cli.progress import progress_bar
from kipu.cli.reference import find_head
from kipu.errors import InputError, StoreError
from kipu.ports.store import EventStore
from kipu.stores.chain_anchor import anchor_of, set_back
from kipu.stores.chain_link import ChainBreak
from kipu.stores.chained import ChainedStore

if TYPE_CHECKING:
    from kipu.cli.invocation import Invocation
    from kipu.manager.manager import SessionManager

_WORDS = {
    "altered": "was altered",
    "dropped": "was dropped",
    "reordered": "stands elsewhere",
    "cut": "and what followed is gone",
    "head": "does not fit the head's last link",
    "archive": "and those before are said to be in an archive by somebody without the key",
    "set back": "is not what it was when its link was saved",
    "gone": "is gone, and with it the session or its chain",
    "anchor": "has no readable link in the file",
    "unreadable": "cannot be verified",
}


async def check_chains(
    invocation: Invocation, text: str | None, *, save: Path | None = None, against: Path | None = None
) -> int:
    """Tell the first break of every chain, and return how many there are."""
    kept = _read(against) if against is not None else {}
    async with invocation.manager() as manager:
        chained = _chained(manager.store)
        found, anchors, unchained = await _checked(invocation, manager, chained, text=text)
        for session_id, anchor in kept.items():
            broken = await set_back(chained.inner, session_id, anchor=anchor)
            if broken is not None and (text is None or session_id in anchors):
                found.append(_told(broken))
        url = manager.store.describe().url
    if save is not None:
        _write(save, anchors)
    _tell(invocation, url, found=found, anchors=anchors, unchained=unchained)
    return len(found)


def _chained(store: EventStore) -> ChainedStore:
    inner = getattr(store, "inner", None)
    if not isinstance(inner, ChainedStore):
        raise InputError(
            reason="the store is not chained. Encrypt it by `kipu encrypt --chain`, or open it with chain=on to begin now"
        )
    return inner


async def _checked(
    invocation: Invocation, manager: SessionManager, chained: ChainedStore, *, text: str | None
) -> tuple[list[dict[str, Any]], dict[str, str], int]:
    """Return the breaks, the last link of every chain, and how many sessions have none."""
    ids = [await find_head(manager, text)] if text else await chained.session_ids()
    found: list[dict[str, Any]] = []
    anchors: dict[str, str] = {}
    with progress_bar(invocation.output, "verifying chains", unit="sessions") as bar:
        bar.expect(len(ids))
        for number, session_id in enumerate(ids):
            anchor = await anchor_of(chained.inner, session_id)
            if anchor is not None:
                anchors[session_id] = anchor
            try:
                broken = await chained.chain_break(session_id)
            except StoreError as error:
                found.append({"session_id": session_id, "seq": None, "kind": "unreadable", "detail": str(error)})
            else:
                found += [] if broken is None else [_told(broken)]
            bar.done(number + 1)
    return found, anchors, len(ids) - len(anchors)


def _told(broken: ChainBreak) -> dict[str, Any]:
    detail = f"event {broken.seq} {_WORDS[broken.kind]}"
    return {"session_id": broken.session_id, "seq": broken.seq, "kind": broken.kind, "detail": detail}


def _tell(
    invocation: Invocation, url: str, *, found: list[dict[str, Any]], anchors: dict[str, str], unchained: int
) -> None:
    output = invocation.output
    if output.json:
        output.emit({"store": url, "chains": len(anchors), "unchained": unchained, "breaks": found, "links": anchors})
        return
    rows = ((b["session_id"], "" if b["seq"] is None else str(b["seq"]), b["kind"], b["detail"]) for b in found)
    output.table(("session", "seq", "break", "detail"), rows)
    more = f"; {unchained} sessions have no chain yet" if unchained else ""
    holds = f"{len(found)} chains are broken" if found else f"{len(anchors)} chains hold"
    output.say(f"{url}: {holds}{more}")


def _read(path: Path) -> dict[str, str]:
    kept = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        session_id, _, link = line.strip().partition("\t")
        if session_id:
            kept[session_id] = link
    return kept


def _write(path: Path, anchors: dict[str, str]) -> None:
    path.write_text(
        "".join(f"{session_id}\t{link}\n" for session_id, link in sorted(anchors.items())), encoding="utf-8"
    )
