"""The loop: window → model → append → tools → append, until the model has nothing more to ask (architecture §7)."""

from __future__ import annotations

import asyncio

from kipu.errors import ModelError, TurnLimitError, TurnStoppedError
from kipu.events.boundary import NoteEvent
from kipu.manager.turn import Outcome
from kipu.runtime.tools.toolbox import Toolbox
from kipu.runtime.turns.boundary import Boundary
from kipu.runtime.turns.compaction import Compaction
from kipu.runtime.turns.model_step import ModelStep
from kipu.runtime.turns.tool_step import ToolStep
from kipu.runtime.turns.turn_budget import TurnBudget
from kipu.runtime.turns.turn_control import HANDOVER
from kipu.runtime.turns.turn_run import TurnRun
from kipu.session.turn_story import HANDED_OVER_NOTE


class AgentLoop:
    """Run one turn, new or taken up again: what the log says of it decides where it goes on (C14)."""

    def __init__(
        self,
        *,
        model: ModelStep,
        tools: ToolStep,
        boundary: Boundary,
        compaction: Compaction,
        budget: TurnBudget,
        toolbox: Toolbox,
    ) -> None:
        self._model = model
        self._tools = tools
        self._boundary = boundary
        self._compaction = compaction
        self._budget = budget
        self._toolbox = toolbox

    async def run(self, run: TurnRun) -> None:
        """Go on until the model has answered, a person is asked, or it has been enough.

        Raises: LeaseLostError, StoreError. Faults of models and tools are events, and end nothing but the turn.
        """
        try:
            await self._steps(run)
        except TurnStoppedError as stopped:
            if stopped.mode == HANDOVER:
                await self._hand_over(run)
            else:
                await self._end(run, "cancelled" if stopped.mode == "stop" else "interrupted")
        except TurnLimitError as limit:
            await self._end(run, "failed", error=f"{limit.reason} [{limit.code}]")
        except ModelError as error:
            await self._end(run, "failed", error=f"{error} [{error.code}]")
        except asyncio.CancelledError:
            await self._tools.close(run)
            raise
        finally:
            run.turn.usage = self._budget.usage(run)

    async def _steps(self, run: TurnRun) -> None:
        await run.catch_up()
        while not run.story.is_answered:
            await self._budget.check(run)
            if not await self._tools.settle(run):
                return
            await self._budget.check(run)  # calls take time too
            await self._boundary.cross(run)
            await self._compaction.at_boundary(run)
            await self._model.ask(run, tools=self._toolbox.definitions())

    async def _hand_over(self, run: TurnRun) -> None:
        """Leave the turn to another process. Having been ended in order is said where it would count as a try in vain."""
        run.turn.leave_open()
        if run.story.resumed_in_vain:
            await run.add(NoteEvent(kind=HANDED_OVER_NOTE, data={"turn_id": run.turn.id}))

    async def _end(self, run: TurnRun, outcome: Outcome, *, error: str | None = None) -> None:
        """Close what is open, so that the history is valid whatever ended the turn."""
        await self._tools.close(run)
        run.turn.outcome, run.turn.error = outcome, error
