"""A proposal as people read it: what it changes, why, from what, and what became of it. Nothing in it goes unseen."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kipu.cli.head_view import moment
from kipu.memory.injection import findings_in
from kipu.proposals.desk import moved_text
from kipu.proposals.evidence import EvidenceEvent, summary_of
from kipu.proposals.text_check import shown, warning_of

if TYPE_CHECKING:
    from kipu.proposals.proposal import Proposal, Step
    from kipu.proposals.state import LedgerState
    from kipu.runtime.proposal_trials import TriedStep

COLUMNS = ("id", "status", "made", "what", "reason")
_STYLES = {"+": "green", "-": "red", "@": "cyan"}
Line = tuple[str, str]  # text and style


def proposal_row(proposal: Proposal, state: LedgerState) -> tuple[str, ...]:
    """Return a proposal's line in a list."""
    status: str = proposal.status
    if proposal.is_open:
        status = "base moved" if state.moved(proposal) else "tried" if proposal.is_tried else "waits"
    reason = shown(" ".join(proposal.reason.split()))
    return proposal.proposal_id, status, moment(proposal.made_at), shown(proposal.target.label), reason


def warnings_of(proposal: Proposal, state: LedgerState, *, events: Sequence[EvidenceEvent]) -> list[str]:
    """Return what whoever decides has to know: hidden characters, words of attacks, a base that moved, evidence that is gone."""
    found = []
    hidden = warning_of((proposal.after or "") + proposal.reason)
    if hidden is not None:
        found.append(f"it has {hidden}; they are written out here")
    attacks = findings_in(f"{proposal.after or ''}\n{proposal.reason}")
    if attacks:
        found.append(f"it reads like text that attacks agents ({', '.join(attacks)}); look where it comes from")
    if proposal.is_open and state.moved(proposal):
        found.append(f"its base moved: {moved_text(state, proposal)}")
    lost = summary_of(events)
    if lost is not None:
        found.append(lost)
    if proposal.is_open and not proposal.is_tried:
        found.append("nobody has tried it")
    return found


def diff_of(before: str | None, after: str | None) -> str:
    """Return the change of a text as a unified diff, what is hidden in it written out."""
    old, new = shown(before or "").splitlines(), shown(after or "").splitlines()
    return "\n".join(difflib.unified_diff(old, new, "before", "after", lineterm=""))


def proposal_lines(
    proposal: Proposal, state: LedgerState, *, events: Sequence[EvidenceEvent], answers: Mapping[int, Any]
) -> Iterator[Line]:
    """Yield what `kipu proposals show` writes; `answers` are what trials said, by the number of their note."""
    yield f"{proposal.proposal_id}  {proposal.status}: {shown(proposal.target.label)}", "bold"
    author = proposal.author
    by = f"by the {author.kind}" + (f" in {author.session_id}" if author.session_id else "")
    by += f", for {author.principal}" if author.principal else ""
    yield f"proposed {moment(proposal.made_at)} {shown(by)}: {shown(proposal.reason)}", ""
    for warning in warnings_of(proposal, state, events=events):
        yield f"warning: {warning}", "yellow"
    yield "", ""
    yield from diff_lines(diff_of(proposal.before, proposal.after))
    if proposal.is_open and state.moved(proposal):
        yield "", ""
        yield "against what is in force now:", "yellow"
        yield from diff_lines(diff_of(state.of(proposal.target).text, proposal.after))
    yield "", ""
    for event in events:
        yield from _evidence_lines(event)
    for step in proposal.steps[1:]:
        yield from _step_lines(step, answers)


def diff_lines(diff: str) -> Iterator[Line]:
    """Yield a diff's lines with their colours."""
    for line in diff.splitlines():
        yield line, _STYLES.get(line[:1], "")


def _evidence_lines(event: EvidenceEvent) -> Iterator[Line]:
    where = f"evidence {event.session_id} #{event.seq}" if event.seq else f"evidence {event.session_id}"
    if event.state == "gone":
        yield f"{where}: gone", "yellow"
        return
    note = " (undone by a rewind)" if event.state == "undone" else ""
    yield f"{where} {event.event_type}{note}: {shown(event.excerpt)}", "dim"


def _step_lines(step: Step, answers: Mapping[int, Any]) -> Iterator[Line]:
    reason = f": {shown(step.reason)}" if step.reason else ""
    data = step.data or {}
    if step.what == "tried":
        yield f"tried {moment(step.at)} by {step.by}, {cost_words(data)}", ""
        for tried in data.get("steps") or ():
            yield from _kept_lines(tried, answers)
        return
    version = f" as version {data['version']}" if "version" in data else ""
    back = f" to version {data['to_version']}" if "to_version" in data else ""
    untried = ", untried" if data.get("untried") else ""
    yield f"{step.what}{version}{back} {moment(step.at)} by {step.by}{untried}{reason}", ""


def _kept_lines(tried: Mapping[str, Any], answers: Mapping[int, Any]) -> Iterator[Line]:
    where = f"  {tried.get('session_id')} #{tried.get('seq')}"
    if tried.get("error"):
        yield f"{where}: {shown(str(tried['error']))}", "yellow"
        return
    answer = answers.get(tried.get("note_seq") or 0)
    how = "answered as before" if tried.get("is_same") else "answered otherwise"
    yield f"{where}: {how}" + (" (gone with its session)" if answer is None else ""), ""
    if answer is not None and not tried.get("is_same"):
        yield from (("    " + line, "dim") for line in answer_lines(answer.get("text", ""), answer.get("calls", ())))


def trial_lines(step: TriedStep) -> Iterator[Line]:
    """Yield one recorded call beside what the model says now."""
    recorded = step.recorded
    yield f"{recorded.session_id} #{recorded.seq} ({recorded.turn_id}), asked {step.model}", "bold"
    if step.error is not None:
        yield f"  no answer: {shown(step.error)}", "yellow"
        return
    if step.is_same_window is False:
        yield "  the window cannot be rendered exactly as it was; the rest of it differs too", "yellow"
    yield "  recorded:", "cyan"
    for line in answer_lines(recorded.text, recorded.calls):
        yield f"    {line}", ""
    yield "  with the change, the same:" if step.is_same else "  with the change:", "cyan"
    for line in answer_lines(step.text, step.calls):
        yield f"    {line}", ""


def answer_lines(text: str, calls: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield an answer: its text, then its calls, which are never run in a trial."""
    from kipu.cli.chat.call_lines import call_line

    yield from shown(text).splitlines()
    for call in calls:
        arguments = call.get("input")
        yield f"→ {shown(call_line(str(call.get('name')), arguments if isinstance(arguments, Mapping) else {}))}"


def cost_words(trial: Mapping[str, Any]) -> str:
    """Return what a trial used, in words."""
    usage = trial.get("usage") or {}
    tokens = (usage.get("input_tokens") or 0) + (usage.get("output_tokens") or 0)
    cost = trial.get("cost_usd")
    price = f"${cost:.4f}" if isinstance(cost, int | float) else "unknown cost"
    count = len(trial.get("steps") or ())
    answered = f"{trial.get('answered', 0)} of {count} answered"
    return f"{answered} by {trial.get('model') or 'no model'}, {tokens} tokens, {price}"
