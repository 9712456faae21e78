"""A search beside a session that cannot be read: the others are found, whichever was indexed when."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from kipu.events.conversation import UserMessageEvent
from kipu.manager.lifecycle.session_archives import SessionArchives
from kipu.security.key_file import key_line
from kipu.wiring import open_manager


def lose_key(folder: Path) -> None:
    """Take the session's data key out of the vault, as an older copy of it would."""
    connection = apsw.Connection(str(folder / "store.keys"))
    connection.execute("DELETE FROM data_keys WHERE session_id = 'bad'")
    connection.close()


@pytest.mark.parametrize("is_indexed", [False, True], ids=["not indexed", "indexed"])
@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
async def test_one_session_without_its_key_keeps_no_other_from_being_found(
    kind: str, is_indexed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the others say is found, and a search is no error because of it (B60, C16)."""
    monkeypatch.setenv("KIPU_TEST_KEY", key_line(bytes(range(32))).strip())
    url = f"{kind}:///{tmp_path}/store?encrypt=env:KIPU_TEST_KEY"
    async with await open_manager(url) as manager:
        for name in ("good", "bad", "later"):
            await manager.create_session(name)
            await manager.save_event(name, UserMessageEvent(content=f"needle of {name}"))
        if is_indexed:
            assert len((await manager.search("needle")).items) == 3
    lose_key(tmp_path)
    async with await open_manager(url) as manager:
        found = (await manager.search("needle")).items
    assert {hit.session_id for hit in found if hit.snippet.startswith("needle")} == {"good", "later"}


async def test_one_session_whose_file_cannot_be_read_keeps_no_other_from_being_found(tmp_path: Path) -> None:
    """So it is where the medium does not give what came back from an archive (B60, C16)."""
    url = f"jsonl:///{tmp_path}/store"
    async with await open_manager(url) as manager:
        for name in ("good", "bad", "later"):
            await manager.create_session(name)
            await manager.save_event(name, UserMessageEvent(content=f"needle of {name}"))
        await SessionArchives(manager).archive("bad")
        await SessionArchives(manager).unarchive("bad")
    returned = tmp_path / "store" / "bad" / "returned" / "000001.jsonl"
    returned.unlink()
    returned.symlink_to(returned)
    async with await open_manager(url) as manager:
        found = (await manager.search("needle")).items
    assert {hit.session_id for hit in found} == {"good", "later"}
