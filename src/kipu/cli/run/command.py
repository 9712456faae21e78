"""`kipu run`, its options."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kipu.cli.completion import complete_session
from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, StoreOption

if TYPE_CHECKING:
    from kipu.cli.run.consent import Consent
    from kipu.cli.run.task import Task
    from kipu.runtime.turns.spending import TurnLimits

app = typer.Typer(add_completion=False)
Session = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Go on in this session.", autocompletion=complete_session),
]
Folder = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="Where a new session works (default: the current directory).", file_okay=False),
]
Approve = Annotated[
    Literal["none", "reads", "all"],
    typer.Option(help="What is allowed of that which would ask a person: nothing, what only looks, everything."),
]
Allow = Annotated[
    list[str] | None, typer.Option(metavar="RULE", help="Allow these calls, such as 'shell(git status*)'.")
]
Resume = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Go on with the open turn of a session.", autocompletion=complete_session),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait while somebody decides (`kipu approve`), rather than end.")]


@app.command("run")
def run(
    context: typer.Context,
    *,
    task: Annotated[str | None, typer.Argument(metavar="TASK", help="What to do; - reads it from stdin.")] = None,
    session: Session = None,
    last: Annotated[
        bool, typer.Option("--continue", "-c", help="Go on in the newest session of this directory.")
    ] = False,
    resume: Resume = None,
    workspace: Folder = None,
    worktree: Annotated[bool, typer.Option("--worktree", help="Work in a git worktree of that directory.")] = False,
    private: Annotated[bool, typer.Option("--private", help="Work in an empty directory of its own.")] = False,
    title: Annotated[str | None, typer.Option(help="A new session's title.")] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Which model, such as openai:… or demo.")] = None,
    approve: Approve = "none",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="The same as --approve all.")] = False,
    allow: Allow = None,
    deny: Annotated[list[str] | None, typer.Option(metavar="RULE", help="Deny these calls.")] = None,
    wait: Wait = False,
    max_steps: Annotated[int | None, typer.Option(min=1, help="At most so many model calls in a turn.")] = None,
    max_cost: Annotated[float | None, typer.Option(metavar="USD", min=0, help="At most so much money.")] = None,
    max_seconds: Annotated[float | None, typer.Option(min=0, help="At most so long.")] = None,
    deltas: Annotated[bool, typer.Option("--deltas", help="With --json: what streams too, as it comes.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Do one task and print the answer; progress goes to stderr. With --json: every event as it is stored, one a line.

    Exit codes: 0 done, 10 failed, 11 waits for a person, 12 a limit was reached, 13 stopped by somebody, 130 Ctrl-C, 143 SIGTERM
    (the turn stays open: `kipu run --resume ID`).
    """
    from kipu.cli.run.consent import Consent
    from kipu.cli.run.task import Task
    from kipu.runtime.turns.spending import TurnLimits

    invocation = begin(context, store=store, json=json, model=model)
    wanted = Task(
        text=_text(task, resume),
        session=session,
        last=last,
        resume=resume,
        folder=workspace,
        kind="worktree" if worktree else "private" if private else "directory",
        model=model,
        title=title,
    )
    wanted.check()
    consent = Consent("all" if yes else approve, allow=tuple(allow or ()), deny=tuple(deny or ()), waits=wait)
    limits = TurnLimits(max_steps=max_steps, max_seconds=max_seconds, max_cost_usd=max_cost)
    code = invocation.run(_run(invocation, wanted, consent, limits=limits, deltas=deltas, quiet=quiet))
    if code:
        raise typer.Exit(code)


def _text(task: str | None, resume: str | None) -> str:
    """Return what is to be done, from the words or from stdin; nothing where an open turn is gone on with."""
    if task is None and resume is None and sys.stdin.isatty():
        raise typer.BadParameter('give the task: kipu run "…", or - to read it from stdin')
    text = sys.stdin.read() if task == "-" or (task is None and resume is None) else task or ""
    if not text.strip() and resume is None:
        raise typer.BadParameter("the task is empty")
    if text and resume is not None:
        raise typer.BadParameter("--resume goes on with the open turn and takes no task; use --session for another one")
    return text


async def _run(
    invocation: Invocation, task: Task, consent: Consent, *, limits: TurnLimits, deltas: bool, quiet: bool
) -> int:
    from kipu.cli.run.report import report_for
    from kipu.cli.run.task import open_task
    from kipu.cli.run.task_run import TaskRun
    from kipu.cli.serving import runtime_for

    rules = consent.rules()
    served: set[str] = set()
    async with invocation.manager(create=task.is_new) as manager:
        runtime = runtime_for(invocation, manager, serves=served.__contains__, limits=limits, rules=rules)
        report = report_for(invocation.output, deltas=deltas, quiet=quiet)
        opened = await open_task(task, runtime)
        served.add(opened.session.session_id)
        run = TaskRun(runtime, opened, report=report, consent=consent)
        with run.signals():
            async with runtime:
                outcome = await run.until_done()
        report.finish(outcome)
        unpriced = (outcome.usage or {}).get("unpriced")
        if limits.max_cost_usd is not None and unpriced:
            invocation.output.say(f"no price is known for {', '.join(unpriced)}: --max-cost could not count it")
        return outcome.code
