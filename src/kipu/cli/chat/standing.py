"""Where a session stands, for whoever comes back to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kipu.cli.chat.call_lines import call_line
from kipu.cli.head_view import moment
from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, UserMessageEvent
from kipu.events.event import SessionEvent
from kipu.runtime.turns.turn_run import read_story
from kipu.session.branch import visible
from kipu.session.terms import event_text

if TYPE_CHECKING:
    from kipu.cli.chat.screen import Screen
    from kipu.manager.session import Session

SHOWN_MESSAGES = 6
READ_EVENTS = 100
LONGEST_MESSAGE = 600


async def show_standing(screen: Screen, session: Session, *, asked: int, runs: str | None = None) -> None:
    """Show the session's title, its last messages, and what waits or was interrupted.

    `asked` counts the questions that wait for a person, its helpers' too; `runs` says where its turn runs now.
    """
    head = session.head
    screen.say(f"{head.display_title}  ·  {head.session_id}", style="bold")
    facts = [head.status, f"{head.event_count} events", f"last activity {moment(head.last_activity_at)}"]
    if head.forked_from:
        facts.append(f"forked from {head.forked_from} at event {head.base_seq}")
    screen.say("  ·  ".join(facts))
    said = [event for event in visible(await session.get_recent_events(READ_EVENTS)) if _is_said(event)]
    if head.event_count > len(said) and len(said) > SHOWN_MESSAGES:
        screen.say(f"… earlier messages: kipu show {head.session_id}")
    for event in said[-SHOWN_MESSAGES:]:
        _show(screen, event)
    if runs is not None:
        screen.say(f"a turn runs {runs}", style="cyan")
    else:
        await _show_open_turn(screen, session, asked)
    if head.waiting and runs is None:
        number = "one message waits" if len(head.waiting) == 1 else f"{len(head.waiting)} messages wait"
        screen.say(f"{number}; answered before your next one", style="yellow")


async def _show_open_turn(screen: Screen, session: Session, asked: int) -> None:
    head = session.head
    if head.open_turn is None:
        return
    if head.parked:
        screen.say(
            f"a turn waits for you to decide about {'a call' if asked == 1 else f'{asked} calls'}", style="yellow"
        )
        return
    screen.say("a turn was broken off; it is finished before your next message, /retry goes on now", style="yellow")
    for call in (await read_story(session)).open_calls:
        if call.starts:
            line = call_line(call.call.tool_name, call.call.tool_input)
            screen.say(f"  interrupted: {line}; nobody knows how far it came", style="yellow")


def _is_said(event: SessionEvent) -> bool:
    return isinstance(event, UserMessageEvent | AgentMessageEvent | ToolCallEvent)


def _show(screen: Screen, event: SessionEvent) -> None:
    if isinstance(event, ToolCallEvent):
        screen.say(f"● {call_line(event.tool_name, event.tool_input)}", style="cyan")
        return
    text = event_text(event)
    text = text if len(text) <= LONGEST_MESSAGE else text[:LONGEST_MESSAGE] + " …"
    if isinstance(event, UserMessageEvent):
        screen.say(f"> {text}", style="green")
    elif isinstance(event, AgentMessageEvent):
        screen.say(text + ("  (interrupted)" if event.state == "interrupted" else ""), style="")
