"""Reading beside the writer: one connection in the event loop for what is quick, one in a thread for what is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

import apsw

from kipu.stores.sqlite.connection import DatabaseFile
from kipu.stores.tables import patience
from kipu.stores.tables.driver_errors import translated

T = TypeVar("T")


class Readers:
    """Hold the reading connections of one store."""

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file
        self._here = file.connect(query_only=True)
        self._aside: apsw.Connection | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kipu-reader")
        self._searches = patience.Pace()
        self._seen = self._version()

    def here(self, question: Callable[[apsw.Connection], T]) -> T:
        """Answer in place: for reads of microseconds."""
        with translated(self._file.url):
            return question(self._here)

    async def soon(self, question: Callable[[apsw.Connection], T]) -> T:
        """Answer in place, or in the reader thread once it turns out to take long."""
        with translated(self._file.url), suppress(apsw.InterruptError):
            return patience.answer_soon(self._here, question)
        return await self.aside(question)

    async def search(self, question: Callable[[apsw.Connection], T]) -> T:
        """Answer in place while searches are quick, else in the reader thread."""
        with self._searches.timed():
            return await (self.soon(question) if self._searches.are_quick else self.aside(question))

    async def aside(self, question: Callable[[apsw.Connection], T]) -> T:
        """Answer in the reader thread: for reads that may take long."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._answer, question)

    def changed(self) -> bool:
        """Return whether anybody committed since this was last asked."""
        try:
            version = self._version()
        except apsw.Error:
            return True  # whoever reads next meets the error and tells it
        seen, self._seen = self._seen, version
        return version != seen

    def close(self) -> None:
        """Close both connections and end the thread."""
        self._thread.shutdown(wait=True)
        self._here.close()
        if self._aside is not None:
            self._aside.close()

    def _answer(self, question: Callable[[apsw.Connection], T]) -> T:
        with translated(self._file.url):
            if self._aside is None:
                self._aside = self._file.connect(query_only=True)
            return question(self._aside)

    def _version(self) -> int:
        row = self._here.execute("PRAGMA data_version").fetchone()
        return 0 if row is None or not isinstance(row[0], int) else row[0]
