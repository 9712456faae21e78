"""`kipu gc`: what the retention settings say is due, shown first and then done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, StoreOption

if TYPE_CHECKING:
    from kipu.manager.lifecycle.retention import Retention
    from kipu.manager.lifecycle.sweeper import Step, Sweep

app = typer.Typer(add_completion=False)

_WHY: Mapping[str, str] = {
    "own": "Kipu's own",
    "held": "legal hold",
    "pinned": "pinned",
    "approval": "an approval is open",
    "turn": "a turn is open",
    "waiting": "a message waits",
    "in_use": "in use",
    "forks": "forks read its events",
    "gone": "gone meanwhile",
    "failed": "failed",
}


@app.command("gc")
def gc(
    context: typer.Context,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what is due and what is kept; change nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before sessions are erased.")] = False,
    trust_clock: Annotated[
        bool, typer.Option("--trust-clock", help="Go on though the store was silent for very long.")
    ] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    r"""Expire, archive, trash and erase what \[retention] in the settings says is due. See it first with --dry-run."""
    invocation = begin(context, store=store, json=json)
    retention = retention_of(invocation)
    if not dry_run and retention.erase_after_days is not None and not yes:
        due = invocation.run(_swept(invocation, retention, dry_run=True, trust_clock=trust_clock))[0].done["erased"]
        if due:
            invocation.confirm(f"Erase {due} sessions for good?")
    sweep, steps = invocation.run(_swept(invocation, retention, dry_run=dry_run, trust_clock=trust_clock))
    _show(invocation, sweep, steps)
    if sweep.kept["failed"]:
        raise typer.Exit(1)


def retention_of(invocation: Invocation) -> Retention:
    """Return the retention that the settings say. Raises: ConfigurationError."""
    from kipu.manager.lifecycle.retention import Retention

    return Retention.parse(invocation.settings.table("retention"), source=str(invocation.settings.path))


async def _swept(
    invocation: Invocation, retention: Retention, *, dry_run: bool, trust_clock: bool
) -> tuple[Sweep, list[Step]]:
    from kipu.cli.progress import progress_bar
    from kipu.manager.lifecycle.sweeper import Sweeper

    steps: list[Step] = []
    async with invocation.manager() as manager:
        with progress_bar(invocation.output, "looking over sessions", unit="sessions") as bar:

            def hear(step: Step) -> None:
                steps.append(step)
                bar.done(len(steps))

            sweeper = Sweeper(manager, retention, trusts_clock=trust_clock)
            return await sweeper.sweep(dry_run=dry_run, tell=hear), steps


def _show(invocation: Invocation, sweep: Sweep, steps: list[Step]) -> None:
    output = invocation.output
    if output.json:
        output.emit({**_counts(sweep), "steps": [step._asdict() for step in steps]})
        return
    rows = (
        (s.session_id, s.title, s.last_activity_at[:10], f"{s.status} → {s.step}", _WHY[s.kept] if s.kept else "")
        for s in steps
    )
    output.table(("session", "title", "last active", "due", "kept, because"), rows)
    if sweep.is_doubtful:
        output.say("nothing was written here for very long before now, so the clock may be wrong: only expiry is done")
        output.say("where the clock is right, say so: kipu gc --trust-clock")
    done = ", ".join(f"{count} {step}" for step, count in sorted(sweep.done.items())) or "nothing"
    kept = sum(sweep.kept.values())
    output.say(f"{'due' if sweep.dry_run else 'done'}: {done}; kept: {kept}")


def _counts(sweep: Sweep) -> dict[str, Any]:
    return {
        "dry_run": sweep.dry_run,
        "clock_doubted": sweep.is_doubtful,
        "done": dict(sweep.done),
        "kept": dict(sweep.kept),
    }
