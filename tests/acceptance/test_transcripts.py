"""Transcripts that people open: nothing in a session can act in them, and nothing of it is hidden."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kipu.errors import SessionNotFoundError
from kipu.events.boundary import GenericEvent
from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.interop.export_file import write_whole
from kipu.interop.export_html import export_html
from kipu.interop.export_jsonl import export_jsonl
from kipu.interop.export_markdown import export_markdown, fence_for, quoted
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.principal import Principal
from kipu.wiring import open_manager

ATTACK = "<script>alert(1)</script><img src=x onerror=alert(2)><a href='javascript:alert(3)'>x</a></pre></details>"
STEERING = "\x1b[2J\x07\u202egnp.exe\u2028end"


@pytest.fixture
async def manager() -> AsyncIterator[SessionManager]:
    async with await open_manager("memory://") as opened:
        yield opened


async def hostile(manager: SessionManager) -> Session:
    """Return a session that has an attack in every place where text can be."""
    session = await manager.get_or_create("cli:x")
    await session.add_event(UserMessageEvent(content=f"{ATTACK} {STEERING}", sender_id=ATTACK, channel=ATTACK))
    async with session.turn() as turn:
        await turn.add_events(
            [
                AgentMessageEvent(content=f"```\n{ATTACK}\n```\n{ATTACK}", reasoning=ATTACK),
                ToolCallEvent(tool_name=ATTACK, tool_call_id="c1", tool_input={ATTACK: ATTACK}),
                ToolCallEvent(tool_name="raw", tool_call_id="c2", raw=ATTACK, parse_error=ATTACK),
            ]
        )
        await turn.add_event(
            ToolResultEvent(tool_call_id="c1", result=f"```````\n{ATTACK}\n{STEERING}", error_info=ATTACK)
        )
        await turn.add_event(ToolResultEvent(tool_call_id="c2", result=[ATTACK], is_error=True, tool_name=ATTACK))
    await session.add_event(GenericEvent.model_validate({"event_type": "odd", "payload": ATTACK}))
    await session.set_metadata(title=f"{ATTACK} *bold* [link](javascript:x) {STEERING}", tags=[ATTACK])
    await session.share(ATTACK)
    return session


async def text_of(chunks: AsyncIterator[bytes]) -> str:
    return b"".join([chunk async for chunk in chunks]).decode()


class Page(HTMLParser):
    """Collect the tags, attributes and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


async def test_html_runs_and_fetches_nothing(manager: SessionManager) -> None:
    """A page has no script, no handler, no address, and a policy that would forbid them; all text is on it (situation 65)."""
    session = await hostile(manager)
    html = await text_of(export_html(session))
    page = Page()
    page.feed(html)
    assert set(page.tags) <= {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "dl", "dt", "dd", "article", "span", "time", "div",
        "details", "summary", "pre", "p",
    }  # fmt: skip
    assert {name for name, _ in page.attributes} <= {
        "lang", "charset", "http-equiv", "content", "name", "class", "id", "datetime", "dir",
    }  # fmt: skip
    policies = [value for name, value in page.attributes if name == "content" and value and "default-src" in value]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"]
    assert html.index("Content-Security-Policy") < html.index("<style>")
    assert page.text.count("<script>alert(1)</script>") >= 12
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e\u2028]", html)
    assert "\\x1b[2J\\x07\\u202e" in page.text
    assert "prefers-color-scheme: dark" in html
    assert page.tags.count("details") == page.tags.count("summary") == html.count("</details>")


async def test_markdown_quotes_what_was_said(manager: SessionManager) -> None:
    """No message can pass for a heading, close a code block, or bring HTML; control characters are written out."""
    session = await hostile(manager)
    text = await text_of(export_markdown(session))
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e\u2028]", text)
    fence, outside = "", []
    for line in text.split("\n"):
        body = line.removeprefix("> ")
        mark = re.match("`{3,}", body)
        if fence:
            fence = "" if body == fence else fence
        elif mark:
            fence = mark.group()
        else:
            outside.append(line)
    assert fence == ""
    prose = "\n".join(outside)
    tags = set(re.findall(r"(?<!\\)<(/?\w+)", prose))
    assert tags == {"details", "/details", "summary", "/summary", "sub", "/sub"}
    headings = [line for line in outside if line.startswith("#")]
    assert [heading.split(" ")[0] for heading in headings] == ["#", *["###"] * (len(headings) - 1)]
    assert prose.count("<details>") == prose.count("</details>")


async def test_transcripts_tell_what_happened(manager: SessionManager) -> None:
    """Who said what and when, calls, results, errors, unknown events and rewinds are all on the page (A27, A28)."""
    session = await manager.get_or_create("cli:y")
    await session.add_event(UserMessageEvent(content="first question", sender_id="ana"))
    async with session.turn() as turn:
        await turn.add_event(AgentMessageEvent(content="first answer"))
        await turn.add_event(ToolCallEvent(tool_name="ls", tool_call_id="c", tool_input={"path": "."}))
        await turn.add_event(ToolResultEvent(tool_call_id="c", result="a.txt", is_error=True))
    await session.rewind()
    await session.add_event(GenericEvent.model_validate({"event_type": "telepathy", "strength": 7}))
    for export in (export_html, export_markdown):
        text = await text_of(export(session))
        for wanted in ("first question", "ana", "first answer", "ls", "a.txt", "error", "telepathy", "Rewound"):
            assert wanted in text, (export.__name__, wanted)
        assert re.search(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC", text)


async def test_exports_are_only_for_who_may_read(manager: SessionManager) -> None:
    """Whoever holds a session object of somebody else still gets nothing out of it (A20, C19)."""
    session = await hostile(manager)
    for export in (export_html, export_markdown, export_jsonl):
        with pytest.raises(SessionNotFoundError):
            await text_of(export(session, principal=Principal("eve")))


def test_fences_are_longer_than_what_is_in_them() -> None:
    """A code block ends where it is closed, not where its text says so."""
    assert fence_for("no ticks") == "```"
    assert fence_for("a ``` b ````` c") == "``````"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# heading", "> # heading"),
        ("a\n\nb", "> a\n>\n> b"),
        ("a < b & c", "> a &lt; b &amp; c"),
        ("```html\n<b>\n```\n<b>", "> ```html\n> <b>\n> ```\n> &lt;b>"),
        ("```\nopen", "> ```\n> open\n> ```"),
        ("~~~\n```\n<i>\n~~~", "> ~~~\n> ```\n> <i>\n> ~~~"),
        ("```a`b\n<i>", "> ```a`b\n> &lt;i>"),
        ("    ```\n<i>", ">     ```\n> &lt;i>"),
        ("a\r\nb", "> a\n> b"),
    ],
)
def test_quotations_keep_markdown_and_escape_html(text: str, expected: str) -> None:
    """Markdown stays, HTML outside code does not, and a block that was left open is closed."""
    assert quoted(text) == expected


async def test_whole_files_are_there_or_not_at_all(tmp_path: Path) -> None:
    """An export that fails in the middle leaves the old file byte for byte, and nothing beside it (A51, A52)."""

    async def chunks(*, fail: bool) -> AsyncIterator[bytes]:
        yield b"new "
        if fail:
            raise OSError("no more")
        yield b"text"

    path = tmp_path / "out.md"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="no more"):
        await write_whole(path, chunks(fail=True))
    assert path.read_bytes() == b"old"
    assert await write_whole(path, chunks(fail=False)) == 8
    assert path.read_bytes() == b"new text"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.md"]
