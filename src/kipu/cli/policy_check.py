"""`kipu policy`: the rules in force, and what they say about one call."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kipu.cli.completion import complete_session
from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, StoreOption
from kipu.errors import InputError

if TYPE_CHECKING:
    from kipu.manager.manager import SessionManager
    from kipu.manager.session import Session
    from kipu.ports.tool import ToolSpec
    from kipu.runtime.policy.tool_policy import PolicyDecision, ToolPolicy

app = typer.Typer(add_completion=False)


@app.command("policy")
def policy(
    context: typer.Context,
    *,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[check TOOL SUBJECT]", help="What would be decided about this call."),
    ] = None,
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="In this session.", autocompletion=complete_session)
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Show which calls are allowed, asked about or denied, by which layer; a lower layer never widens a higher one."""
    if words and (words[0] != "check" or len(words) < 2):
        raise typer.BadParameter("write: kipu policy check TOOL SUBJECT, such as: kipu policy check shell 'git push'")
    invocation = begin(context, store=store, json=json)
    asked = (words[1], " ".join(words[2:])) if words else None
    invocation.run(_policy(invocation, session, asked=asked))


async def _policy(invocation: Invocation, text: str | None, *, asked: tuple[str, str] | None) -> None:
    from kipu.cli.reference import find_session

    async with _manager(invocation) as manager:
        session = await find_session(manager, text) if text is not None else None
        in_force, specs, notes = await _in_force(invocation, manager, session)
        if asked is None:
            _show(invocation, in_force, specs=specs, notes=notes)
        else:
            await _check(invocation, manager, session, in_force=in_force, specs=specs, asked=asked)


@asynccontextmanager
async def _manager(invocation: Invocation) -> AsyncIterator[SessionManager]:
    """Open the store in force, or an empty one in memory: the rules hold before the first session does."""
    from kipu.cli.place import is_there
    from kipu.wiring import open_manager

    if is_there(invocation.store_url):
        async with invocation.manager() as manager:
            yield manager
    else:
        async with await open_manager("memory://") as manager:
            yield manager


async def _in_force(
    invocation: Invocation, manager: SessionManager, session: Session | None
) -> tuple[ToolPolicy, dict[str, ToolSpec], list[str]]:
    """Return the policy as an agent of this session, or of a new one here, would have it, and the tools it is about."""
    from kipu.cli.serving import settings_of
    from kipu.runtime.agent import session_rules
    from kipu.runtime.agent_builder import SPLITTERS
    from kipu.runtime.delegation import SPEC
    from kipu.runtime.policy.tool_policy import ToolPolicy
    from kipu.runtime.sandbox.opening import open_sandbox
    from kipu.runtime.sandbox.probe import probe_bubblewrap
    from kipu.runtime.tools.default_tools import default_tools
    from kipu.runtime.tools.shell_tools import shell_tools
    from kipu.runtime.workspaces.record import DirectoryIdentity, WorkspaceRecord

    settings = settings_of(invocation)
    kept = session.head.workspace if session is not None else None
    record = WorkspaceRecord.from_json(kept) if kept else None
    if session is None:
        here = _here()
        record = WorkspaceRecord("directory", str(here), "", identity=DirectoryIdentity.of(here))
    project = settings.project(record) if settings.project is not None and record is not None else None
    root = Path(record.path) if record is not None else settings.workspaces
    probe = await probe_bubblewrap()
    sandbox = await open_sandbox(root, session_id="policy", probe=probe, choice=settings.sandbox)
    shell = shell_tools(root, sandbox)
    tools = [*default_tools(root=root, manager=manager), *shell.all()]
    try:
        specs = {tool.spec.name: tool.spec for tool in tools} | {SPEC.name: SPEC}
        in_force = ToolPolicy(
            (*settings.policy, *(project.policy if project is not None else ())),
            splitters=SPLITTERS,
            unsandboxed=frozenset() if shell.shell.is_sandboxed else frozenset({"shell"}),
        )
        notes = [] if shell.shell.is_sandboxed else [f"shell runs without a sandbox: {probe.reason or 'it is off'}"]
    finally:
        for tool in tools:
            await tool.aclose()
    servers = (*settings.servers, *(project.servers if project is not None else ()))
    if servers:
        notes.append(f"tools of MCP servers ({', '.join(one.name for one in servers)}) are not started here")
    return in_force.narrowed(session_rules(session.head.metadata) if session is not None else ()), specs, notes


def _here() -> Path:
    return Path.cwd()


def _show(invocation: Invocation, in_force: ToolPolicy, *, specs: dict[str, ToolSpec], notes: list[str]) -> None:
    output = invocation.output
    defaults = {name: in_force_default(in_force, spec) for name, spec in sorted(specs.items())}
    if output.json:
        output.emit({**in_force.to_json(), "defaults": defaults, "notes": notes})
        return
    rows: list[tuple[str, ...]] = [
        (layer.name, rule.answer, rule.tool, rule.subject, rule.reason or "")
        for layer in in_force.layers
        for rule in layer.rules
    ]
    rows += [("default", answer, name, "*", "") for name, answer in defaults.items()]
    output.table(("layer", "answer", "tool", "subject", "why"), rows)
    for note in notes:
        output.say(note)


def in_force_default(in_force: ToolPolicy, spec: ToolSpec) -> str:
    """Return what holds for a tool where no rule does."""
    unsandboxed = in_force.to_json()["unsandboxed"]
    return "ask" if spec.name in unsandboxed and spec.default_policy == "allow" else spec.default_policy


async def _check(
    invocation: Invocation,
    manager: SessionManager,
    session: Session | None,
    *,
    in_force: ToolPolicy,
    specs: dict[str, ToolSpec],
    asked: tuple[str, str],
) -> None:
    from kipu.cli.granting import grants_of

    tool, subject = asked
    if tool not in specs:
        raise InputError(reason=f"there is no tool {tool!r} here; there are {', '.join(sorted(specs))}")
    decision: PolicyDecision = in_force.decide(specs[tool], subject, principal=manager.principal)
    grant = None
    if decision.answer == "ask" and session is not None:
        grant = await grants_of(manager).matching(session, tool, subject=subject, principal=manager.principal)
    output = invocation.output
    if output.json:
        record: dict[str, Any] = {**decision.to_json(), "grant": None if grant is None else grant.to_json()}
        output.emit({**record, "answer": "allow" if grant is not None else decision.answer})
        return
    if grant is not None:
        output.line(f"allow: {grant.by} allowed it for the {grant.scope} ({grant.grant_id})")
    else:
        output.line(f"{decision.answer}: {decision.reason}")
