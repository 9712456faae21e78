"""Closing the index while a thread is still at work with it."""

from __future__ import annotations

import threading
from pathlib import Path

import apsw
import pytest

from kipu.stores.jsonl.index import Index

COUNT = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) SELECT count(*) FROM n"


def test_index_waits_for_a_read_that_nobody_waits_for_any_more(tmp_path: Path) -> None:
    """A cancelled caller's read goes on in its thread; closing waits for its end and does not fail (C2)."""
    assert _closed_while_counting_to(300_000, tmp_path) == [300_000]


def test_read_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Closing waits its time and then interrupts what it waits for: nobody meets the driver's error (C16)."""
    monkeypatch.setattr("kipu.stores.jsonl.index._CLOSE_WAIT_S", 0.0)
    (outcome,) = _closed_while_counting_to(10**15, tmp_path)
    assert isinstance(outcome, apsw.InterruptError)


def _closed_while_counting_to(number: int, folder: Path) -> list[object]:
    """Close an index in the middle of that, and return what came of it."""
    index = Index(str(folder), url="jsonl:///x")
    index.build()
    began = threading.Event()
    found: list[object] = []

    def running() -> bool:
        began.set()
        return False

    def read() -> None:
        index.connection.set_progress_handler(running, 1_000)
        try:
            found.append(index.connection.execute(COUNT.format(number)).fetchall()[0][0])
        except apsw.InterruptError as error:
            found.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    began.wait()
    index.close()
    thread.join()
    return found
