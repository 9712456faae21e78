"""Erasing: the rows in one transaction, then every copy of them that the file or its log may still hold."""

from __future__ import annotations

import os
import time

import apsw

from kipu.errors import LeaseLostError, SessionNotFoundError, StoreUnavailableError
from kipu.ports.store import ErasureReceipt, Lease
from kipu.stores.leasing import holds
from kipu.stores.sqlite import event_table
from kipu.stores.sqlite.connection import DatabaseFile
from kipu.stores.tables import key_tables, search_table
from kipu.stores.tables.heads import Heads
from kipu.stores.tables.scrub import scrub

READERS_WAIT_S = 5.0


def erase_rows(heads: Heads, session_id: str, *, lease: Lease, erased_at: str) -> ErasureReceipt:
    """Remove every row of the session and leave a tombstone; of an unfinished erasure, return its receipt."""
    connection = heads.connection
    row = heads.load(session_id)
    if row is None:
        for receipt in key_tables.unfinished(connection, session_id):
            return receipt
        raise SessionNotFoundError(session_id=session_id)
    if not holds(row.data, lease):
        raise LeaseLostError(session_id=session_id, token=lease.token, current=row.data.get("lease_token", 0))
    number = row.number
    removed = {"search": search_table.remove_session(connection, number)}
    removed["events"] = event_table.remove_session(connection, number)
    connection.execute("DELETE FROM blobs WHERE session = ?", (number,))
    removed["blobs"] = connection.changes()
    removed |= key_tables.remove_session(connection, number)
    heads.delete(session_id, number)
    removed["heads"] = 1
    key_tables.bury(connection, session_id, erased_at=erased_at, removed=removed)
    return ErasureReceipt(session_id, erased_at, removed)


def purge(heads: Heads, file: DatabaseFile) -> None:
    """Remove the copies that rows leave in the log and in pages, then finish the tombstones.

    Raises: StoreUnavailableError while readers keep the log in use; the tombstones stay unfinished, and a later call goes on.
    """
    deadline_s = time.monotonic() + READERS_WAIT_S
    scrubber = file.connect()
    try:
        while True:
            empty_log(heads.connection, store=file.url, deadline_s=deadline_s)
            scrubber.execute("BEGIN IMMEDIATE")
            if _log_is_empty(scrubber):
                break
            scrubber.execute("ROLLBACK")  # somebody wrote between the two
        scrub(scrubber)
        for receipt in key_tables.unfinished(scrubber):
            key_tables.finish(scrubber, receipt.session_id)
        scrubber.execute("COMMIT")
    finally:
        scrubber.close()


def _log_is_empty(connection: apsw.Connection) -> bool:
    try:
        return os.stat(connection.filename_wal).st_size == 0
    except FileNotFoundError:
        return True


def empty_log(connection: apsw.Connection, *, store: str, deadline_s: float) -> None:
    """Checkpoint and truncate the write-ahead log, waiting for readers. Raises: StoreUnavailableError."""
    connection.set_busy_timeout(200)
    while True:
        row = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        # One open reader makes it fail quietly: only the row tells. Without a log it says -1.
        if row is not None and row[0] == 0:
            return
        if time.monotonic() > deadline_s:
            reason = "it is erased, but readers keep old pages in use; erase again to finish"
            raise StoreUnavailableError(store=store, reason=reason)
        time.sleep(0.01)
