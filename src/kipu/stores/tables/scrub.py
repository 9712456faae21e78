"""Zeroing what SQLite leaves behind: old copies of rows in the unallocated middle of pages.

`secure_delete` zeroes a row where it is deleted. But when pages are balanced, rows move, and their old bytes stay in the
gap between a page's cell pointers and its cells until something overwrites them. Nothing ever reads a gap, so zeroing it
in the file is safe even if the process is killed in the middle.
"""

from __future__ import annotations

from collections.abc import Iterator

import apsw

_LEAVES = frozenset({10, 13})
_INNER = frozenset({2, 5})
_FILE_HEADER = 100


def scrub(connection: apsw.Connection) -> int:
    """Zero every gap of the main database file and return how many bytes were not zero.

    The caller holds the write lock on `connection`, the log is empty, and the transaction goes on to commit a change: that
    makes every other connection drop its cached pages, which may still hold what was zeroed here.
    """
    size = _page_size(connection)
    flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE, 0]
    # Opened through SQLite's own layer: closing a plain handle would drop this process's locks on the file.
    file = apsw.VFSFile(connection.open_vfs, connection.db_filename("main"), flags)
    zeroed = 0
    try:
        for number in _tree_pages(connection):
            offset = (number - 1) * size
            page = file.xRead(size, offset)
            for start, end in gaps(page, first=number == 1):
                stale = page[start:end]
                if stale.strip(b"\0"):
                    file.xWrite(bytes(end - start), offset + start)
                    zeroed += len(stale) - stale.count(0)
        file.xSync(apsw.SQLITE_SYNC_FULL)
    finally:
        file.xClose()
    connection.release_memory()
    return zeroed


def gaps(page: bytes, *, first: bool) -> Iterator[tuple[int, int]]:
    """Yield the (start, end) of every stretch of a b-tree page that belongs to no row."""
    head = _FILE_HEADER if first else 0
    kind = page[head]
    if kind not in _LEAVES and kind not in _INNER:
        return
    cells = _u16(page, head + 3)
    content = _u16(page, head + 5) or 65536
    start = head + (8 if kind in _LEAVES else 12) + 2 * cells
    if start < content <= len(page):
        yield start, content
    block = _u16(page, head + 1)
    while block and block + 4 <= len(page):
        following, length = _u16(page, block), _u16(page, block + 2)
        if length > 4 and block + length <= len(page):
            yield block + 4, block + length
        if following <= block:  # they are chained upwards; anything else is damage, for verify to report
            return
        block = following


def _tree_pages(connection: apsw.Connection) -> Iterator[int]:
    for row in connection.execute("SELECT pageno FROM dbstat WHERE pagetype IN ('leaf', 'internal')"):
        yield int(str(row[0]))


def _page_size(connection: apsw.Connection) -> int:
    row = connection.execute("PRAGMA page_size").fetchone()
    return int(str(row[0])) if row is not None else 4096


def _u16(page: bytes, offset: int) -> int:
    return page[offset] << 8 | page[offset + 1]
