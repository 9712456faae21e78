"""The tour's chapters. Each runs commands, then reads from the log whether what it told is so."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from typing import Any

from kipu.cli.demo.sample_project import FAULTY_FILE, TEST_COMMAND
from kipu.cli.demo.stage import Stage, running_with
from kipu.events.conversation import ToolResultEvent, ToolStartedEvent
from kipu.events.event import SessionEvent
from kipu.wiring import open_manager

PARKED = 11
SLEEP = "86399.5"  # no other process sleeps for just so long
PANDA = "记住：我们的熊猫叫团团"
STARTED_TIMEOUT_S = 30.0
ENDED_TIMEOUT_S = 10.0
TASK = f"fix the failing test with `{TEST_COMMAND}`"


class Tour:
    """Go through the chapters in order and collect the facts."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.facts: dict[str, Any] = {}

    def run(self) -> dict[str, Any]:
        """Return what was found to be so. Raises: DemoStepError."""
        self.ask_before_running()
        self.allow_and_go_on()
        self.die_in_the_middle()
        self.go_on_after_the_crash()
        self.fork_and_search()
        self.look_at_it()
        return self.facts

    # ---- chapters --------------------------------------------------------------------------------------------------

    def ask_before_running(self) -> None:
        """A task that needs a command: the agent asks before it runs it."""
        stage = self.stage
        stage.chapter("A small project with a failing test. An agent works in it, and asks before it runs anything.")
        before = stage.run([sys.executable, "-B", "-m", "unittest"], shown=TEST_COMMAND, expected=None)
        stage.require(before.exit_code != 0, "the test passes already")
        stage.kipu("run", TASK, "--title", "fix the areas", expected=(PARKED,))
        (session_id,) = self._sessions()
        self.facts |= {"first_session": session_id, "tests_fail_before": True}
        self.facts["asked"] = self._pending()
        stage.require(len(self.facts["asked"]) == 1, "nobody is asked")

    def allow_and_go_on(self) -> None:
        """A person allows it, for this session; the agent goes on and repairs the file."""
        stage, session_id = self.stage, self.facts["first_session"]
        stage.chapter(
            "The turn waits in the log and holds nothing. Allow the command for this session, and let it go on."
        )
        stage.kipu("approvals")
        stage.kipu("approve", self.facts["asked"][0], "--always", "session", "--reason", "it only runs tests")
        stage.kipu("run", "--resume", session_id, "--allow", f"edit_file({FAULTY_FILE})")
        stage.kipu("diff", session_id)
        after = stage.run([sys.executable, "-B", "-m", "unittest"], shown=TEST_COMMAND, expected=None)
        self.facts["tests_pass_after"] = after.exit_code == 0
        stage.require(after.exit_code == 0, "the test still fails")

    def die_in_the_middle(self) -> None:
        """A second session beside the first; its process is killed while a command runs."""
        stage = self.stage
        stage.chapter("A second session beside it. Its process is killed, really, in the middle of a command.")
        process = stage.start("run", f"run `sleep {SLEEP}`", "--yes", "--title", "a long command")
        session_id = asyncio.run(self._started(process))
        self.facts |= {"second_session": session_id, "killed_pid": process.pid, "killed_by": -stage.kill(process)}
        self.facts["command_ended_with_it"] = self._gone()
        stage.kipu("status", session_id)

    def go_on_after_the_crash(self) -> None:
        """Whoever comes next goes on with the open turn: the call is closed as interrupted and never run twice."""
        stage, session_id = self.stage, self.facts["second_session"]
        stage.chapter("Nothing is lost. Going on tells the model that the call was interrupted; it does not run twice.")
        stage.kipu("run", "--resume", session_id)
        events = self._events(session_id)
        results = [event for event in events if isinstance(event, ToolResultEvent)]
        self.facts["interrupted_results"] = sum(event.synthetic == "interrupted" for event in results)
        self.facts["starts_of_the_killed_call"] = sum(isinstance(event, ToolStartedEvent) for event in events)
        stage.require(self.facts["interrupted_results"] == 1, "the interrupted call is not closed")

    def fork_and_search(self) -> None:
        """A fork shares the history; search finds words of any language in every session."""
        stage, session_id = self.stage, self.facts["first_session"]
        stage.chapter("Fork the first session: the history is shared, not copied. Then find words, in any language.")
        said = stage.kipu("fork", session_id, "--title", "another way").output
        (fork,) = set(re.findall(r"sess_\w+", said))
        stage.kipu("run", "--session", fork, PANDA)
        chinese = stage.kipu("search", "熊猫").output
        english = stage.kipu("search", "unittest", "--limit", "3").output
        self.facts |= {"fork": fork, "found_in_chinese": fork in chinese, "found_in_english": session_id in english}
        stage.require(fork in chinese and session_id in english, "the search does not find what was said")

    def look_at_it(self) -> None:
        """What the model is shown, what there is, and that all of it can be read."""
        stage = self.stage
        stage.chapter("What the model is shown, exactly; all sessions; and a check of every record.")
        window = stage.kipu("window", self.facts["second_session"]).output
        self.facts["window_shows_the_interrupted_call"] = "sleep" in window
        stage.kipu("ls")
        stage.kipu("verify")
        self.facts["sessions"] = self._sessions()

    # ---- the log ---------------------------------------------------------------------------------------------------

    def _sessions(self) -> list[str]:
        async def listed() -> list[str]:
            async with await open_manager(self.stage.store_url) as manager:
                return await manager.list_sessions()

        return asyncio.run(listed())

    def _pending(self) -> list[str]:
        from kipu.runtime.approvals import ApprovalDesk

        async def pending() -> list[str]:
            async with await open_manager(self.stage.store_url) as manager:
                return [approval.approval_id for approval in await ApprovalDesk(manager).pending()]

        return asyncio.run(pending())

    def _events(self, session_id: str) -> list[SessionEvent]:
        async def read() -> list[SessionEvent]:
            async with await open_manager(self.stage.store_url) as manager:
                return await (await manager.open(session_id)).get_full_history()

        return asyncio.run(read())

    async def _started(self, process: Any) -> str:
        """Return the new session when a command runs in it. Raises: DemoStepError (the process ended, or began none)."""
        async with await open_manager(self.stage.store_url) as manager:
            known, deadline_s = self.facts["first_session"], time.monotonic() + STARTED_TIMEOUT_S
            while time.monotonic() < deadline_s and process.poll() is None:
                for session_id in await manager.list_sessions():
                    if session_id == known:
                        continue
                    events = await (await manager.open(session_id)).get_full_history()
                    if (
                        any(isinstance(event, ToolStartedEvent) for event in events)
                        and running_with(SLEEP) is not False
                    ):
                        return session_id
                await asyncio.sleep(0.05)
        process.kill()
        process.wait()
        raise self.stage.failure("the second session began no command")

    def _gone(self) -> bool | None:
        """Return whether the killed process's command ended too."""
        deadline_s = time.monotonic() + ENDED_TIMEOUT_S
        while (is_there := running_with(SLEEP)) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        return None if is_there is None else not is_there
