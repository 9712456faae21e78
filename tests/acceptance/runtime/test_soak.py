"""Many senders, every policy, and workers that are killed all the while: nothing is lost, doubled or out of order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.runtime.soak import Outcome, Soak, SoakSize
from tests.servers import fresh_schema, postgres_url
from tests.valkey_servers import fresh_prefix, valkey_url

STORES = {"sqlite": "sqlite:///{}/s.db", "jsonl": "jsonl:///{}/sessions"}
SMALL = [("sqlite", 1), ("sqlite", 2), ("jsonl", 1), ("postgresql", 2), ("valkey", 2)]


def url_of(kind: str, tmp_path: Path) -> str:
    """Return a store of a kind that nobody has used."""
    if kind == "postgresql":
        return fresh_schema(postgres_url())
    return fresh_prefix(valkey_url()) if kind == "valkey" else STORES[kind].format(tmp_path)


async def soaked(tmp_path: Path, kind: str, size: SoakSize, *, seed: int) -> Outcome:
    outcome = await Soak(url_of(kind, tmp_path), tmp_path / "book", size, seed=seed).run()
    assert outcome.problems == [], "\n".join(outcome.problems[:20])
    return outcome


@pytest.mark.parametrize(("kind", "workers"), SMALL)
async def test_soak_with_kills_answers_or_settles_every_message_once(tmp_path: Path, kind: str, workers: int) -> None:
    """Each acknowledged message is answered or settled once, in the order of its policy, whatever dies (A2, A39, C5, C12, C14)."""
    size = SoakSize(messages=100, sessions=20, senders=8, workers=workers, kill_every_s=0.8, pause_s=0.15)
    outcome = await soaked(tmp_path, kind, size, seed=workers)
    assert outcome.kills >= 2
    assert outcome.turns["completed"] >= 30


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "workers"), [("sqlite", 1), ("sqlite", 2), ("jsonl", 1), ("jsonl", 2), ("postgresql", 3), ("valkey", 3)]
)
async def test_soak_of_ten_thousand_messages_with_a_kill_every_second(tmp_path: Path, kind: str, workers: int) -> None:
    """10 000 messages of 32 senders to 500 sessions, SIGKILL every second: as the small one (A2, A39, C5, C12, C14)."""
    size = SoakSize(messages=10_000, sessions=500, senders=32, workers=workers, kills_after_s=900.0)
    outcome = await soaked(tmp_path, kind, size, seed=workers)
    assert outcome.kills >= 60
    assert outcome.turns["completed"] >= 3_000
    assert {"merged", "dropped", "expired", "superseded", "cancelled"} <= set(outcome.settled)
