"""`kipu chat` on a session whose turn runs in a worker elsewhere, on a real terminal (A9, B61, C12)."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kipu import open_manager
from kipu.events.conversation import AgentMessageEvent, UserMessageEvent
from kipu.events.turn import TurnFinishedEvent, TurnStartedEvent
from tests.acceptance.live.test_control_lane import told, until, workers
from tests.acceptance.test_cli_chat_terminal import Terminal
from tests.servers import fresh_schema, postgres_url
from tests.unit.cli.command_line import KIPU, CommandLine

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


@pytest.fixture(params=["sqlite", "postgresql"])
def kipu(request: pytest.FixtureRequest, tmp_path: Path) -> CommandLine:
    is_file = request.param == "sqlite"
    return CommandLine(tmp_path, f"sqlite:///{tmp_path / 's.db'}" if is_file else fresh_schema(postgres_url()))


@pytest.fixture
def terminals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


async def test_chat_shows_a_turn_that_runs_elsewhere_and_queues_what_is_typed(
    kipu: CommandLine, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, terminals: list[Terminal]
) -> None:
    """The answer of a worker is seen as it streams, a line waits for it, Esc stops it there, and one turn comes after the other."""
    url = kipu.process_environment()["KIPU_STORE"]
    async with await open_manager(url) as manager, workers(url, tmp_path, count=1):
        session = await told(manager, "please speak")
        first = await until(session, TurnStartedEvent)
        command = shlex.join([*KIPU, "chat", "--resume", session.session_id])
        place = tmp_path_factory.mktemp("tmux") / "socket"
        terminal = Terminal(place, command, environment=kipu.process_environment(), directory=kipu.home)
        terminals.append(terminal)
        terminal.wait_for("a turn runs in another process")
        terminal.wait_for("word0")
        terminal.type("and then shortly")
        terminal.wait_for("queued (1)")
        terminal.keys("Escape")
        terminal.wait_for("interrupted; what had come is kept")
        assert (await until(session, TurnFinishedEvent)).turn_id == first.turn_id
        events = [event async for event in session.events()]
        answer = next(event for event in events if isinstance(event, AgentMessageEvent))
        assert str(answer.content).startswith("word00000 word00001 ")
        assert terminal.screen().count("word00003") == 1
        typed = [event for event in events if isinstance(event, UserMessageEvent)][-1]
        assert typed.content == "and then shortly"
