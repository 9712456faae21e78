"""What a store's mark lets be, as pure code: every store asks here, inside the transaction that would make a change."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import orjson

from kipu.errors import ConflictError, KipuError, StoreBeingFilledError, StoreMovedError
from kipu.ports.store import StoreMark

_STATES = {"leaving": "is about to move", "closed": "is moving", "moved": "has moved"}
_ADVICE = {
    "leaving": "Wait until it has, or end that with `kipu copy {store} {other} --cancel`",
    "closed": "Try again in some seconds, there. If nobody is moving it, `kipu copy {store} {other} --cut-over` finishes it",
    "moved": "Open that store instead (KIPU_STORE, or --store)",
}


def refusal(mark: StoreMark | None, *, own: str | None, store: str, claims: bool = False) -> KipuError | None:
    """Return why a change is refused, or None; `own` is the move for which this store object has set `filling`."""
    if mark is None or (mark.state == "leaving" and not claims):
        return None
    if mark.state == "filling":
        return None if mark.move == own else StoreBeingFilledError(store=store, other=mark.other)
    advice = _ADVICE[mark.state].format(store=store, other=mark.other)
    return StoreMovedError(store=store, state=_STATES[mark.state], other=mark.other, advice=advice)


def own_move(mark: StoreMark | None) -> str | None:
    """Return which move a store object that has set this mark may write for."""
    return mark.move if mark is not None and mark.state == "filling" else None


def check_expected(found: StoreMark | None, expected: StoreMark | None, *, store: str) -> None:
    """Return where the mark is what was expected. Raises: ConflictError."""
    if found != expected:
        raise ConflictError(session_id=f"the mark of {store}", expected=expected, actual=found)


def mark_to_text(mark: StoreMark) -> str:
    """Return the mark as a store keeps it."""
    return orjson.dumps(asdict(mark), option=orjson.OPT_SORT_KEYS).decode()


def mark_from_text(text: str | bytes) -> StoreMark:
    """Return the mark that a store has kept; what a later version adds to it is passed over."""
    said: dict[str, Any] = orjson.loads(text)
    return StoreMark(**{name: said[name] for name in ("state", "move", "other", "holder", "since")})
