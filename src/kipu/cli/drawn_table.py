"""A table on a terminal. Only the end of a row's last cell is ever cut: an id or a number that lacks its end is a wrong one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from kipu.interop.printable import printable_line

if TYPE_CHECKING:
    from rich.console import Console

GAP = 2
LEAST_ROOM = 16  # for the last column beside the others; where a terminal has less, it stands below them


def print_table(console: Console, columns: Sequence[str], *, rows: Iterable[Sequence[str]]) -> None:
    """Print rows, as wide as the console is."""
    cells = [tuple(map(printable_line, row)) for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    room = console.width - sum(width + GAP for width in widths[:-1])
    if room >= min(widths[-1], LEAST_ROOM):
        console.print(_table(columns, cells, room=room))
    else:
        aligned = widths if room >= -GAP else [0] * len(widths)
        for row, style in [(columns, "bold"), *((row, "cyan") for row in cells)]:
            _print_below(console, row, widths=aligned, style=style)


def _table(columns: Sequence[str], cells: Sequence[Sequence[str]], *, room: int) -> Table:
    drawn = Table(header_style="bold", box=None, pad_edge=False)
    for column in columns[:-1]:
        drawn.add_column(column, no_wrap=True, style="cyan")
    drawn.add_column(columns[-1], no_wrap=True, overflow="ellipsis", max_width=room)
    for row in cells:
        drawn.add_row(*map(Text, row))
    return drawn


def _print_below(console: Console, row: Sequence[str], *, widths: Sequence[int], style: str) -> None:
    """Print a row in lines that the terminal breaks, so that a cell is copied whole, and its last cell in a line of its own."""
    *firsts, last = row
    line = "".join(
        cell + " " * (max(width - cell_len(cell), 0) + GAP) for cell, width in zip(firsts, widths, strict=False)
    )
    console.print(Text(line.rstrip(), style=style), soft_wrap=True)
    if last:
        below = Text(" " * GAP + last, style="" if style == "cyan" else style)
        console.print(below, no_wrap=True, overflow="ellipsis")
