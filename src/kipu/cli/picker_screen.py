"""The picker's screen, with textual."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import on, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import DataTable, Footer, Input, Static

from kipu.cli.picker import SHOWN_ROWS, matching, row_of
from kipu.errors import KipuError

if TYPE_CHECKING:
    from kipu.ports.head import Head


class Picker(App[str | None]):
    """Pick a session: type to filter, arrows to move, Enter to take it, Escape to leave."""

    CSS = """
    Input { dock: top; }
    DataTable { width: 3fr; }
    VerticalScroll { width: 2fr; border-left: solid $primary; padding: 0 1; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "take", "open", priority=True),
        Binding("escape", "leave", "leave", priority=True),
        Binding("ctrl+c", "leave", "leave", show=False, priority=True),
        Binding("down", "move(1)", "down", show=False, priority=True),
        Binding("up", "move(-1)", "up", show=False, priority=True),
        Binding("pagedown", "move(10)", "page down", show=False, priority=True),
        Binding("pageup", "move(-10)", "page up", show=False, priority=True),
    ]

    def __init__(self, heads: list[Head], preview: Callable[[str], Awaitable[str]]) -> None:
        super().__init__()
        self._heads = heads
        self._preview = preview
        self._shown: list[Head] = []
        self._words = ""

    def compose(self) -> ComposeResult:
        """Lay out the filter, the list and the preview."""
        yield Input(placeholder="type to filter")
        with Horizontal():
            yield DataTable(cursor_type="row", zebra_stripes=True)
            with VerticalScroll():
                yield Static(id="preview", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Fill the list."""
        self.query_one(DataTable).add_columns("last activity", "events", "title")
        self.query_one(Input).focus()
        self._fill("")

    @on(Input.Changed)
    def _filter(self, event: Input.Changed) -> None:
        self._fill(event.value)

    def _fill(self, words: str) -> None:
        self._words = words
        table = self.query_one(DataTable)
        table.clear()
        found = matching(self._heads, words)
        self._shown = found[:SHOWN_ROWS]
        for head in self._shown:
            time, events, title = row_of(head)
            table.add_row(time, events, Text(title), key=head.session_id)
        table.border_title = f"{len(found)} of {len(self._heads)} sessions"
        self.sub_title = table.border_title
        self._show_preview()

    def _current(self) -> Head | None:
        row = self.query_one(DataTable).cursor_row
        return self._shown[row] if 0 <= row < len(self._shown) else None

    @on(DataTable.RowHighlighted)
    def _moved(self) -> None:
        self._show_preview()

    @work(exclusive=True)
    async def _show_preview(self) -> None:
        head = self._current()
        text = "no session matches"
        if head is not None:
            try:
                text = await self._preview(head.session_id)
            except KipuError as error:  # it is listed although it cannot be read
                text = f"{error} [{error.code}]"
        self.query_one("#preview", Static).update(text)

    def action_move(self, rows: int) -> None:
        """Move the cursor by so many rows."""
        table = self.query_one(DataTable)
        if self._shown:
            table.move_cursor(row=max(0, min(len(self._shown) - 1, table.cursor_row + rows)))

    def action_take(self) -> None:
        """End with the session under the cursor, once everything that was typed is taken into account."""
        typed = self.query_one(Input).value
        if typed != self._words:
            self._fill(typed)
        head = self._current()
        if head is not None:
            self.exit(head.session_id)

    def action_leave(self) -> None:
        """End without a session."""
        self.exit(None)
