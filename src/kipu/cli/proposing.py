"""`kipu proposals`: what agents learned about how to work, for a person to read, try, approve, reject and take back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kipu.cli.agent_guard import require_a_person
from kipu.cli.completion import complete_proposal, complete_session
from kipu.cli.invocation import Invocation, begin
from kipu.cli.number import number_or_name
from kipu.cli.options import JsonOption, StoreOption

if TYPE_CHECKING:
    from kipu.manager.manager import SessionManager
    from kipu.proposals.desk import ProposalDesk
    from kipu.proposals.proposal import Proposal
    from kipu.runtime.recorded_calls import RecordedCall

app = typer.Typer(add_completion=False)
proposals = typer.Typer(
    add_completion=False, help="Read, try and decide what agents propose about how they work; alone it is `ls`."
)
app.add_typer(proposals, name="proposals")
ProposalArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="A proposal's id, or the unique start or end of one.", autocompletion=complete_proposal
    ),
]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; the log keeps it.")]
Decide = Callable[["ProposalDesk", str], Awaitable["Proposal"]]


@proposals.callback(invoke_without_command=True)
def proposals_alone(context: typer.Context, *, store: StoreOption = None, json: JsonOption = False) -> None:
    """What agents propose about how they work: `ls`, `show`, `try`, `approve`, `reject`, `revert`; alone it is `ls`."""
    if context.invoked_subcommand is None:
        invocation = begin(context, store=store, json=json)
        invocation.run(_list(invocation, every=False))


@proposals.command("ls")
def list_proposals(
    context: typer.Context,
    *,
    every: Annotated[bool, typer.Option("--all", help="Those that are decided too.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """List the proposals that wait for you, oldest first."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_list(invocation, every=every))


async def _list(invocation: Invocation, *, every: bool) -> None:
    from kipu.cli.proposal_view import COLUMNS, proposal_row

    output = invocation.output
    async with _desk(invocation) as (_, desk):
        found = await desk.all(is_open=None if every else True)
        state = (await desk.get(found[0].proposal_id))[1] if found else None
    if output.json:
        output.emit([{**one.to_json(), "is_moved": state is not None and state.moved(one)} for one in found])
        return
    output.table(COLUMNS, [proposal_row(one, state) for one in found if state is not None])
    if not found:
        output.say("nothing is proposed" if every else "no proposal waits; --all shows those that are decided")


@proposals.command("show")
def show(
    context: typer.Context, *, proposal: ProposalArgument, store: StoreOption = None, json: JsonOption = False
) -> None:
    """Show one proposal: the change as a diff, why, its evidence as it stands now, and what became of it."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_show(invocation, proposal))


async def _show(invocation: Invocation, text: str) -> None:
    from kipu.cli.proposal_view import diff_of, proposal_lines, warnings_of
    from kipu.proposals.evidence import standing_of

    output = invocation.output
    async with _desk(invocation) as (manager, desk):
        proposal, state = await desk.get(await find_proposal(desk, text))
        events = await standing_of(manager, proposal.evidence, principal=desk.principal)
        answers = await answers_of(manager, proposal, desk=desk)
    if output.json:
        current = state.of(proposal.target)
        output.emit(
            {
                **proposal.to_json(),
                "evidence": [event.to_json() for event in events],
                "warnings": warnings_of(proposal, state, events=events),
                "is_moved": proposal.is_open and state.moved(proposal),
                "current": {"version": current.active, "text": current.text},
                "diff": diff_of(proposal.before, proposal.after),
                "answers": list(answers.values()),
            }
        )
        return
    for line, style in proposal_lines(proposal, state, events=events, answers=answers):
        output.line(line, style=style)


async def answers_of(manager: SessionManager, proposal: Proposal, *, desk: ProposalDesk) -> dict[int, Any]:
    """Return what trials of a proposal said, by the number of the note that keeps it; without those that were erased."""
    from kipu.runtime.proposal_trials import kept_answer

    found: dict[int, Any] = {}
    for trial in proposal.trials:
        for step in (trial.data or {}).get("steps") or ():
            answer = await kept_answer(manager, step, principal=desk.principal)
            if answer is not None:
                found[step["note_seq"]] = answer
    return found


@proposals.command("try")
def try_out(
    context: typer.Context,
    *,
    proposal: ProposalArgument,
    session: Annotated[
        str | None,
        typer.Option(metavar="ID", help="With --turn: of this session.", autocompletion=complete_session),
    ] = None,
    turn: Annotated[
        str | None,
        typer.Option(metavar="N", help="A turn in place of the evidence: from 1, -1 for the last, or a turn id."),
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Ask this model, not the one recorded.")] = None,
    most: Annotated[int, typer.Option("--most", min=1, max=100, metavar="N", help="Ask at most so many calls.")] = 5,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Ask recorded model calls again with the change in force, beside what was answered. No tool is run."""
    if session is not None and turn is None:
        raise typer.BadParameter("--session needs --turn")
    invocation = begin(context, store=store, json=json)
    if not invocation.run(_try(invocation, proposal, session=session, turn=turn, model=model, most=most)):
        raise typer.Exit(1)


async def _try(
    invocation: Invocation, text: str, *, session: str | None, turn: str | None, model: str | None, most: int
) -> bool:
    from kipu.cli.opened_models import opened_models
    from kipu.cli.proposal_view import cost_words, trial_lines
    from kipu.runtime.proposal_trials import ProposalTrials, TriedStep

    output = invocation.output

    def tell(step: TriedStep) -> None:
        if not output.json:
            for line, style in trial_lines(step):
                output.line(line, style=style)

    async with _desk(invocation) as (manager, desk), opened_models(invocation.settings) as opened:
        proposal, state = await desk.get(await find_proposal(desk, text))
        calls = await _calls(manager, proposal, session=session, turn=turn, most=most)
        trials = ProposalTrials(manager, model=opened)
        trial = await trials.run(proposal, state, calls=calls, principal=desk.principal, model=model, tell=tell)
        await desk.record_trial(proposal.proposal_id, trial.summary())
    if output.json:
        told = {**trial.summary(), "proposal_id": proposal.proposal_id}
        output.emit({**told, "steps": [step.to_json() for step in trial.steps]})
    else:
        output.say(f"{proposal.proposal_id} was tried: {cost_words(trial.summary())}")
    return trial.answered > 0


async def _calls(
    manager: SessionManager, proposal: Proposal, *, session: str | None, turn: str | None, most: int
) -> list[RecordedCall]:
    from kipu.cli.reference import find_session
    from kipu.errors import InputError
    from kipu.runtime.recorded_calls import calls_of_evidence, calls_of_turn

    if turn is None:
        return await calls_of_evidence(manager, proposal.evidence, principal=manager.principal, most=most)
    where = session or proposal.author.session_id
    if not where:
        raise InputError(reason="the proposal comes from no session; say which with --session")
    chosen = await find_session(manager, where)
    return await calls_of_turn(chosen, number_or_name(turn), most=most)


@proposals.command("approve")
def approve(
    context: typer.Context,
    *,
    proposal: ProposalArgument,
    untried: Annotated[bool, typer.Option("--untried", help="Though nobody tried it.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Though its base moved: its text replaces what is there now.")
    ] = False,
    despite: Annotated[
        bool, typer.Option("--despite-warnings", help="Though its text has characters that nobody sees.")
    ] = False,
    reason: ReasonOption = "",
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Let a proposal take effect, from each session's next turn on. The first decision counts."""
    invocation = begin(context, store=store, json=json)

    async def decide(desk: ProposalDesk, proposal_id: str) -> Proposal:
        return await desk.approve(
            proposal_id, reason=reason, is_untried=untried, replaces=replace, despite_warnings=despite
        )

    invocation.run(_decide(invocation, proposal, decide))


@proposals.command("reject")
def reject(
    context: typer.Context,
    *,
    proposal: ProposalArgument,
    reason: ReasonOption = "",
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Refuse a proposal; whoever proposes the same again is told, with the reason."""
    invocation = begin(context, store=store, json=json)

    async def decide(desk: ProposalDesk, proposal_id: str) -> Proposal:
        return await desk.reject(proposal_id, reason=reason)

    invocation.run(_decide(invocation, proposal, decide))


@proposals.command("revert")
def revert(
    context: typer.Context,
    *,
    proposal: ProposalArgument,
    reason: ReasonOption = "",
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Take an approved proposal back: what it changed reads as before, from each session's next turn on."""
    invocation = begin(context, store=store, json=json)

    async def decide(desk: ProposalDesk, proposal_id: str) -> Proposal:
        return await desk.revert(proposal_id, reason=reason)

    invocation.run(_decide(invocation, proposal, decide))


async def _decide(invocation: Invocation, text: str, decide: Decide) -> None:
    output = invocation.output
    async with _desk(invocation) as (_, desk):
        require_a_person(desk.principal.id)
        proposal = await decide(desk, await find_proposal(desk, text))
    if output.json:
        output.emit(proposal.to_json())
        return
    version = f" as version {proposal.version}" if proposal.status == "approved" else ""
    output.say(f"{proposal.proposal_id} is {proposal.status}{version}: {proposal.target.label}")


@asynccontextmanager
async def _desk(invocation: Invocation) -> AsyncIterator[tuple[SessionManager, ProposalDesk]]:
    from kipu.proposals.desk import ProposalDesk
    from kipu.proposals.ledger import ProposalLedger

    async with invocation.manager() as manager:
        yield manager, ProposalDesk(ProposalLedger(manager, manager.principal))


async def find_proposal(desk: ProposalDesk, text: str) -> str:
    """Return the id that `text` is, or is the unique start or end of. Raises: ProposalNotFoundError."""
    from kipu.errors import ProposalNotFoundError

    known = [proposal.proposal_id for proposal in await desk.all()]
    if text in known:
        return text
    found = [each for each in known if len(text) >= 4 and (each.startswith(text) or each.endswith(text))]
    if len(found) != 1:
        reason = f"it could be any of {', '.join(found[:5])}" if found else "there is none"
        raise ProposalNotFoundError(proposal_id=text, reason=reason)
    return found[0]
