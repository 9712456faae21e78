"""Looking at every byte of a store and saying what cannot be read as it should."""

from __future__ import annotations

import os

from kipu.errors import SessionNotFoundError, StoreCorruptError
from kipu.ports.store import Damage
from kipu.stores.jsonl.bindings import FILE as BINDINGS
from kipu.stores.jsonl.blobs import damaged_blobs
from kipu.stores.jsonl.quarantine import kept_aside
from kipu.stores.jsonl.shared import RETURNED_SEQ, SHARED_SEQ
from kipu.stores.jsonl.shelf import WAIT_S, Shelf


def verify_store(shelf: Shelf, session_id: str | None) -> list[Damage]:
    """Return what is damaged in one session, or in all of them, the bindings and the store's quarantine."""
    if session_id is not None:
        return _verify_session(shelf, session_id)
    found = [*kept_aside(shelf.root, None), *_verify_bindings(shelf)]
    for name in sorted(shelf.session_ids()):
        found += _verify_session(shelf, name)
    return found


def _verify_bindings(shelf: Shelf) -> list[Damage]:
    try:
        with shelf.bindings.lock.held(wait_s=WAIT_S):
            shelf.bindings.refresh(shelf.settle)
            torn = shelf.bindings.torn()
            places = [("checksum", place) for place in shelf.bindings.bad_lines] + ([("torn", torn)] if torn else [])
            found = [Damage(None, reason, BINDINGS, *place) for reason, place in places]
            if made_anew := shelf.bindings.made_anew:
                detail = (
                    f"it was gone: {made_anew} keys lead where the logs say, and those that no log says lead nowhere"
                )
                found.append(Damage(None, "gap", BINDINGS, detail=detail))
            return found
    except OSError as error:
        return [Damage(None, "unreadable", BINDINGS, detail=str(error.strerror))]


def _verify_session(shelf: Shelf, session_id: str) -> list[Damage]:
    folder = os.path.join(shelf.root, session_id)
    try:
        with shelf.locked(session_id, wait_s=WAIT_S, shared=True) as opened:
            found = opened.log.damages()
            row = opened.log.known.row
            opened.lease.read(now_us=shelf.now_us())
            found += opened.shared.damages(until=row.get(SHARED_SEQ, 0)) if row.get(SHARED_SEQ) else []
            found += opened.returned.damages(until=row.get(RETURNED_SEQ, 0)) if row.get(RETURNED_SEQ) else []
    except SessionNotFoundError:
        return []
    except (OSError, StoreCorruptError) as error:
        detail = error.reason if isinstance(error, StoreCorruptError) else str(error.strerror)
        return [Damage(session_id, "unreadable", session_id, detail=detail)]
    found += kept_aside(folder, session_id)
    return [*found, *damaged_blobs(folder, session_id)]
