"""The chat itself: which session it is in, and what happens with each line."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kipu.cli.chat.answering import Answering
from kipu.cli.chat.chat_models import ChatModels
from kipu.cli.chat.ctrl_c import CtrlC
from kipu.cli.chat.elsewhere import Elsewhere
from kipu.cli.chat.lines import CTRL_C_AGAIN, LineReader
from kipu.cli.chat.place_notices import PlaceNotices
from kipu.cli.chat.proposal_commands import tell_proposals
from kipu.cli.chat.questions import pending_question
from kipu.cli.chat.served import Served
from kipu.cli.chat.standing import show_standing
from kipu.cli.chat.turn_view import TurnEnd, TurnView
from kipu.cli.chat.waiting import Waiting
from kipu.cli.chat.workplace import Place, give_place
from kipu.cli.exit_code import ExitCode
from kipu.errors import InputError, KipuError, StoreError
from kipu.runtime.live.watch import SessionWatch
from kipu.runtime.messages.inbound import InboundEvent
from kipu.runtime.turns.turn_run import read_story

if TYPE_CHECKING:
    from kipu.cli.chat.lines import LineSource
    from kipu.cli.chat.screen import Screen
    from kipu.cli.invocation import Invocation
    from kipu.manager.manager import SessionManager
    from kipu.manager.session import Session
    from kipu.runtime.runtime import Runtime
    from kipu.session.key import SessionKey

CHANNEL = "cli"
_CODE = re.compile(r"\[(\w+)\]$")


class Conversation:
    """Talk in one session at a time, and switch between many; turns of those left behind go on.

    A new session is made only when its first message comes.
    """

    def __init__(
        self,
        manager: SessionManager,
        screen: Screen,
        *,
        invocation: Invocation,
        key: SessionKey,
        models: ChatModels,
        served: Served,
        place: Place,
    ) -> None:
        self.manager = manager
        self.screen = screen
        self.invocation = invocation
        self.key = key
        self.models = models
        self.served = served
        self.place = place
        self.session: Session | None = None
        self.view: TurnView | None = None
        self.listed: dict[str, str] = {}  # what /sessions showed last, ids and titles, for /switch
        self.root: Path | None = None  # for the completion of files
        self.answering = Answering(self)
        self._elsewhere = Elsewhere(self)
        self._watching: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.waiting = Waiting(self)
        self.notices = PlaceNotices(self)
        self.is_over = False
        self.code = ExitCode.OK
        self._runtime: Runtime | None = None

    @property
    def runtime(self) -> Runtime:
        """Return what runs the turns."""
        if self._runtime is None:
            raise RuntimeError("the chat has not begun")
        return self._runtime

    # ---- beginning and ending --------------------------------------------------------------------------------------

    async def begin(self, runtime: Runtime, session: Session | None) -> None:
        """Choose the model, and show where a resumed session stands."""
        self._runtime = runtime
        kept = session.head.metadata.get("model") if session is not None else None
        self.models.announce(kept if isinstance(kept, str) else None, say=self.screen.say)
        self._elsewhere.begin()
        self.spawn(tell_proposals(self))
        if session is not None:
            await self.enter(session)
        elif self.screen.is_terminal:
            self.screen.say(f"new session for {self.key}; /help lists commands, Ctrl-D ends")
            self.root = None if self.place.kind == "private" else self.place.path
            self.notices.tell_project(self.place.path)

    async def enter(self, session: Session) -> None:
        """Go on with this session."""
        runs = await self.notices.where_it_runs(session)
        await self._watch(session, runs=runs is not None)
        asked = await self.runtime.desk.pending(session_id=session.session_id)
        await show_standing(self.screen, session, asked=len(asked), runs=runs)
        await self.notices.tell_place(session)
        if self.models.asked is not None and session.head.metadata.get("model") != self.models.asked:
            await session.set_metadata(model=self.models.asked)
        if self.view is not None and self.view.turn is not None and self.view.is_parked:
            self.served.go_on(session.session_id)  # a decision may come from anywhere
            for approval in asked:
                self.view.questions.setdefault(approval.approval_id, pending_question(approval))
            for question in list(self.view.questions.values()):
                self.view.ask(question)

    async def leave(self) -> None:
        """Stop watching, and say what stays open."""
        self.served.end()
        await self._elsewhere.close()
        for task in [*self._tasks, *([self._watching] if self._watching else [])]:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        at_work = [each for each in self.served.sessions.values() if self.is_running(each)]
        for session in at_work:
            self.screen.say(
                f"“{session.title}” is left in the middle of its turn; it goes on there: kipu chat --resume {session.session_id}",
                style="yellow",
            )

    def quit(self) -> None:
        """End after this line."""
        self.is_over = True

    async def _watch(self, session: Session, *, runs: bool = False) -> None:
        if self._watching is not None:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching
        if self.view is not None:
            self.screen.leave_session()
        own = self.served.open(session)
        self.session = session
        self.view = TurnView(self.screen, session, own=own, worker=self.manager.owner)
        after = session.history.last_seq
        if session.head.open_turn is not None:
            self.view.restore(await read_story(session), is_parked=session.head.parked, runs=runs)
        self.view.refresh_work()
        self._watching = asyncio.ensure_future(self._follow(session, self.view, after))
        self._watching.add_done_callback(lambda _task: self.waiting.wake())

    async def _follow(self, session: Session, view: TurnView, after: int) -> None:
        try:
            async for happening in SessionWatch(session, self.runtime.streams, after=after):
                view.take(happening)
                for end in view.ends:
                    self._finish(session, end)
                view.ends.clear()
                self.waiting.wake()
        except KipuError as error:
            self.complain(error)

    # ---- sessions --------------------------------------------------------------------------------------------------

    async def ensure_session(self) -> Session:
        """Return the session, made now if there is none yet. Raises: WorkspaceError, GitError."""
        if self.session is None:
            session = await self.manager.new_session(self.key)
            await give_place(session, self.place, provision=self.runtime.builder.provision)
            if self.models.asked is not None:
                await session.set_metadata(model=self.models.asked)
            await self._watch(session)
            self.screen.say(f"session {session.session_id}")
            record = session.head.workspace
            if record is not None:
                self.root = Path(record["path"])
                branch = f", on the branch {record['branch']}" if record.get("branch") else ""
                self.screen.say(f"works in {self.root}{branch}")
                if not self.screen.is_terminal:  # there it was said at the beginning
                    self.notices.tell_project(self.root)
            await self.notices.tell_neighbours(session)
            self.spawn(self.notices.tell_sandbox())
        if self.session is None:
            raise RuntimeError("a session was made")
        return self.session

    def forget_session(self) -> None:
        """Begin another one with the next message; this one's turns go on."""
        self.session = None
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        if self.view is not None:
            self.screen.leave_session()
            self.view = None

    # ---- lines -----------------------------------------------------------------------------------------------------

    async def talk(self, lines: LineSource) -> ExitCode:
        """Handle line after line until they end; return how it went."""
        self.waiting.is_live = lines.is_live
        self.waiting.reader = reader = LineReader(lines)
        try:
            await self._talk(reader, hint=partial(self.screen.say, CTRL_C_AGAIN) if lines.is_live else None)
        finally:
            await reader.close()
        return ExitCode.OK if lines.is_interactive else self.code

    async def _talk(self, reader: LineReader, *, hint: Callable[[], None] | None) -> None:
        with CtrlC(self.interrupt, hint=hint) as ctrl_c:
            while not self.is_over:
                with ctrl_c.idle():
                    line = await reader.take()
                if line is None:
                    break
                await self.handle(line)
                if not self.waiting.is_live and self.waiting.own_waits():
                    await self.waiting.wait_for(None)
                if ctrl_c.pressed:
                    ctrl_c.pressed = 0
                    self.code = ExitCode.INTERRUPTED
                if self.code is ExitCode.INTERRUPTED and not reader.is_interactive:
                    break

    async def handle(self, line: str) -> None:
        """Answer a question, run a command or send a message; what goes wrong is said, and the chat goes on."""
        from kipu.cli.chat.commands import run_command

        text = line.strip()
        if not text:
            return
        try:
            if await self.answering.take(line):
                await self.waiting.settle()
                return
            if text.startswith("/") and not text.startswith("//"):
                await run_command(self, text[1:])
            else:
                await self.say(line[1:] if text.startswith("//") else line)
        except (StoreError, BrokenPipeError):
            raise
        except KipuError as error:
            self.complain(error)
        except OSError as error:  # of a file that a command was to read or write
            self.complain(InputError(reason=f"{error.filename or 'a file'}: {error.strerror or error}"))

    async def say(self, text: str, *, policy: str | None = None) -> None:
        """Send a message; where lines come one by one, have it answered before the next."""
        session = await self.ensure_session()
        session_id = session.session_id
        if policy is None and self.invocation.settings["busy"] == "steer":
            policy = "steer"
        event = InboundEvent(
            channel=CHANNEL,
            chat_id=self.key.chat_id,
            sender_id=self.manager.principal.id,
            content=text,
            policy=policy,
        )
        self.served.go_on(session_id)
        receipt = await self.runtime.bus.send(session_id, event)
        self.served.own[session_id].add(receipt.seq)
        self.runtime.worker.wake(session_id)
        if self.view is not None:
            self.view.refresh_work()
        if not self.waiting.is_live:
            await self.waiting.wait_for(receipt.seq)

    async def retry(self) -> None:
        """Ask the model again, or go on with a turn that was broken off."""
        session = self.require_session()
        session_id = session.session_id
        if self.is_running(session):
            self.screen.say("the turn runs; Esc or /stop ends it")
            return
        self.served.go_on(session_id)
        await session.refresh()
        if session.head.open_turn is None:
            if session.head.waiting:
                self.served.own[session_id].update(session.head.waiting)
            else:
                # A turn that takes no message: begun here, and taken up by the worker like any that was left open.
                async with session.turn(consumes=[]) as turn:
                    turn.leave_open()
        self.runtime.worker.wake(session_id)
        if not self.waiting.is_live:
            await self.waiting.wait_for(None)

    def require_session(self) -> Session:
        """Return the session. Raises: InputError."""
        from kipu.errors import InputError

        if self.session is None:
            raise InputError(reason="there is no session yet; it begins with your first message, or use /switch")
        return self.session

    def check_watching(self) -> None:
        """Raise what ended the watching of the session: nobody would tell any more."""
        if self._watching is not None and self._watching.done():
            self._watching.result()

    # ---- what runs -------------------------------------------------------------------------------------------------

    def is_running(self, session: Session) -> bool:
        """Return True while a turn of the session runs in this process."""
        return session.head.open_turn is not None and session.session_id in self.runtime.worker.running

    def kept(self, line: str) -> str:
        """Return what of an entered line is kept for the next chat: no secret that was pasted into it."""
        redactor = self.manager.redactor
        return line if redactor is None else str(redactor.redact(line, places=False).value)

    def interrupt(self) -> bool:
        """Stop the running turn; False where none runs."""
        session = self.session
        if session is None or session.head.open_turn is None:
            return False
        self.spawn(self.stop())
        return True

    async def stop(self) -> bool:
        """Stop the open turn, also a parked one; False where none is open."""
        session = self.require_session()
        self.served.go_on(session.session_id)
        stopped = await self.runtime.control.stop(session.session_id)
        return stopped is not None

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something beside the lines; what goes wrong is said."""

        async def guarded() -> None:
            try:
                await work
            except KipuError as error:
                self.complain(error)

        task = asyncio.ensure_future(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def beside(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something that may take long: beside the lines where they go on, else before the next one."""
        if self.waiting.is_live:
            self.spawn(work)
        else:
            await work

    def _finish(self, session: Session, end: TurnEnd) -> None:
        answer, event = end.turn.answer, end.event
        error = _error_of(event.error) if event.outcome == "failed" else None
        record: dict[str, Any] = {
            "session_id": session.session_id,
            "turn_id": event.turn_id,
            "outcome": event.outcome,
            "seq": answer.seq if answer else None,
            "answer": answer.content if answer else None,
            "model": answer.metadata.get("model") if answer else None,
            "usage": event.usage,
            "calls": end.turn.calls,
            "error": error,
        }
        self.screen.end_answer(record)
        if event.outcome in ("cancelled", "interrupted"):
            self.code = ExitCode.INTERRUPTED
            kept = answer is not None and answer.state == "interrupted"
            self.screen.say("interrupted; what had come is kept" if kept else _nothing_came(end), style="yellow")
        if error is not None:
            self.code = ExitCode.FAILURE
            self.screen.say(f"error: {event.error}", style="red")
            self.screen.say("your message is kept: /retry asks again, /model NAME asks another model")

    def complain(self, error: KipuError) -> None:
        """Say what went wrong."""
        self.code = ExitCode.FAILURE
        self.screen.say(f"error: {error} [{error.code}]", style="red")


def _nothing_came(end: TurnEnd) -> str:
    return "interrupted; what was done is kept" if end.turn.calls else "interrupted before anything came"


def _error_of(text: str | None) -> dict[str, str | None]:
    found = _CODE.search(text or "")
    code = found[1] if found else None
    return {"code": code, "message": (text or "").removesuffix(f" [{code}]") if code else text}
