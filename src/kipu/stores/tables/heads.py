"""The heads that one writing connection knows, so that an append reads its session's head once and not every time."""

from __future__ import annotations

from typing import Any

import apsw

from kipu.stores.tables import head_table
from kipu.stores.tables.head_table import HeadRow

# Together about a megabyte; whoever writes to more sessions at once reads some heads again.
_MOST_KEPT = 1_024


class Heads:
    """Read and change heads inside the transactions of one connection; what it knows holds while nobody else commits.

    Whoever holds a transaction calls `begin` first in it, `committed` after its COMMIT, and `forget` when it is rolled back.
    Every change of a head goes through here, or what is known is wrong.
    """

    def __init__(self, connection: apsw.Connection, *, store: str) -> None:
        self.connection = connection
        self._store = store
        self._rows: dict[str, HeadRow] = {}
        self._version = 0

    def begin(self) -> bool:
        """Forget what is known where another connection has committed since the last transaction; return whether one has."""
        version = self.connection.data_version()
        if version == self._version:
            return False
        self._rows.clear()
        self._version = version
        return True

    def committed(self) -> None:
        """Go on from what this connection has committed itself. Nobody else's commit is seen before the next transaction."""
        self._version = self.connection.data_version()

    def forget(self) -> None:
        """Forget what is known: it was rolled back, or changed beside this object."""
        self._rows.clear()

    def load(self, session_id: str) -> HeadRow | None:
        """Return the head, or None where there is no such session. Raises: StoreCorruptError."""
        row = self._rows.get(session_id)
        if row is None:
            row = head_table.load(self.connection, session_id, store=self._store)
            if row is not None:
                self._keep(session_id, row)
        return row

    def insert(self, data: dict[str, Any]) -> HeadRow:
        """Add the head of a new session."""
        row = head_table.insert(self.connection, data)
        self._keep(data["session_id"], row)
        return row

    def update(self, row: HeadRow, *, after: dict[str, Any]) -> HeadRow:
        """Replace a head."""
        row = head_table.update(self.connection, row, after=after)
        self._keep(after["session_id"], row)
        return row

    def delete(self, session_id: str, number: int) -> None:
        """Remove a head."""
        head_table.delete(self.connection, number)
        self._rows.pop(session_id, None)

    def set_indexed(self, session_id: str, *, seq: int) -> None:
        """Move `indexed_seq` forward to `seq`; a session that is gone is passed over."""
        row = self.load(session_id)
        if row is not None and row.data.get("indexed_seq", 0) < seq:
            self.update(row, after={**row.data, "indexed_seq": seq})

    def forget_indexed(self) -> None:
        """Set every `indexed_seq` to 0."""
        for session_id in list(head_table.session_ids(self.connection)):
            row = self.load(session_id)
            if row is not None:
                self.update(row, after={**row.data, "indexed_seq": 0})

    def _keep(self, session_id: str, row: HeadRow) -> None:
        if len(self._rows) >= _MOST_KEPT:
            self._rows.clear()
        self._rows[session_id] = row
