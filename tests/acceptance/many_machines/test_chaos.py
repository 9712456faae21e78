"""Three machines, one server, and everything that happens to them: nothing is lost, doubled, out of order or written by a zombie."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.many_machines.chaos import Chaos, ChaosSize
from tests.acceptance.many_machines.machines import ServerPair
from tests.acceptance.many_machines.troubles import TROUBLES
from tests.acceptance.postgres.cluster import a_pair
from tests.acceptance.runtime.soak import SoakSize

# Most messages are to have a turn of their own; the other policies are there too.
MODES = (*["followup"] * 16, "steer", "collect", "interrupt", "rollback", "reject")
PLANS = (*[""] * 6, "read", "write", "read,look", "write,send", "danger")


async def survived(folder: Path, size: ChaosSize, *, seed: int) -> Chaos:
    """Run it; what is wrong fails the test."""
    with a_pair() as servers:
        chaos = Chaos(ServerPair(*servers), folder, size, seed=seed)
        outcome = await chaos.run()
    assert outcome.problems == [], "\n".join(outcome.problems[:20])
    assert set(chaos.struck) == set(TROUBLES)
    for follower in chaos.followers:
        assert follower.connections >= 3
        assert follower.live >= 20
    return chaos


def sized(
    *,
    messages: int,
    sessions: int,
    senders: int,
    pause_s: float,
    trouble_every_s: float,
    after_s: float,
    lease_ttl_s: float,
) -> ChaosSize:
    """Return a size; as many turns run at once as a machine with a single connection can renew the leases of."""
    soak = SoakSize(
        messages=messages,
        sessions=sessions,
        senders=senders,
        workers=0,  # the machines have them
        kills_after_s=after_s,
        pause_s=pause_s,
        modes=MODES,
        rarities=0.1,
        plans=PLANS,
        lease_wait_s=2 * lease_ttl_s,
        worker_options={"sweep_s": 0.5, "max_turns": 8},
    )
    return ChaosSize(soak, lease_ttl_s=lease_ttl_s, trouble_every_s=trouble_every_s)


async def test_three_machines_in_trouble_answer_or_settle_every_message_once(tmp_path: Path) -> None:
    """Killed, frozen, cut off, slowed and without server in turn, machines keep what they promised (C1, C2, C3, C5, C7, C12, C14, C16)."""
    size = sized(messages=300, sessions=30, senders=6, pause_s=0.2, trouble_every_s=0.8, after_s=5.0, lease_ttl_s=2.0)
    chaos = await survived(tmp_path, size, seed=1)
    assert chaos.outcome.turns["completed"] >= 180


@pytest.mark.long
@pytest.mark.parametrize("seed", [11])
async def test_three_machines_in_trouble_for_twenty_thousand_turns(tmp_path: Path, seed: int) -> None:
    """20 000 turns over 500 sessions in trouble all the while, as the short one (C1, C2, C3, C5, C7, C12, C14, C16)."""
    size = sized(
        messages=25_500, sessions=500, senders=32, pause_s=0.6, trouble_every_s=4.0, after_s=900.0, lease_ttl_s=5.0
    )
    chaos = await survived(tmp_path, size, seed=seed)
    assert sum(chaos.outcome.turns.values()) - chaos.outcome.turns["undone"] >= 20_000
    assert chaos.struck["kill"] >= 40
    assert chaos.struck["freeze"] >= 20
