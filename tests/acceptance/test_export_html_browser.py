"""A session's HTML page in a real browser: whatever the session says, the page runs nothing and asks nobody."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.interop.export_file import write_whole
from kipu.interop.export_html import export_html
from kipu.wiring import open_manager

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
MARK = "document.documentElement.setAttribute('ran','yes')"
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


def payloads(address: str) -> list[str]:
    """Return texts that run something, or load something, wherever they are taken for HTML."""
    return [
        f"<script>{MARK}</script>",
        f"</div></article></body><script>{MARK}</script>",
        f"</style><script>{MARK}</script>",
        f"</title><script>{MARK}</script>",
        f"<img src=x onerror=\"{MARK}\"><img src='{address}/image'>",
        f"<svg onload=\"{MARK}\"><animate onbegin='{MARK}'/></svg>",
        f"<iframe srcdoc=\"<script>parent.{MARK}</script>\"></iframe><iframe src='{address}/frame'></iframe>",
        f"<body onload={MARK}><details open ontoggle={MARK}>x</details>",
        f'<a href="javascript:{MARK}" autofocus onfocus="{MARK}">x</a>',
        f"<meta http-equiv=refresh content='0;url={address}/refresh'><base href='{address}/'>",
        f"<link rel=stylesheet href='{address}/style'><script src='{address}/script'></script>",
        f"<style>@import url('{address}/import'); body {{ background: url('{address}/background') }}</style>",
        f"<object data='{address}/object'></object><embed src='{address}/embed'>",
        f"<form action='{address}/form'><button autofocus>x</button></form><script>document.forms[0].submit()</script>",
        f'" onmouseover="{MARK}" x="\' onload=\'{MARK}\' --><script>{MARK}</script><!--',
        f"]]><script>{MARK}</script>&lt;script&gt;{MARK}&lt;/script&gt;\u202e<script>\x00{MARK}</script>",
    ]


@contextmanager
def listening() -> Iterator[tuple[str, list[str]]]:
    """Listen on this machine, and note what is asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def opened(page: Path, profile: Path) -> str:
    """Return what a browser makes of a page after everything in it had its time."""
    command = [
        CHROMIUM or "", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--virtual-time-budget=4000",
        f"--user-data-dir={profile}", "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return ran.stdout


async def exported(tmp_path: Path, texts: list[str]) -> Path:
    """Return the page of a session that says these texts in every place where it says anything."""
    page = tmp_path / "page.html"
    async with await open_manager(f"sqlite:///{tmp_path}/s.db") as manager:
        await manager.create_session("s1", {"note": texts[0]}, title=texts[0][:190], key="test:s1")
        session = await manager.open("s1")
        await session.set_metadata(tags=[text[:190] for text in texts])
        async with session.turn() as turn:
            for number, text in enumerate(texts):
                call = f"c{number}"
                await turn.add_event(UserMessageEvent(content=text, sender_id=text, channel=text))
                await turn.add_events(
                    [
                        AgentMessageEvent(content=text, reasoning=text, metadata={"a": text}),
                        ToolCallEvent(tool_name=text, tool_call_id=call, tool_input={text: text}),
                    ]
                )
                await turn.add_event(ToolResultEvent(tool_call_id=call, result=text, is_error=True))
                await turn.add_event(AgentMessageEvent(content=text))
        await write_whole(page, export_html(session))
    return page


async def test_a_hostile_page_runs_nothing_in_a_browser(tmp_path: Path) -> None:
    """In a real browser the page of a session full of hostile text runs no script and makes no request, and shows the text (B58)."""
    with listening() as (address, asked):
        texts = payloads(address)
        page = await exported(tmp_path, texts)
        dom = opened(page, tmp_path / "profile")
        assert 'ran="yes"' not in dom
        assert asked == []
        assert dom.count("<script") == 0
        assert f"&lt;script&gt;{MARK}&lt;/script&gt;" in dom


async def test_the_page_s_own_policy_stops_what_was_not_escaped(tmp_path: Path) -> None:
    """Hostile markup put unescaped into an exported page still runs nothing and loads nothing: the page forbids it itself (B58)."""
    with listening() as (address, asked):
        page = await exported(tmp_path, ["harmless"])
        whole = page.read_text()
        markup = [text for text in payloads(address) if "refresh" not in text]  # a page that is left shows nothing
        page.write_text(whole.replace("</body>", "\n".join(markup) + "</body>"))
        assert 'ran="yes"' not in opened(page, tmp_path / "profile")
        assert asked == []


def test_the_browser_of_these_tests_runs_hostile_pages(tmp_path: Path) -> None:
    """The same texts in a page without a policy do run and do load, so that the tests above can fail (B58)."""
    with listening() as (address, asked):
        page = tmp_path / "page.html"
        page.write_text(f"<!doctype html><html><body>{''.join(payloads(address)[:8])}</body></html>")
        assert 'ran="yes"' in opened(page, tmp_path / "profile")
        assert "/image" in asked
