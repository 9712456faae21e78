"""A session that cannot be read at all: it is named, and everything is done with the others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

from kipu.events.conversation import UserMessageEvent
from kipu.security.key_file import key_line
from kipu.wiring import open_manager
from tests.unit.cli.command_line import CommandLine

KEY = key_line(bytes(range(32))).strip()
NAMES = ("first", "lost", "third")


@pytest.fixture(params=["file", "key"])
def kipu(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """Return a command line over a store of three sessions, one with a log or a data key that is not to be had."""
    monkeypatch.setenv("KIPU_TEST_KEY", KEY)
    of_key = request.param == "key"
    url = f"sqlite:///{tmp_path}/store?encrypt=env:KIPU_TEST_KEY" if of_key else f"jsonl:///{tmp_path}/store"

    async def make() -> None:
        async with await open_manager(url) as manager:
            for name in NAMES:
                await manager.create_session(name)
                await manager.save_event(name, UserMessageEvent(content=f"I am {name}"))

    asyncio.run(make())
    if of_key:
        connection = apsw.Connection(str(tmp_path / "store.keys"))
        connection.execute("DELETE FROM data_keys WHERE session_id = 'lost'")
        connection.close()
    else:
        log = tmp_path / "store" / "lost" / "000001.jsonl"
        log.unlink()
        log.symlink_to(log)
    made = CommandLine(tmp_path, url)
    made.environment["KIPU_TEST_KEY"] = KEY
    return made


def test_it_is_listed(kipu: CommandLine) -> None:
    """`kipu ls` has it beside the others, so that nobody takes it for none (A50, row 73)."""
    assert sorted(kipu.ids()) == sorted(NAMES)
