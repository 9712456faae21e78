"""What commands write: results on stdout, everything said about them on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kipu.interop.printable import printable, printable_line

if TYPE_CHECKING:
    from rich.console import Console

Cell = tuple[str, str]  # text and rich style


class Output:
    """Write for people or, with `json`, for programs. Rich is loaded only where it is drawn on a terminal.

    Piped tables are lines of tab-separated values without a header, so that they can be cut and sorted.
    """

    def __init__(self, *, json: bool, colours: str) -> None:
        self.json = json
        self._colours = colours
        self._consoles: dict[bool, Console] = {}

    @property
    def rich(self) -> bool:
        """Return True where stdout is drawn with rich."""
        return not self.json and (self._colours == "always" or sys.stdout.isatty())

    def console(self, *, stderr: bool = False) -> Console:
        """Return a rich console under the colour setting."""
        if stderr not in self._consoles:
            from rich.console import Console

            always, never = self._colours == "always", self._colours == "never"
            self._consoles[stderr] = Console(
                stderr=stderr,
                force_terminal=True if always else None,
                no_color=True if never else None,
                highlight=False,
            )
        return self._consoles[stderr]

    def emit(self, value: Any) -> None:
        """Write one JSON value to stdout."""
        import orjson

        option = orjson.OPT_INDENT_2 if sys.stdout.isatty() else 0
        self.write(orjson.dumps(value, option=option).decode() + "\n")

    def write(self, text: str) -> None:
        """Write text to stdout as it is."""
        sys.stdout.write(text)

    def line(self, text: str = "", *, style: str = "") -> None:
        """Write a line for people; control characters in it are shown, not obeyed."""
        if self.rich:
            self.console().print(printable(text), style=style, markup=False, soft_wrap=True)
        else:
            self.write(printable(text) + "\n")

    def say(self, text: str, *, style: str = "dim") -> None:
        """Write a message to stderr."""
        if sys.stderr.isatty() and not self.json and self._colours != "never":
            self.console(stderr=True).print(printable(text), style=style, markup=False, soft_wrap=True)
        else:
            sys.stderr.write(printable(text) + "\n")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "") -> None:
        """Write rows: a table on a terminal, tab-separated lines elsewhere."""
        if not self.rich:
            self.write("".join("\t".join(map(printable_line, row)) + "\n" for row in rows))
            return
        from kipu.cli.drawn_table import print_table

        if title:
            self.line(title, style="italic")
        print_table(self.console(), columns, rows=rows)

    def facts(self, facts: Sequence[tuple[str, object]]) -> None:
        """Write names and values, one a line; those that are None are left out."""
        width = max((len(name) for name, _ in facts), default=0)
        for name, value in facts:
            if value is None or value == "":
                continue
            if self.rich:
                from rich.text import Text

                text = Text.assemble((f"{name:<{width}}  ", "cyan"), printable_line(str(value)))
                self.console().print(text, soft_wrap=True)
            else:
                self.write(f"{name:<{width}}  {printable_line(str(value))}\n")
