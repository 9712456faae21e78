"""The input line on a pseudo-terminal: a key counts whenever it is pressed, also while the chat prints or works."""

from __future__ import annotations

import asyncio
import os
import pty
import sys
import termios
import time
from collections.abc import Iterator

import pytest
from prompt_toolkit.application import create_app_session, get_app
from prompt_toolkit.output import DummyOutput

from kipu.cli.chat.editor import EditedLines
from kipu.cli.chat.lines import Desk, LineReader

HANGS_S = 60
ARRIVES_S = 0.05  # the kernel hands keys on in a thread of its own
CTRL_C, CTRL_D, CTRL_R, ENTER = b"\x03", b"\x04", b"\x12", b"\r"


class Keyboard:
    """The other end of a terminal, the lines that are entered there, and how often a person asked for an end."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self.interrupts = 0
        self.lines = EditedLines(Desk(complete=lambda _text: [], interrupt=self._interrupt))
        self._reader = LineReader(self.lines)

    def press(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    async def line(self) -> str | None:
        return await asyncio.wait_for(self._reader.take(), HANGS_S)

    async def prompted(self) -> None:
        """Return once the input line is there."""
        _ = self._reader.coming
        while not get_app().is_running:  # noqa: ASYNC110 - nobody tells when it is there
            await asyncio.sleep(0.001)

    async def printed(self, keys: bytes) -> None:
        """Press keys in the middle of what is printed above the input line."""
        is_printed = asyncio.Event()

        def draw() -> None:
            self.press(keys)
            time.sleep(ARRIVES_S)
            is_printed.set()

        await self.prompted()
        self.lines.above(draw)
        await asyncio.wait_for(is_printed.wait(), HANGS_S)

    def _interrupt(self) -> bool:
        self.interrupts += 1
        return True


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Keyboard]:
    ours, theirs = pty.openpty()
    with open(theirs) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        with create_app_session(output=DummyOutput()):
            yield Keyboard(ours)
    os.close(ours)


async def test_ctrl_d_while_something_is_printed_ends_the_lines(keyboard: Keyboard) -> None:
    """The terminal would have made an end of file of it, which an input line does not know (C13)."""
    with keyboard.lines.held():
        await keyboard.printed(CTRL_D)
        assert await keyboard.line() is None


async def test_line_that_is_typed_while_something_is_printed_is_whole(keyboard: Keyboard) -> None:
    """What is pressed comes to the line as it was pressed, the keys that delete as well (B2)."""
    with keyboard.lines.held():
        await keyboard.printed(b"a line\x7f\x7f\x7f\x7fbird" + ENTER)
        assert await keyboard.line() == "a bird"


async def test_ctrl_c_while_something_is_printed_is_an_interrupt(keyboard: Keyboard) -> None:
    """The terminal would have made a signal of it, which ends more than the turn (C13)."""
    with keyboard.lines.held():
        await keyboard.printed(CTRL_C)
        await keyboard.printed(CTRL_D)
        assert await keyboard.line() is None
        assert keyboard.interrupts == 1


async def test_ctrl_d_between_two_lines_ends_them(keyboard: Keyboard) -> None:
    """Keys that are pressed before a line is asked for, and between two, wait for the next one (B2)."""
    with keyboard.lines.held():
        keyboard.press(b"first" + ENTER)  # before there is an input line
        assert await keyboard.line() == "first"
        keyboard.press(CTRL_D)
        time.sleep(ARRIVES_S)
        assert await keyboard.line() is None


async def test_terminal_is_as_it_was_when_the_lines_end(keyboard: Keyboard) -> None:
    """Whoever has the terminal next finds it as the chat did (C5)."""
    before = termios.tcgetattr(sys.stdin)
    with keyboard.lines.held():
        keyboard.press(b"a line" + ENTER)
        await keyboard.line()
        await keyboard.printed(CTRL_D)
        await keyboard.line()
        assert termios.tcgetattr(sys.stdin) != before
    assert termios.tcgetattr(sys.stdin) == before


@pytest.mark.parametrize("is_prompted", [True, False])
async def test_another_program_has_the_terminal_as_it_reads_lines(keyboard: Keyboard, is_prompted: bool) -> None:
    """A program that reads a line reads one, as EDITOR may be; what is printed meanwhile waits (C15)."""
    with keyboard.lines.held():
        if is_prompted:
            await keyboard.prompted()
        async with keyboard.lines.lent():
            flags = termios.tcgetattr(sys.stdin)[3]
            assert flags & termios.ICANON
            assert flags & termios.ECHO
            keyboard.press(b"of another program\n")
            assert os.read(sys.stdin.fileno(), 100) == b"of another program\n"
        keyboard.press(b"of the chat" + ENTER)
        assert await keyboard.line() == "of the chat"


@pytest.mark.parametrize("enter", [ENTER, b"\n"])
async def test_enter_takes_the_line_that_was_searched_for(keyboard: Keyboard, enter: bytes) -> None:
    """Ctrl-R and a few letters find an earlier line: Enter puts it there to be changed, the next one sends it (B2)."""
    with keyboard.lines.held():
        for line in (b"a heron", b"a camel"):
            await keyboard.prompted()
            keyboard.press(line + ENTER)
            await keyboard.line()
        await keyboard.prompted()
        keyboard.press(CTRL_R + b"her" + enter + b"\x05s" + ENTER)  # Ctrl-E: at the end of it
        assert await keyboard.line() == "a herons"


async def test_ctrl_c_leaves_the_search_and_interrupts_nothing(keyboard: Keyboard) -> None:
    """What was written before the search is there again, and the turn that runs goes on (C13)."""
    with keyboard.lines.held():
        await keyboard.prompted()
        keyboard.press(b"a bird" + CTRL_R + CTRL_C + b"\x05s" + ENTER)
        assert await keyboard.line() == "a birds"
        assert keyboard.interrupts == 0
