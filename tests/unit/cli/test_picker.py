"""The picker's screen, driven without a terminal."""

from __future__ import annotations

from textual.widgets import DataTable, Static

from kipu.cli.picker import SHOWN_ROWS, matching
from kipu.cli.picker_screen import Picker
from kipu.errors import StoreCorruptError
from kipu.ports.head import Head

BIRDS = ("heron", "crane", "stork", "heron chick")


def heads(*titles: str) -> list[Head]:
    return [
        Head(
            session_id=f"sess_{number}", title=title, key="cli:default", last_activity_at="2026-11-29T12:00:00.000000Z"
        )
        for number, title in enumerate(titles)
    ]


async def preview(session_id: str) -> str:
    if session_id == "sess_2":
        raise StoreCorruptError(store="x", reason="torn")
    return f"preview of {session_id}"


async def test_picker_filters_moves_and_takes() -> None:
    """Typing filters by every word, arrows move within what is left, the preview follows, Enter takes."""
    picker = Picker(heads(*BIRDS), preview)
    async with picker.run_test(size=(120, 30)) as pilot:
        await pilot.press(*"heron")
        await pilot.press("down", "down", "down")
        await pilot.pause()
        await picker.workers.wait_for_complete()
        assert picker.query_one(DataTable).row_count == 2
        assert "preview of sess_3" in str(picker.query_one("#preview", Static).render())
        await pilot.press("enter")
    assert picker.return_value == "sess_3"


async def test_picker_takes_nothing_where_nothing_matches() -> None:
    """Enter on an empty list does nothing; Escape leaves without a session."""
    picker = Picker(heads(*BIRDS), preview)
    async with picker.run_test() as pilot:
        await pilot.press(*"zzz", "enter")
        await pilot.pause()
        assert picker.is_running
        assert "no session matches" in str(picker.query_one("#preview", Static).render())
        await pilot.press("escape")
    assert picker.return_value is None


async def test_picker_shows_why_a_session_cannot_be_read() -> None:
    """A session that cannot be read stays listed, with the error in its preview (A50)."""
    picker = Picker(heads(*BIRDS), preview)
    async with picker.run_test(size=(160, 30)) as pilot:
        await pilot.press(*"stork")
        await pilot.pause()
        await picker.workers.wait_for_complete()
        assert "store_corrupt" in str(picker.query_one("#preview", Static).render())


async def test_picker_draws_a_bounded_number_of_rows() -> None:
    """Of ten thousand sessions only the newest matches are drawn; typing reaches every one of them (situation 52)."""
    many = heads(*(f"session number {number}" for number in range(10_000)))
    picker = Picker(many, preview)
    async with picker.run_test() as pilot:
        assert picker.query_one(DataTable).row_count == SHOWN_ROWS
        await pilot.press(*"9999")
        await pilot.pause()
        assert picker.query_one(DataTable).row_count == 1
        await pilot.press("enter")
    assert picker.return_value == "sess_9999"


def test_matching_asks_for_every_word() -> None:
    """Words are looked for in title, first message, tags, key, status and id, in any order and case."""
    found = [
        Head(session_id="sess_a", title="Grey Heron", tags=("wet",)),
        Head(session_id="sess_b", first_text="heron"),
    ]
    for words, ids in {"HERON": ["sess_a", "sess_b"], "wet grey": ["sess_a"], "active _b": ["sess_b"], "x": []}.items():
        assert [head.session_id for head in matching(found, words)] == ids
