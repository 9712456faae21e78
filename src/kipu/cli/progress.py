"""Progress of long work, on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kipu.cli.output import Output

QUIET_S = 0.5


class Bar(Protocol):
    """Something that shows how far work has come."""

    def done(self, count: int) -> None:
        """Say that so many are done in all."""
        ...

    def expect(self, total: int) -> None:
        """Say how many there will be."""
        ...


class _Silent:
    def done(self, count: int) -> None:
        """Show nothing."""

    def expect(self, total: int) -> None:
        """Show nothing."""


class _Drawn:
    """A rich bar that appears only when the work is not over at once."""

    def __init__(self, output: Output, what: str, *, unit: str) -> None:
        self._output = output
        self._what = what
        self._unit = unit
        self._total: int | None = None
        self._since = time.monotonic()
        self._bar: object = None
        self._task: object = None

    def expect(self, total: int) -> None:
        self._total = total

    def done(self, count: int) -> None:
        if self._bar is None and time.monotonic() - self._since < QUIET_S:
            return
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        if not isinstance(self._bar, Progress):
            columns = (
                TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:.0f} " + self._unit), TimeElapsedColumn(),
            )  # fmt: skip
            self._bar = Progress(*columns, console=self._output.console(stderr=True), transient=True)
            self._task = self._bar.add_task(self._what, total=self._total)
            self._bar.start()
        task = self._bar.tasks[0]
        self._bar.update(task.id, completed=count, total=self._total)

    def stop(self) -> None:
        from rich.progress import Progress

        if isinstance(self._bar, Progress):
            self._bar.stop()


@contextmanager
def progress_bar(output: Output, what: str, *, unit: str) -> Iterator[Bar]:
    """Give a bar that is drawn on a terminal only, and never where stdout is JSON on that terminal."""
    if not sys.stderr.isatty():
        yield _Silent()
        return
    bar = _Drawn(output, what, unit=unit)
    try:
        yield bar
    finally:
        bar.stop()
