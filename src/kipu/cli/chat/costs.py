"""What a session has used so far, by its log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kipu.events.turn import TurnFinishedEvent
from kipu.runtime.turns.spending import HELPERS

if TYPE_CHECKING:
    from kipu.manager.session import Session

_COUNTS = ("steps", "input_tokens", "cached_input_tokens", "output_tokens", "reasoning_tokens")


@dataclass(slots=True)
class Used:
    """Sums over turns. `cost_usd` counts what has a price; `unpriced` names the models that have none."""

    turns: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    cost_usd: float = 0.0
    unpriced: set[str] = field(default_factory=set)
    is_measured: bool = True

    def add(self, usage: dict[str, Any] | None) -> None:
        """Add one turn's usage as its last event keeps it, with what its helpers used."""
        self.turns += 1
        self._add(usage)
        helpers = (usage or {}).get(HELPERS)
        if isinstance(helpers, dict):
            self._add(helpers)

    def _add(self, usage: dict[str, Any] | None) -> None:
        for name in _COUNTS:
            value = (usage or {}).get(name)
            if isinstance(value, int):
                self.counts[name] = self.counts.get(name, 0) + value
        cost = (usage or {}).get("cost_usd")
        self.cost_usd += cost if isinstance(cost, int | float) else 0.0
        unpriced = (usage or {}).get("unpriced")
        self.unpriced.update(str(name) for name in unpriced) if isinstance(unpriced, list) else None
        self.is_measured = self.is_measured and (usage or {}).get("measured") is not False

    @property
    def money(self) -> str:
        """Return the cost in words: exact, at least, or unknown."""
        if not self.unpriced:
            return f"${self.cost_usd:.4f}"
        named = f"no price is known for {', '.join(sorted(self.unpriced))}"
        return f"at least ${self.cost_usd:.4f} ({named})" if self.cost_usd else f"cost unknown ({named})"

    def line(self) -> str:
        """Return it in one line."""
        shown, said = self.counts.get("input_tokens", 0), self.counts.get("output_tokens", 0)
        cached = self.counts.get("cached_input_tokens", 0)
        parts = [
            self.money,
            f"{shown:,} tokens shown" + (f" ({cached:,} cached)" if cached else ""),
            f"{said:,} said",
            f"{self.counts.get('steps', 0)} model calls",
        ]
        return " · ".join([*parts, *([] if self.is_measured else ["not all of it was measured"])])

    def to_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "turns": self.turns,
            **self.counts,
            "cost_usd": round(self.cost_usd, 9),
            "unpriced": sorted(self.unpriced),
            "measured": self.is_measured,
        }


@dataclass(slots=True)
class SessionCosts:
    """The last turn, and all of the session; undone turns count, for they were paid for."""

    last: Used | None = None
    total: Used = field(default_factory=Used)

    def to_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return {"turn": self.last.to_json() if self.last else None, "session": self.total.to_json()}


async def session_costs(session: Session) -> SessionCosts:
    """Return what the turns in a session's log have used."""
    costs = SessionCosts()
    async for event in session.events():
        if isinstance(event, TurnFinishedEvent):
            costs.last = Used()
            costs.last.add(event.usage)
            costs.total.add(event.usage)
    return costs


def cost_lines(costs: SessionCosts) -> list[str]:
    """Return it for people."""
    if costs.last is None:
        return ["no turn has ended yet"]
    return [f"last turn: {costs.last.line()}", f"session: {costs.total.line()} · {costs.total.turns} turns"]
