"""A pair under encryption: what its spool holds is sealed with the pair's keys, and is read and merged with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kipu.errors import EncryptionError, StoreUrlError
from kipu.events.conversation import UserMessageEvent
from kipu.security.key_file import key_line
from kipu.wiring import open_manager, open_store


def _move(primary: Path, to: Path) -> None:
    for path in primary.parent.glob(f"{primary.name}*"):
        if not path.name.endswith((".keys", ".archive")):
            path.rename(to.with_name(path.name.replace(primary.name, to.name)))


@pytest.mark.parametrize("chain", ["", "chain=on&"], ids=["sealed", "chained"])
async def test_sealed_spool_is_opened_again_and_merged(
    chain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that begins while the spool holds sealed sessions reads them, and merges them (A49, C20)."""
    monkeypatch.setenv("KIPU_TEST_KEY", key_line(bytes(range(32))).strip())
    primary = tmp_path / "k.db"
    url = f"sqlite:///{primary}?encrypt=env:KIPU_TEST_KEY&{chain}fallback=jsonl:///{tmp_path}/spool"
    async with await open_manager(url) as manager:
        before = await manager.create_session()
        _move(primary, tmp_path / "away.db")  # from here on it refuses
        session_id = await manager.create_session()
        await manager.save_event(session_id, UserMessageEvent(content="needle"))
    assert (tmp_path / "spool" / session_id).is_dir()
    assert not any(b"needle" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    _move(tmp_path / "away.db", primary)
    async with await open_manager(url) as manager:
        assert sorted(await manager.list_sessions()) == sorted([before, session_id])
        window = await (await manager.open(session_id)).get_context_for_llm()
        assert [message["content"] for message in window] == ["needle"]
        assert await manager.store.verify() == []
    assert not (tmp_path / "spool" / session_id).exists()


async def test_sealed_pair_is_opened_while_its_primary_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As without keys, the spool takes over and is read; but nothing is begun without the vault there was (A49, C20)."""
    monkeypatch.setenv("KIPU_TEST_KEY", key_line(bytes(range(32))).strip())
    primary, vault = tmp_path / "k.db", tmp_path / "k.db.keys"
    url = f"sqlite:///{primary}?encrypt=env:KIPU_TEST_KEY&fallback=jsonl:///{tmp_path}/spool"
    await (await open_store(url)).close()
    primary.rename(tmp_path / "away.db")
    primary.symlink_to(primary)  # it may hold something, and cannot be opened
    async with await open_manager(url) as manager:
        session_id = await manager.create_session()
    async with await open_manager(url) as manager:
        await manager.save_event(session_id, UserMessageEvent(content="needle"))
    vault.rename(tmp_path / "elsewhere")
    with pytest.raises(EncryptionError):
        await open_store(url)
    assert not vault.exists()
    (tmp_path / "elsewhere").rename(vault)
    primary.unlink()
    (tmp_path / "away.db").rename(primary)
    async with await open_manager(url) as manager:
        window = await (await manager.open(session_id)).get_context_for_llm()
        assert [message["content"] for message in window] == ["needle"]


async def test_fallback_with_keys_of_its_own_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that the pair would not use are not taken as if it did: nothing would be sealed with them (C20)."""
    monkeypatch.setenv("KIPU_TEST_KEY", key_line(bytes(range(32))).strip())
    pair = f"sqlite:///{tmp_path}/k.db?fallback=jsonl:///{tmp_path}/spool"
    with pytest.raises(StoreUrlError, match="before fallback="):
        await open_store(f"{pair}?encrypt=env:KIPU_TEST_KEY")
    assert list(tmp_path.iterdir()) == []
    await (await open_store(f"jsonl:///{tmp_path}/spool?encrypt=env:KIPU_TEST_KEY")).close()
    with pytest.raises(StoreUrlError, match="before fallback="):
        await open_store(pair)


async def test_fallback_of_another_kind_is_refused_before_it_is_made(tmp_path: Path) -> None:
    """A wrong word in a URL makes no file (A49)."""
    with pytest.raises(StoreUrlError, match="jsonl"):
        await open_store(f"sqlite:///{tmp_path}/k.db?fallback=sqlite:///{tmp_path}/other.db")
    assert list(tmp_path.iterdir()) == []
