"""Half a character or a NUL in what is asked for: found as it was kept, or refused by a typed error, in every store alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kipu.errors import BlobNotFoundError, InputError, InvalidSessionIdError
from kipu.events.conversation import UserMessageEvent
from kipu.manager.lifecycle.session_archives import SessionArchives
from kipu.ports.memory import Space
from kipu.ports.principal import Principal
from kipu.wiring import open_manager, open_memory
from tests.servers import fresh_schema, postgres_url
from tests.valkey_servers import fresh_prefix, valkey_url

ODD = ("a\ud800b", "a\udcffb", "a\0b", 2**70, {"x": "\ud800"}, {1: b"\xff"})


@pytest.fixture(params=["sqlite", "jsonl", "postgresql", "valkey"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty store."""
    if request.param == "postgresql":
        return fresh_schema(postgres_url())
    if request.param == "valkey":
        return fresh_prefix(valkey_url())
    return {"sqlite": f"sqlite:///{tmp_path}/s.db", "jsonl": f"jsonl:///{tmp_path}/s"}[request.param]


async def test_what_was_entered_is_found_whatever_is_in_it(url: str) -> None:
    """Values are asked for as heads keep them: tags, settings and their names (B16, B26)."""
    async with await open_manager(url) as manager:
        session = await manager.get_or_create("cli:odd")
        for value in ODD:
            asked: list[dict[str, Any]] = [{"wanted": value}]
            await session.set_metadata(wanted=value)
            if isinstance(value, str):
                names: dict[str, Any] = {value: "x"}
                await session.set_metadata(tags=[value], **names)
                asked += [{"tags": [value]}, {value: "x"}]
            for criteria in asked:
                assert await manager.list_sessions(criteria) == [session.session_id], criteria
                assert await manager.list_sessions({**criteria, "owner": "a\ud800b"}) == []
                assert await manager.list_sessions({**criteria, "key_prefix": "a\0\ud800b"}) == []


async def test_a_delivery_with_half_a_character_in_its_id_is_told_apart(url: str) -> None:
    """It is kept once, and one whose id differs in that half is another message (C4)."""
    async with await open_manager(url) as manager:

        async def arrives(message_id: str) -> bool:
            message = UserMessageEvent(content="hello", channel="web", source_message_id=message_id)
            return (await manager.receive("web:1", message)).duplicate

        assert [await arrives(each) for each in ("m\ud800", "m\ud800", "m\ud801", "m%uD800")] == [
            False,
            True,
            False,
            False,
        ]


async def test_a_fact_with_half_a_character_is_kept_as_a_log_keeps_it(url: str) -> None:
    """What a person enters is kept with the character that stands for it (B16)."""
    async with await open_manager(url) as manager:
        memory = open_memory(manager, url)
        fact = await memory.add(
            Space("", "local", "user", "local"), "the mark is a\ud800b 1", principal=Principal.local()
        )
        assert fact.text == "the mark is a\ufffdb 1"
        await memory.store.close()


@pytest.mark.parametrize("name", ["a\udcffb", "../x", "a" * 300, "CON"])
async def test_an_id_that_cannot_be_is_refused_wherever_one_is_named(url: str, name: str) -> None:
    """Searching within, archiving and bringing back refuse it as opening does; a big value of no digest is not there (A21, C19)."""
    async with await open_manager(url) as manager:
        session = await manager.get_or_create("cli:odd")
        archives = SessionArchives(manager)
        for asked in (
            manager.open(name),
            manager.search("words", session_id=name),
            archives.archive(name),
            archives.unarchive(name),
        ):
            with pytest.raises(InvalidSessionIdError):
                await asked
        with pytest.raises(BlobNotFoundError):
            await session.blob(name)


@pytest.mark.parametrize("name", ["a\ud800b", "a\0b"])
def test_nobody_has_a_name_that_nothing_can_keep(name: str) -> None:
    """What such a principal made would be kept under another name, and be lost to them (A20)."""
    with pytest.raises(InputError):
        Principal(name)
    with pytest.raises(InputError):
        Principal("ada", tenant=name)
