"""`session_search` finds what was said in the principal's sessions, and nobody else's."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import kipu
from kipu.events.conversation import ToolCallEvent, UserMessageEvent
from kipu.manager.manager import SessionManager
from kipu.ports.principal import Principal
from kipu.ports.tool import ToolContext
from kipu.runtime.tools.session_search import SessionSearch


@pytest.fixture
async def manager() -> AsyncIterator[SessionManager]:
    opened = await kipu.open_manager("memory://")
    yield opened
    await opened.close()


def _context(session_id: str, principal: Principal) -> ToolContext:
    return ToolContext(session_id=session_id, turn_id="t", call_id="c", principal=principal)


async def test_session_search_finds_words_and_chinese(manager: SessionManager) -> None:
    """Hits come from all sessions of the principal with session, number and text, Chinese ones too."""
    ann = Principal("ann")
    first = await manager.create_session(title="deploying", principal=ann)
    second = await manager.create_session(principal=ann)
    await manager.save_event(first, UserMessageEvent(content="the deploy script fails on Friday"), principal=ann)
    await manager.save_event(
        second, UserMessageEvent(content="\u90e8\u7f72\u811a\u672c\u5728\u661f\u671f\u4e94\u5931\u8d25"), principal=ann
    )
    tool = SessionSearch(manager)
    result = await tool.run({"query": "deploy friday"}, _context(second, ann))
    assert f"{first} #2 user_message" in result.content
    assert "\u00abdeploying\u00bb\n    the deploy script fails on Friday" in result.content
    result = await tool.run({"query": "\u811a\u672c"}, _context(second, ann))
    assert f"{second} (this session) #2" in result.content
    result = await tool.run({"query": "deploy", "session_id": "this"}, _context(second, ann))
    assert result.content == "Nothing was found."


async def test_session_search_keeps_to_its_principal(manager: SessionManager) -> None:
    """What somebody else said is not found, also when their session id is given (A20, C19)."""
    ann, bob = Principal("ann"), Principal("bob")
    hers = await manager.create_session(principal=ann)
    his = await manager.create_session(principal=bob)
    await manager.save_event(hers, UserMessageEvent(content="the vault code"), principal=ann)
    tool = SessionSearch(manager)
    for arguments in ({"query": "vault"}, {"query": "vault", "session_id": hers}):
        assert (await tool.run(arguments, _context(his, bob))).content == "Nothing was found."


async def test_session_search_does_not_find_itself(manager: SessionManager) -> None:
    """The call that searches holds the words too, and is not its own answer."""
    ann = Principal("ann")
    session = await manager.create_session(principal=ann)
    call = ToolCallEvent(tool_name="session_search", tool_input={"query": "zebra"}, tool_call_id="c")
    await manager.save_event(session, call, principal=ann)
    result = await SessionSearch(manager).run({"query": "zebra"}, _context(session, ann))
    assert result.content == "Nothing was found."


async def test_session_search_pages_and_fails_clearly(manager: SessionManager) -> None:
    """More hits than asked for come with a cursor to go on; a query without a word is an error."""
    ann = Principal("ann")
    session = await manager.create_session(principal=ann)
    for number in range(5):
        await manager.save_event(session, UserMessageEvent(content=f"apple {number}"), principal=ann)
    tool, context = SessionSearch(manager), _context(session, ann)
    result = await tool.run({"query": "apple", "limit": 3}, context)
    cursor = result.content.partition("go on with cursor='")[2].partition("'")[0]
    rest = await tool.run({"query": "apple", "limit": 3, "cursor": cursor}, context)
    shown = [number for number in range(5) if f"apple {number}" in result.content + rest.content]
    assert shown == [0, 1, 2, 3, 4]
    wrong = await tool.run({"query": "..."}, context)
    assert (wrong.is_error, wrong.error_info) == (True, "query_invalid")
