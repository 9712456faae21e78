"""Closing the index while a thread is still at work with it."""

from __future__ import annotations

import threading
from pathlib import Path

from kipu.stores.jsonl.index import Index

SLOW = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000000) SELECT count(*) FROM n"


def test_index_waits_for_a_read_that_nobody_waits_for_any_more(tmp_path: Path) -> None:
    """A cancelled caller's read goes on in its thread; closing waits for its end and does not fail (C2)."""
    index = Index(str(tmp_path), url="jsonl:///x")
    index.build()
    began = threading.Event()
    found: list[object] = []

    def running() -> bool:
        began.set()
        return False

    def read() -> None:
        index.connection.set_progress_handler(running, 1_000)
        found.append(index.connection.execute(SLOW).fetchall()[0][0])

    thread = threading.Thread(target=read)
    thread.start()
    began.wait()
    index.close()
    thread.join()
    assert found == [3_000_000]
