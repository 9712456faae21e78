"""What titles, tags and settings may take of a session's head."""

from __future__ import annotations

from typing import Any

import pytest

from kipu.errors import InputError
from kipu.events.conversation import UserMessageEvent
from kipu.manager.manager import SessionManager


@pytest.mark.parametrize(
    "values",
    [
        {"title": "x" * 201},
        {"tags": ["x" * 201]},
        {"tags": ["x"] * 101},
        {"notes": "x" * 70_000},
        {"a": [b"x" * 65_536]},
    ],
    ids=["title", "tag", "tags", "setting", "bytes"],
)
async def test_settings_that_are_too_large_are_refused(manager: SessionManager, values: dict[str, Any]) -> None:
    """Long titles and tags, and settings over 64 kB, are InputError when given at creation or later, and change nothing (B22, B37)."""
    session = await manager.open(await manager.create_session("kept", {"cwd": "/"}, title="short"))
    with pytest.raises(InputError):
        await session.set_metadata(**values)
    assert (session.head.event_count, session.head.title, session.head.metadata) == (1, "short", {"cwd": "/"})
    with pytest.raises(InputError):
        await manager.create_session("never", values)
    assert await manager.list_sessions() == ["kept"]


async def test_settings_are_counted_together(manager: SessionManager) -> None:
    """Settings count with those there are; the refusal names what to use instead, and taking some away makes room (B37)."""
    session = await manager.open(await manager.create_session(None, {"a": "x" * 40_000}))
    with pytest.raises(InputError, match=r"blob.* or into a note"):
        await session.set_metadata(b="x" * 40_000)
    await session.set_metadata(unset=["a"], b="x" * 40_000)
    assert set(session.head.metadata) == {"b"}


async def test_titles_given_are_refused_and_those_made_are_shortened(manager: SessionManager) -> None:
    """A given title over 200 characters is InputError; a fork's own title is cut with an ellipsis and keeps its ending."""
    with pytest.raises(InputError, match="200"):
        await manager.create_session("never", title="x" * 201)
    session = await manager.open(await manager.create_session("s", title="x" * 200))
    with pytest.raises(InputError, match="200"):
        await session.fork(title="x" * 201)
    child = await session.fork()
    assert child.title == "x" * 192 + "… (fork)"


@pytest.mark.parametrize("title", [7, True, b"x", ["x"], {"x": 1}])
async def test_a_title_is_text(manager: SessionManager, title: Any) -> None:
    """What is no text is InputError as the title of a new session, and none is begun (B15)."""
    session = await manager.open(await manager.create_session("s", title="short"))
    for attempt in (session.fork(title=title), manager.create_session(title=title)):
        with pytest.raises(InputError, match="a title is text"):
            await attempt
    assert await manager.list_sessions() == ["s"]


@pytest.mark.parametrize("seq", ["1", 1.0, True, 0, 2])
async def test_a_fork_begins_at_an_event(manager: SessionManager, seq: Any) -> None:
    """What is no number of an event is InputError, and no session is begun (C11)."""
    session = await manager.open(await manager.create_session("s"))
    with pytest.raises(InputError, match="to fork at"):
        await session.fork(seq)
    assert await manager.list_sessions() == ["s"]


@pytest.mark.parametrize("number", ["1", 1.0, True, None])
async def test_a_pin_and_a_rewind_name_an_event(manager: SessionManager, number: Any) -> None:
    """What is no number of an event, or no count of turns, is InputError, and nothing is appended (B36, C11)."""
    session = await manager.get_or_create("cli:p")
    await session.add_events([UserMessageEvent(content="one"), UserMessageEvent(content="two")])
    for seqs in ((number,), (1, 2, number)):
        with pytest.raises(InputError, match="no event"):
            await session.pin(*seqs)
    with pytest.raises(InputError, match="turns must be"):
        await session.rewind(turns=number)
    if number is not None:
        with pytest.raises(InputError, match="no event"):
            await session.rewind(number)
    assert session.head.last_seq == 3


async def test_a_setting_has_a_name(manager: SessionManager) -> None:
    """A name that is no text is InputError for a new session, which is not begun, and for one that there is (B22, B37)."""
    with pytest.raises(InputError, match="name of a setting is text, not 1"):
        await manager.create_session("never", {1: "x"})  # type: ignore[dict-item]
    session = await manager.open(await manager.create_session("s"))
    with pytest.raises(InputError, match="name of a setting is text, not 1"):
        await session.set_metadata(unset=[1])  # type: ignore[list-item]
    assert await manager.list_sessions() == ["s"]
