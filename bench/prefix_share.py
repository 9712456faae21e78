"""C9: over 1 000 turns at least 90 % of what a model is shown is the beginning of what it was shown before.

    python -m bench.prefix_share [--quick] [--json]

Counted in bytes of canonical JSON, by whole messages, so a message that changed at all counts as new. The session is closed
and opened again four times on the way. The hardest case adds just under 3 % of the budget with each call.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.arena import Contestant
from bench.report import Bound, Figure, Metric, parser, run_figure
from bench.workload import text_of

METRICS = [
    Metric("cached_share", "cached share", "{:.3f}"),
    Metric("jumps", "jumps", "{:.0f}"),
    Metric("calls", "model calls", "{:.0f}"),
    Metric("most_added_share", "most added by a call", "{:.4f}"),
    Metric("prompt_mb", "prompts MB", "{:.0f}"),
]
# name → budget in tokens, budget in messages, bytes of user, call, result, answer
CASES = {
    "token budget, just under 3 % a call": (20_000, 100_000, (1_550, 520, 2_900, 2_060)),
    "token budget, about 1.5 % a call": (20_000, 100_000, (780, 260, 1_450, 1_030)),
    "message budget of 200": (10_000_000, 200, (200, 300, 1_000, 500)),
}


@dataclass
class Share:
    """Compare each prompt with the one before."""

    before: list[bytes]
    total: int = 0
    cached: int = 0
    jumps: int = 0
    tokens: int = 0

    def take(self, messages: list[dict]) -> None:
        """Count how much of this prompt the one before began with."""
        now = [json.dumps(message, sort_keys=True).encode() for message in messages]
        same = 0
        while same < min(len(now), len(self.before)) and now[same] == self.before[same]:
            same += 1
        self.total += sum(map(len, now))
        self.cached += sum(map(len, now[:same]))
        self.jumps += same < len(self.before)
        self.before = now


def measure(directory: Path, *, case: str, turns: int) -> dict[str, float]:
    """Run a conversation of two model calls a turn and return the shares."""
    return asyncio.run(_measure(directory, case=case, turns=turns))


async def _measure(directory: Path, *, case: str, turns: int) -> dict[str, float]:
    from bench.kipu_store import store_url
    from kipu import WindowPolicy, open_manager

    max_tokens, max_messages, sizes = CASES[case]
    policy = WindowPolicy(max_tokens=max_tokens, max_messages=max_messages)
    url = store_url("sqlite", directory, durability="os")
    share, rng = Share([]), random.Random(3)
    added: list[int] = []
    session_id, left = None, turns
    while left > 0:
        async with await open_manager(url, policy=policy) as manager:
            session_id = session_id or await manager.create_session()
            session = await manager.open(session_id)
            for _ in range(min(left, max(1, turns // 5))):
                await _turn(session, share, added, sizes=sizes, rng=rng)
                left -= 1
    return {
        "cached_share": share.cached / share.total,
        "jumps": share.jumps,
        "calls": turns * 2,
        "most_added_share": max(added) / max_tokens,
        "prompt_mb": share.total / 1e6,
    }


async def _turn(session, share: Share, added: list[int], *, sizes: tuple[int, ...], rng: random.Random) -> None:
    from kipu import AgentMessageEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent

    user, call, result, answer = (text_of(size, rng) for size in sizes)
    call_id = f"call_{share.total}"
    # What a call adds is the answer of the turn before with this question, or the call with its result.
    await session.add_event(UserMessageEvent(content=user))
    await _call(session, share, added)
    await session.add_event(ToolCallEvent(tool_name="shell", tool_call_id=call_id, tool_input={"command": call}))
    await session.add_event(ToolResultEvent(tool_call_id=call_id, result=result))
    await _call(session, share, added)
    await session.add_event(AgentMessageEvent(content=answer))


async def _call(session, share: Share, added: list[int]) -> None:
    rendering = await session.render("neutral")
    share.take(rendering.messages)
    added.append(max(0, rendering.tokens - share.tokens))
    share.tokens = rendering.tokens


def figure(options: argparse.Namespace) -> Figure:
    """Return the cases and bounds of C9."""
    turns = 100 if options.quick else 1_000
    contestants = [
        Contestant(case, "bench.prefix_share:measure", {"case": case, "turns": turns}, "kipu") for case in CASES
    ]
    bounds = [Bound(f"cached share, {case}", case, "cached_share", 0.9, at_least=True) for case in CASES]
    bounds += [Bound("hardest case adds at most 3 % a call", next(iter(CASES)), "most_added_share", 0.03)]
    return Figure(
        "prefix_share", f"C9: share of prompts that is a cached prefix, {turns} turns", contestants, METRICS, bounds
    )


if __name__ == "__main__":
    options = parser(__doc__ or "").parse_args()
    options.rounds = options.rounds or 1  # nothing is timed: every round gives the same
    sys.exit(run_figure(figure, options))
