"""The store's mark, as a row in the database: read and changed inside the writer's transactions."""

from __future__ import annotations

import apsw

from kipu.ports.store import StoreMark
from kipu.stores.store_mark import check_expected, mark_from_text, mark_to_text
from kipu.stores.tables.heads import Heads


def load(connection: apsw.Connection) -> StoreMark | None:
    """Return the mark; a database that an earlier version made and nobody may write has none."""
    try:
        row = connection.execute("SELECT said FROM marks").fetchone()
    except apsw.SQLError:
        return None
    return None if row is None else mark_from_text(str(row[0]))


def change(heads: Heads, mark: StoreMark | None, *, expected: StoreMark | None, store: str) -> None:
    """Replace the mark. Raises: ConflictError."""
    connection = heads.connection
    check_expected(load(connection), expected, store=store)
    connection.execute("DELETE FROM marks")
    if mark is not None:
        connection.execute("INSERT INTO marks(id, said) VALUES (1, ?)", (mark_to_text(mark),))
