"""What a store in memory knows beside its sessions: its mark, and the ids that are taken for ever."""

from __future__ import annotations

import builtins
from collections.abc import Container, Sequence

from kipu.ports.store import MAX_PAGE, StoreMark, Tombstone
from kipu.stores.paging import page_size
from kipu.stores.store_mark import check_expected, own_move, refusal


class MarkInMemory:
    """The part of `MemoryStore` that is about moving its sessions elsewhere."""

    _url: str
    _erased: dict[str, str]
    _mark: StoreMark | None = None
    _own_move: str | None = None

    def _check_open(self) -> None:
        raise NotImplementedError

    def _ids(self) -> Container[str]:
        raise NotImplementedError

    def _check_mark(self, *, claims: bool = False) -> None:
        self._check_open()
        refused = refusal(self._mark, own=self._own_move, store=self._url, claims=claims)
        if refused is not None:
            raise refused

    async def mark(self) -> StoreMark | None:
        """Return the store's mark."""
        self._check_open()
        return self._mark

    async def set_mark(self, mark: StoreMark | None, *, expected: StoreMark | None = None) -> None:
        """Let the store have this mark if it now has `expected`."""
        self._check_open()
        check_expected(self._mark, expected, store=self._url)
        self._mark = mark
        self._own_move = own_move(mark)

    async def tombstones(self, *, after: str = "", limit: int = MAX_PAGE) -> builtins.list[Tombstone]:
        """Return ids that were erased."""
        self._check_open()
        behind = sorted(session_id for session_id in self._erased if session_id > after)
        return [Tombstone(session_id, self._erased[session_id]) for session_id in behind[: page_size(limit)]]

    async def bury(self, tombstones: Sequence[Tombstone]) -> None:
        """Make these ids ones that are not used again."""
        self._check_mark()
        for tombstone in tombstones:
            if tombstone.session_id not in self._ids():
                self._erased.setdefault(tombstone.session_id, tombstone.erased_at)
