"""Tables on terminals of every width: what names something is whole, so that it can be copied into the next command."""

from __future__ import annotations

import re

import pytest

from tests.unit.cli.command_line import CommandLine

TITLE = "a story of herons and of what they eat"
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def drawn(kipu: CommandLine, *words: str, width: int) -> list[str]:
    """Return what a terminal of this width is sent, without its colours."""
    kipu.environment |= {"KIPU_COLOURS": "always", "COLUMNS": str(width)}
    ran = kipu.run(*words)
    assert ran.code == 0
    return [_STYLE.sub("", line).rstrip() for line in ran.stdout.splitlines()]


def test_wide_terminal_has_a_row_on_a_line(kipu_sqlite: CommandLine) -> None:
    """Columns stand side by side where there is room for them."""
    kipu_sqlite.chat(TITLE)
    session_id = kipu_sqlite.ids()[0]
    columns, row = drawn(kipu_sqlite, "ls", width=120)
    assert row.startswith(f"{session_id}  active")
    assert row.endswith(TITLE)
    assert row.index(TITLE) == columns.index("title")


def test_last_column_alone_is_cut_to_the_width(kipu_sqlite: CommandLine) -> None:
    """A long title ends with the line, and says that it goes on."""
    kipu_sqlite.chat(TITLE)
    session_id = kipu_sqlite.ids()[0]
    _, row = drawn(kipu_sqlite, "ls", width=96)
    assert row.startswith(f"{session_id}  active")
    assert (len(row), row[-1]) == (96, "…")


@pytest.mark.parametrize("width", [20, 60, 80])
def test_narrow_terminal_cuts_no_id(kipu_sqlite: CommandLine, width: int) -> None:
    """Ids, states and times are whole on a line that the terminal breaks, and the title stands below, cut to the width (B4)."""
    kipu_sqlite.chat(TITLE)
    session_id = kipu_sqlite.ids()[0]
    _, _, row, title = drawn(kipu_sqlite, "ls", width=width)
    assert re.fullmatch(rf"{session_id}  active +\d+ +\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\dZ", row)
    assert title == "  " + (TITLE if width > 40 else f"{TITLE[:17]}…")
