"""The chat itself: which session and model it has, and what happens with each line."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from kipu.cli.chat.commands import COMMANDS, run_command
from kipu.cli.chat.standing import show_standing
from kipu.cli.exit_code import ExitCode
from kipu.errors import KipuError, ModelError, StoreError
from kipu.events.content import text_of
from kipu.ports.model import ModelEvent, ReasoningDelta, TextDelta
from kipu.runtime.chat_turn import ChatTurn, TurnReport, policy_for, receive_message
from kipu.runtime.models.loader import find_model, open_model

if TYPE_CHECKING:
    from kipu.cli.chat.lines import LineSource
    from kipu.cli.chat.screen import Screen
    from kipu.cli.settings import Settings
    from kipu.manager.manager import SessionManager
    from kipu.manager.session import Session
    from kipu.ports.model import ModelClient
    from kipu.session.key import SessionKey

BUSY_WAIT_S = 20.0  # longer than a lease lives: whoever died has let go by then


class Conversation:
    """Talk in one session at a time, and switch between many. A new one is made only when its first message comes."""

    def __init__(
        self,
        manager: SessionManager,
        screen: Screen,
        *,
        settings: Settings,
        key: SessionKey,
        model_name: str | None,
    ) -> None:
        self.manager = manager
        self.screen = screen
        self.key = key
        self.session: Session | None = None
        self.listed: list[str] = []  # what /sessions showed last, for /switch by number
        self._settings = settings
        self._asked_model = model_name
        self._model: ModelClient | None = None
        self._is_over = False
        self._code = ExitCode.OK

    @property
    def model(self) -> ModelClient:
        """Return the model in use."""
        if self._model is None:
            self._take_model(self._asked_model)
            return self.model
        return self._model

    # ---- beginning and ending --------------------------------------------------------------------------------------

    async def begin(self, session: Session | None) -> None:
        """Choose the model, and show where a resumed session stands."""
        await self._open_model(session)
        if session is not None:
            await self.enter(session)
        elif self.screen.is_terminal:
            self.screen.say(f"new session for {self.key}; /help lists commands, Ctrl-D ends")

    async def enter(self, session: Session) -> None:
        """Go on with this session."""
        self.session = session
        await self._fit_window()
        await show_standing(self.screen, session)
        if self._asked_model is not None and session.head.metadata.get("model") != self.model.name:
            await session.set_metadata(model=self.model.name)

    async def close(self) -> None:
        """Give back the model."""
        if self._model is not None:
            await self._model.aclose()

    def quit(self) -> None:
        """End after this line."""
        self._is_over = True

    def completions(self, text: str) -> list[tuple[str, str]]:
        """Return the commands that begin so, with what they do."""
        return [(f"/{name}", command.meaning) for name, command in COMMANDS.items() if f"/{name}".startswith(text)]

    # ---- the model -------------------------------------------------------------------------------------------------

    async def _open_model(self, session: Session | None) -> None:
        kept = session.head.metadata.get("model") if session is not None else None
        if self._asked_model is None and isinstance(kept, str):
            try:
                self._take_model(kept)
                return
            except KipuError as error:
                self.screen.say(f"the session's model {kept} cannot be used: {error}", style="yellow")
        self._take_model(self._asked_model)

    def _take_model(self, name: str | None) -> None:
        choice = find_model(name, environment=os.environ, config=self._settings.for_models())
        model = open_model(choice)
        self._model = model
        described = model.describe()
        self.screen.say(f"{described.name} ({choice.why})")
        if described.notice:
            self.screen.say(described.notice)

    async def change_model(self, name: str) -> None:
        """Let another model answer from now on, and keep that with the session (B37, C28)."""
        before = self.model
        self._take_model(name)
        self._asked_model = name
        await before.aclose()
        if self.session is not None:
            await self.session.set_metadata(model=self.model.name)
            await self._fit_window()

    async def _fit_window(self) -> None:
        if self.session is None:
            return
        policy = policy_for(self.model, policy=self.manager.policy)
        if self.session.policy != policy:
            await self.session.set_policy(policy)

    # ---- sessions --------------------------------------------------------------------------------------------------

    async def ensure_session(self) -> Session:
        """Return the session, made now if there is none yet."""
        if self.session is None:
            self.session = await self.manager.new_session(self.key)
            if self._asked_model is not None:
                await self.session.set_metadata(model=self.model.name)
            await self._fit_window()
            self.screen.say(f"session {self.session.session_id}")
        return self.session

    # ---- lines -----------------------------------------------------------------------------------------------------

    async def talk(self, lines: LineSource) -> ExitCode:
        """Handle line after line until they end; return how it went."""
        async for line in lines:
            await self.handle(line)
            if self._is_over or (self._code is ExitCode.INTERRUPTED and not lines.is_interactive):
                break
        return ExitCode.OK if lines.is_interactive else self._code

    async def handle(self, line: str) -> None:
        """Answer a message or run a command; what goes wrong is said, and the chat goes on."""
        text = line.strip()
        if not text:
            return
        try:
            if text.startswith("/") and not text.startswith("//"):
                await run_command(self, text[1:])
            else:
                await self.say(line[1:] if text.startswith("//") else line)
        except StoreError:
            raise
        except KipuError as error:
            self._complain(error)

    async def say(self, text: str) -> None:
        """Store a message, then have it answered."""
        session = await self.ensure_session()
        seq = await receive_message(session, text, channel="cli", sender_id=self.manager.principal.id)
        await self.answer(seq)

    async def answer(self, seq: int | None = None) -> None:
        """Answer what waits, up to the message `seq`; without one and with nothing waiting, the window as it stands."""
        session = await self.ensure_session()
        turn = ChatTurn(session, self.model, on_event=self._show, wait_s=BUSY_WAIT_S)
        answered = False
        with _CtrlC(turn) as ctrl_c:
            async for report in turn.run_waiting(until=seq):
                answered = True
                self._finish(session, report)
            if seq is None and not answered:
                self._finish(session, await turn.run())
        if seq is not None and not answered and (elsewhere := await turn.answer_to(seq)) is not None:
            self.screen.piece(text_of(elsewhere.answer.content) if elsewhere.answer is not None else "")
            self._finish(session, elsewhere)
        if ctrl_c.pressed:
            self._code = ExitCode.INTERRUPTED

    def _show(self, event: ModelEvent) -> None:
        if isinstance(event, TextDelta):
            self.screen.piece(event.text)
        elif isinstance(event, ReasoningDelta):
            self.screen.thought(event.text)

    def _finish(self, session: Session, report: TurnReport) -> None:
        answer = report.answer
        record: dict[str, Any] = {
            "session_id": session.session_id,
            "turn_id": report.turn_id,
            "outcome": report.outcome,
            "seq": answer.seq if answer else None,
            "answer": answer.content if answer else None,
            "model": self.model.name,
            "usage": answer.usage if answer else None,
            "error": {"code": report.error.code, "message": str(report.error)} if report.error else None,
        }
        self.screen.end_answer(record)
        if report.outcome == "cancelled":
            self._code = ExitCode.INTERRUPTED
            self.screen.say(
                "interrupted; what had come is kept" if answer else "interrupted before anything came", style="yellow"
            )
        if report.error is not None:
            self._complain(report.error)
            self.screen.say("your message is kept: /retry asks again, /model NAME asks another model")

    def _complain(self, error: KipuError | ModelError) -> None:
        self._code = ExitCode.FAILURE
        self.screen.say(f"error: {error} [{error.code}]", style="red")


class _CtrlC:
    """Let Ctrl-C end the running answer and not the chat; a second one ends the turn whatever it waits for.

    A plain handler, and not the loop's: one that the loop delivers later would be lost when the turn ends meanwhile.
    """

    def __init__(self, turn: ChatTurn) -> None:
        self._turn = turn
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._before: Any = None
        self._is_set = False
        self.pressed = 0

    def _press(self, *_signal: object) -> None:
        self.pressed += 1
        self._loop.call_soon_threadsafe(self._stop, self.pressed)

    def _stop(self, pressed: int) -> None:
        self._turn.interrupt()
        if pressed > 1 and self._task is not None:
            self._task.cancel()

    def __enter__(self) -> Self:
        with suppress(ValueError):  # not the main thread: nobody presses keys here
            self._before = signal.signal(signal.SIGINT, self._press)
            self._is_set = True
        return self

    def __exit__(self, *_error: object) -> None:
        if self._is_set:
            signal.signal(signal.SIGINT, self._before)
