"""What the chat says of proposals: that some wait, which, and what they would change. They are decided with `kipu proposals`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kipu.cli.chat.command_entry import Command

if TYPE_CHECKING:
    from kipu.cli.chat.conversation import Conversation
    from kipu.proposals.desk import ProposalDesk


async def tell_proposals(chat: Conversation) -> None:
    """Say how many proposals wait for this person, where some do."""
    count = len(await _desk(chat).all(is_open=True))
    if count:
        waits = "a proposal of how to work waits" if count == 1 else f"{count} proposals of how to work wait"
        chat.screen.say(f"{waits} for you: /proposals", style="yellow")


async def _proposals(chat: Conversation, rest: str) -> None:
    if rest:
        await _show(chat, rest)
        return
    from kipu.cli.proposal_view import COLUMNS, proposal_row

    desk = _desk(chat)
    found = await desk.all(is_open=True)
    if found:
        _, state = await desk.get(found[0].proposal_id)
        chat.screen.table(COLUMNS, [proposal_row(one, state) for one in found])
        chat.screen.say(
            "/proposals ID shows one; try and decide outside the chat: kipu proposals try|approve|reject ID"
        )
    else:
        chat.screen.say("no proposal waits")
    chat.screen.result({"command": "proposals", "proposals": [one.to_json() for one in found]})


async def _show(chat: Conversation, text: str) -> None:
    from kipu.cli.proposal_view import proposal_lines
    from kipu.cli.proposing import answers_of, find_proposal
    from kipu.proposals.evidence import standing_of

    desk = _desk(chat)
    proposal, state = await desk.get(await find_proposal(desk, text))
    events = await standing_of(chat.manager, proposal.evidence, principal=desk.principal)
    answers = await answers_of(chat.manager, proposal, desk=desk)
    for line, _ in proposal_lines(proposal, state, events=events, answers=answers):
        chat.screen.show(line)
    chat.screen.result({"command": "proposals", "proposal": proposal.to_json()})


def _desk(chat: Conversation) -> ProposalDesk:
    from kipu.proposals.desk import ProposalDesk

    return ProposalDesk(chat.runtime.builder.ledgers.of(chat.manager.principal))


PROPOSAL_COMMANDS = {
    "proposals": Command("[ID]", "list what agents propose about how they work, or show one", _proposals),
}
