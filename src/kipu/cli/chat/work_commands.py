"""Commands about what runs and waits: /stop, /queue, /steer, /approve, /deny, /answer, /retry, /compact, /cost, /mcp, /tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kipu.cli.chat.command_entry import Command
from kipu.cli.chat.file_commands import require_idle
from kipu.cli.chat.questions import Answer, Question
from kipu.cli.number import number_in
from kipu.cli.reference import SHORTEST_PART
from kipu.errors import InputError
from kipu.interop.printable import printable_line

if TYPE_CHECKING:
    from kipu.cli.chat.conversation import Conversation


async def _stop(chat: Conversation, rest: str) -> None:
    stopped = await chat.stop()
    if not stopped:
        chat.screen.say("no turn is open")
    else:
        await chat.waiting.settle()
    chat.screen.result({"command": "stop", "stopped": stopped})


async def _steer(chat: Conversation, rest: str) -> None:
    if not rest:
        raise InputError(reason="write what to tell the running turn: /steer TEXT")
    await chat.say(rest, policy="steer")


async def _queue(chat: Conversation, rest: str) -> None:
    session = chat.require_session()
    waiting = await chat.runtime.control.queue(session.session_id)
    words = rest.split()
    if words[:1] == ["cancel"]:
        wanted = waiting if words[1:] in ([], ["all"]) else [_numbered(waiting, words[1])]
        for message in wanted:
            await chat.runtime.control.cancel(session.session_id, message.seq)
        chat.screen.say(f"taken back: {len(wanted)}" if wanted else "nothing waits")
        chat.screen.result({"command": "queue", "cancelled": [message.seq for message in wanted]})
        return
    if words:
        raise InputError(reason="write /queue, /queue cancel N, or /queue cancel all")
    rows = [
        (str(number), str(message.seq), message.mode, f"{message.age_s:.0f} s", printable_line(message.text))
        for number, message in enumerate(waiting, 1)
    ]
    if rows:
        chat.screen.table(("", "message", "policy", "waits", "text"), rows)
    else:
        chat.screen.say("nothing waits")
    chat.screen.result(
        {
            "command": "queue",
            "waiting": [
                {"seq": each.seq, "policy": each.mode, "age_s": each.age_s, "text": each.text} for each in waiting
            ],
        }
    )


def _numbered(waiting: list[Any], word: str) -> Any:
    """Return a waiting message by its place in the list, or by its number in the log."""
    number = number_in(word)
    if number is not None:
        if 0 < number <= len(waiting):
            return waiting[number - 1]
        for message in waiting:
            if message.seq == number:
                return message
    raise InputError(reason=f"no message {word} waits; /queue lists those that do")


async def _approve(chat: Conversation, rest: str) -> None:
    await _decide(chat, rest, "approve")


async def _deny(chat: Conversation, rest: str) -> None:
    await _decide(chat, rest, "deny")


async def _decide(chat: Conversation, rest: str, name: str) -> None:
    approval_id, _, reason = rest.partition(" ")
    asked = list(chat.view.questions.values()) if chat.view is not None else []
    if approval_id in ("", "all"):
        wanted = asked if approval_id == "all" else asked[:1]
        if not wanted:
            raise InputError(reason="nothing waits for you here; kipu approvals lists what waits elsewhere")
    else:
        wanted = _named(asked, approval_id)
    answer = Answer("yes") if name == "approve" else Answer("no", reason=reason or None)
    for question in wanted:
        await chat.answering.decide(question, answer)
    decided = [question.approval_id for question in wanted]
    if not wanted:  # of another session
        if name == "approve":
            await chat.runtime.desk.approve(approval_id)
        else:
            await chat.runtime.desk.deny(approval_id, reason=reason or None)
        decided = [approval_id]
        chat.screen.say(f"{'allowed' if name == 'approve' else 'refused'}: {approval_id}")
    chat.screen.result({"command": name, "approvals": decided})
    await chat.waiting.settle()


def _named(asked: list[Question], text: str) -> list[Question]:
    """Return the question whose id this is, or its unique start or end. Raises: InputError (the part is of several)."""
    if len(text) < SHORTEST_PART:
        return []
    found = [each for each in asked if each.approval_id.startswith(text) or each.approval_id.endswith(text)]
    if len(found) > 1:
        raise InputError(reason=f"{text} is the part of {len(found)} ids; write more of the one you mean")
    return found


async def _answer(chat: Conversation, rest: str) -> None:
    approval_id, _, text = rest.partition(" ")
    asked = list(chat.view.questions.values()) if chat.view is not None else []
    named = _named(asked, approval_id) if text.strip() else []  # `/answer 2` is an answer, also where an id ends so
    question = next(iter(named), None) or next((each for each in asked if each.wants_words), None)
    if question is None:  # of another session, by its whole id
        await chat.runtime.desk.answer(approval_id, text)
        chat.screen.say(f"answered: {approval_id}")
    else:
        approval_id, text = question.approval_id, question.choice(text if named else rest)
        await chat.answering.say(question, text)
    chat.screen.result({"command": "answer", "approval_id": approval_id, "answer": text})
    await chat.waiting.settle()


async def _retry(chat: Conversation, rest: str) -> None:
    await chat.retry()


async def _compact(chat: Conversation, rest: str) -> None:
    session = require_idle(chat)

    async def compact() -> None:
        chat.screen.say("older history is being summarised …")
        before = session.history.window.tokens
        agent = await chat.runtime.orchestrator.switch_to_session(session.session_id)
        event = await agent.compaction.now()
        after = session.history.window.tokens
        chat.screen.say(f"summarised events {event.from_seq} to {event.to_seq}: {before} tokens became {after}")
        chat.screen.result(
            {
                "command": "compact",
                "session_id": session.session_id,
                "from_seq": event.from_seq,
                "to_seq": event.to_seq,
                "tokens_before": before,
                "tokens_after": after,
            }
        )

    await chat.beside(compact())


async def _cost(chat: Conversation, rest: str) -> None:
    from kipu.cli.chat.costs import cost_lines, session_costs

    costs = await session_costs(chat.require_session())
    for line in cost_lines(costs):
        chat.screen.show(line)
    chat.screen.result({"command": "cost", **costs.to_json()})


async def _mcp(chat: Conversation, rest: str) -> None:
    session = require_idle(chat)
    agent = await chat.runtime.orchestrator.switch_to_session(session.session_id)
    servers = agent.parts.servers
    found: list[dict[str, Any]] = []
    if servers is not None:
        chat.screen.say("asking the servers …")
        await servers.update(agent.parts.toolbox)
        for status in servers.status():
            state = status.state
            found.append(
                {
                    "server": state.name,
                    "state": state.state,
                    "reason": state.reason,
                    "restarts": state.restarts,
                    "tools": list(status.tools),
                    "problems": list(status.problems),
                }
            )
    if not found:
        chat.screen.say(
            "no MCP server is configured: [mcp.NAME] in the configuration file, or .mcp.json of a trusted project"
        )
    for each in found:
        problems = "; ".join([each["reason"], *each["problems"]]).strip("; ")
        chat.screen.show(
            f"{each['server']}: {each['state']}, {len(each['tools'])} tools" + (f" ({problems})" if problems else "")
        )
        if each["tools"]:
            chat.screen.show(f"  {', '.join(each['tools'])}")
    chat.screen.result({"command": "mcp", "servers": found})


async def _tools(chat: Conversation, rest: str) -> None:
    session = chat.require_session()
    agent = await chat.runtime.orchestrator.switch_to_session(session.session_id)
    principal = chat.manager.principal
    rows: list[tuple[str, str, str]] = []
    for name in agent.parts.toolbox.names:
        tool = agent.parts.toolbox.find(name)
        if tool is None:
            continue
        decision = await agent.decide(tool.spec, "", principal=principal)
        rows.append((name, decision.answer, tool.spec.description.split(". ")[0]))
    chat.screen.table(("tool", "policy", "what it does"), rows)
    chat.screen.result(
        {"command": "tools", "tools": [{"name": name, "policy": answer, "does": does} for name, answer, does in rows]}
    )


WORK_COMMANDS = {
    "stop": Command("", "end the running turn, or one that waits for you", _stop),
    "steer": Command("TEXT", "tell the running turn something now", _steer),
    "queue": Command("[cancel N|all]", "list messages that wait, or take them back", _queue),
    "retry": Command("", "ask the model again, or go on with a broken-off turn", _retry),
    "approve": Command("[ID|all]", "allow a call that waits", _approve),
    "deny": Command("[ID|all] [WHY]", "refuse a call that waits", _deny),
    "answer": Command("[ID] TEXT", "answer a question of the agent's", _answer),
    "compact": Command("", "summarise older history for the model now", _compact),
    "cost": Command("", "show what the last turn and the session have used", _cost),
    "tools": Command("", "list the tools and what their policy is", _tools),
    "mcp": Command("", "show the MCP servers and their tools", _mcp),
}
