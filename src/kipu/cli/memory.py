"""`kipu memory`: what outlives sessions, seen and changed by the person it is about."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from kipu.cli.agent_guard import require_a_person
from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, SessionArgument, StoreOption

if TYPE_CHECKING:
    from kipu.manager.manager import SessionManager
    from kipu.memory.memory import Memory
    from kipu.ports.memory import Fact, FactQuery, FactStatus, Kind, Scope

app = typer.Typer(add_completion=False)
memory = typer.Typer(
    add_completion=False,
    help="What outlives sessions: `ls`, `show`, `search`, `add`, `edit`, `forget`, `consolidate`.",
)
app.add_typer(memory, name="memory")

FactArgument = Annotated[str, typer.Argument(metavar="ID", help="A fact's id, as `kipu memory ls` shows it.")]
ScopeOption = Annotated[str | None, typer.Option("--scope", help="session, project, user or tenant.")]
KindOption = Annotated[str | None, typer.Option("--kind", help="preference, project_fact or verified_experience.")]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")]
SessionOption = Annotated[str | None, typer.Option("--session", metavar="ID", help="Only what was learned there.")]
AcceptOption = Annotated[bool, typer.Option("--accept", help="Let it stand although it looks suspicious.")]
_PAGE = 500


@memory.callback(invoke_without_command=True)
def memory_alone(context: typer.Context, *, store: StoreOption = None, json: JsonOption = False) -> None:
    """What outlives sessions: `ls`, `show`, `search`, `add`, `edit`, `forget`, `consolidate`; alone it is `ls`."""
    if context.invoked_subcommand is None:
        invocation = begin(context, store=store, json=json)
        invocation.run(_ls(invocation, {}, limit=100))


@asynccontextmanager
async def opened_memory(invocation: Invocation) -> AsyncIterator[tuple[SessionManager, Memory]]:
    """Open the store in force and its memory, and close both."""
    from kipu.wiring import open_memory

    async with invocation.manager() as manager:
        opened = open_memory(manager, invocation.store_url)
        try:
            yield manager, opened
        finally:
            await opened.store.close()


@memory.command("ls")
def ls(
    context: typer.Context,
    *,
    scope: ScopeOption = None,
    kind: KindOption = None,
    status: Annotated[
        str | None, typer.Option("--status", help="active, quarantined, superseded, or all (default: the first two).")
    ] = None,
    session: SessionOption = None,
    limit: LimitOption = 100,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """List what is remembered, the newest first; what looks like an attack is there as quarantined, and recalled to nobody."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_ls(invocation, _checked(scope, kind, status, session=session), limit=limit))


async def _ls(invocation: Invocation, wanted: dict[str, Any], *, limit: int) -> None:
    async with opened_memory(invocation) as (manager, opened):
        query = await _query(manager, wanted)
        found: list[Fact] = []
        scope = wanted.get("scope")
        while True:
            page = await opened.facts(query, principal=manager.principal)
            found += [fact for fact in page.items if scope in (None, fact.space.scope)]
            if page.cursor is None or len(found) >= limit:
                break
            query = _next(query, page.cursor)
    _show_all(invocation, found[:limit])
    if not found and not invocation.json:
        invocation.output.say(
            "nothing is remembered yet; sessions are taken in when they are idle, or by `kipu memory consolidate`"
        )


@memory.command("search")
def search(
    context: typer.Context,
    *,
    words: Annotated[list[str], typer.Argument(metavar="WORDS...", help="All must be in it; word* finds longer ones.")],
    kind: KindOption = None,
    status: Annotated[str | None, typer.Option("--status", help="active, quarantined, superseded, or all.")] = None,
    session: SessionOption = None,
    limit: LimitOption = 20,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Find facts by their words, in any language, the newest first."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_search(invocation, " ".join(words), _checked(None, kind, status, session=session), limit))


async def _search(invocation: Invocation, text: str, wanted: dict[str, Any], limit: int) -> None:
    from dataclasses import replace

    async with opened_memory(invocation) as (manager, opened):
        query = replace(await _query(manager, wanted), limit=limit)
        page = await opened.search(text, query, principal=manager.principal)
    _show_all(invocation, page.items)
    if not page.items and not invocation.json:
        invocation.output.say("nothing found")


@memory.command("show")
def show(context: typer.Context, *, fact: FactArgument, store: StoreOption = None, json: JsonOption = False) -> None:
    """Show one fact and why it is there: who said it where, what was found in it, when it was recalled."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_show(invocation, fact))


async def _show(invocation: Invocation, fact_id: str) -> None:
    from kipu.cli.memory_view import fact_details, fact_json

    async with opened_memory(invocation) as (manager, opened):
        fact = await opened.fact(fact_id, principal=manager.principal)
        if invocation.json:
            invocation.output.emit(fact_json(fact))
        else:
            invocation.output.facts(await fact_details(manager, fact))


@memory.command("add")
def add(
    context: typer.Context,
    *,
    text: Annotated[list[str], typer.Argument(metavar="TEXT...", help="What to remember: one sentence.")],
    scope: ScopeOption = None,
    kind: KindOption = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="ID", help="For this session, or for its project.")
    ] = None,
    accept: AcceptOption = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Remember something yourself: for all your sessions, or with --session for one of them or its project."""
    invocation = begin(context, store=store, json=json)
    wanted = _checked(scope, kind, None, session=session)
    invocation.run(_add(invocation, " ".join(text), wanted, accept=accept))


async def _add(invocation: Invocation, text: str, wanted: dict[str, Any], *, accept: bool) -> None:
    from kipu.cli.reference import find_session
    from kipu.errors import InputError
    from kipu.memory.place import MemoryPlace
    from kipu.ports.memory import Space

    async with opened_memory(invocation) as (manager, opened):
        require_a_person(manager.principal.id)
        me, scope = manager.principal, cast("Scope | None", wanted["scope"])
        if wanted["session"] is not None:
            head = (await find_session(manager, wanted["session"])).head
            place = MemoryPlace.of(head)
            space = place.space(scope or place.narrowest)
        elif scope in ("session", "project"):
            raise InputError(reason=f"say which {scope}: --session ID names a session of it")
        else:
            space = Space(me.tenant, me.id, scope or "user", "" if scope == "tenant" else me.id)
        kind = cast("Kind", wanted["kind"] or "preference")
        fact = await opened.add(space, text, kind=kind, accept=accept, principal=me)
    _told(invocation, fact, "kept")


@memory.command("edit")
def edit(
    context: typer.Context,
    *,
    fact: FactArgument,
    text: Annotated[str | None, typer.Option("--text", help="What it is to say.")] = None,
    scope: ScopeOption = None,
    kind: KindOption = None,
    accept: AcceptOption = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Put your version in a fact's place, or with --accept alone let a quarantined one stand. The old one stays as superseded."""
    invocation = begin(context, store=store, json=json)
    wanted = _checked(scope, kind, None)
    invocation.run(_edit(invocation, fact, text, wanted, accept=accept))


async def _edit(
    invocation: Invocation, fact_id: str, text: str | None, wanted: dict[str, Any], *, accept: bool
) -> None:
    async with opened_memory(invocation) as (manager, opened):
        require_a_person(manager.principal.id)
        fact = await opened.edit(
            fact_id,
            text=text,
            kind=cast("Kind | None", wanted["kind"]),
            scope=cast("Scope | None", wanted["scope"]),
            accept=accept,
            principal=manager.principal,
        )
    _told(invocation, fact, "kept")


@memory.command("forget")
def forget(
    context: typer.Context,
    *,
    facts: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of facts.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Remove every byte of facts from memory for good. What sessions say stays in them; `kipu erase` removes those."""
    invocation = begin(context, store=store, json=json)
    if not yes:
        invocation.confirm(f"Forget {', '.join(facts)} for good?")
    invocation.run(_forget(invocation, facts))


async def _forget(invocation: Invocation, fact_ids: list[str]) -> None:
    from kipu.cli.memory_view import fact_json

    async with opened_memory(invocation) as (manager, opened):
        require_a_person(manager.principal.id)
        for fact_id in fact_ids:
            await opened.fact(fact_id, principal=manager.principal)  # all are there before any goes
        gone = [await opened.forget(fact_id, principal=manager.principal) for fact_id in dict.fromkeys(fact_ids)]
    if invocation.json:
        invocation.output.emit([fact_json(fact) for fact in gone])
        return
    for fact in gone:
        invocation.output.say(f"{fact.fact_id} is forgotten: {fact.text}")


@memory.command("consolidate")
def consolidate(
    context: typer.Context,
    *,
    session: SessionArgument,
    everything: Annotated[bool, typer.Option("--all", help="Take the newest exchanges in too.")] = False,
    rules: Annotated[bool, typer.Option("--rules", help="Ask no model.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Take a session into memory now: by its model, or by rules where there is none. Its newest exchanges stay out."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_consolidate(invocation, session, everything=everything, rules=rules))


async def _consolidate(invocation: Invocation, text: str, *, everything: bool, rules: bool) -> None:
    from kipu.cli.memory_view import fact_json
    from kipu.cli.reference import find_head
    from kipu.cli.runtime_settings import model_opener
    from kipu.manager.access import Verb
    from kipu.memory.consolidation import require_some

    async with opened_memory(invocation) as (manager, opened):
        session_id = await find_head(manager, text, verb=Verb.CONFIGURE)
        head = await manager.store.head(session_id)
        name = head.metadata.get("model") if head is not None else None
        model = None if rules else model_opener(invocation.settings)(name if isinstance(name, str) else None)
        try:
            if model is not None and model.describe().is_ai:
                opened.worker.ask(lambda _session: model)
            keep = 0 if everything else opened.worker.policy.keep_exchanges
            found = await opened.worker.consolidate(session_id, keep_exchanges=keep)
        finally:
            if model is not None:
                await model.aclose()
    done = require_some(found, session_id=session_id, keep_exchanges=keep)
    if invocation.json:
        ranges = {"session_id": session_id, "from_seq": done.from_seq, "to_seq": done.to_seq, "model": done.model}
        invocation.output.emit({**ranges, "facts": [fact_json(fact) for fact in done.facts]})
        return
    _show_all(invocation, done.facts)
    how = f"by {done.model}" if done.model else "by rules"
    invocation.output.say(f"events {done.from_seq} to {done.to_seq} are in memory, {how}: {len(done.facts)} facts")


# ---- shared ------------------------------------------------------------------------------------------------------------


def _checked(scope: str | None, kind: str | None, status: str | None, *, session: str | None = None) -> dict[str, Any]:
    """Return the words given. Raises: InputError for one that means nothing."""
    from kipu.errors import InputError
    from kipu.ports.memory import KINDS, SCOPES, STATUSES

    for name, value, known in (
        ("scope", scope, SCOPES),
        ("kind", kind, KINDS),
        ("status", status, (*STATUSES, "all")),
    ):
        if value is not None and value not in known:
            raise InputError(reason=f"--{name} is one of {', '.join(known)}, not {value!r}")
    return {"scope": scope, "kind": kind, "status": status, "session": session}


async def _query(manager: SessionManager, wanted: dict[str, Any]) -> FactQuery:
    from kipu.cli.reference import find_head
    from kipu.ports.memory import FactQuery

    status, kind, session = wanted.get("status"), wanted.get("kind"), wanted.get("session")
    statuses = frozenset({status}) if status else frozenset({"active", "quarantined"})
    return FactQuery(
        statuses=None if status == "all" else cast("frozenset[FactStatus]", statuses),
        kinds=cast("frozenset[Kind]", frozenset({kind})) if kind else None,
        session_id=await find_head(manager, session) if session is not None else None,
        limit=_PAGE,
    )


def _next(query: FactQuery, cursor: str) -> FactQuery:
    from dataclasses import replace

    return replace(query, cursor=cursor)


def _show_all(invocation: Invocation, facts: Any) -> None:
    from kipu.cli.memory_view import COLUMNS, fact_json, fact_row

    if invocation.json:
        invocation.output.emit([fact_json(fact) for fact in facts])
    else:
        invocation.output.table(COLUMNS, (fact_row(fact) for fact in facts))


def _told(invocation: Invocation, fact: Fact, word: str) -> None:
    from kipu.cli.memory_view import FINDINGS, fact_json

    if invocation.json:
        invocation.output.emit(fact_json(fact))
        return
    invocation.output.say(f"{word}: {fact.fact_id} ({fact.space.scope}) {fact.text}")
    if fact.status == "quarantined":
        why = "; ".join(FINDINGS.get(finding, finding) for finding in fact.findings)
        invocation.output.say(
            f"it is quarantined, because {why}: kipu memory edit {fact.fact_id} --accept lets it stand"
        )
