"""`kipu erase`, `kipu receipts`, `kipu hold` and `kipu release`: gone for good, the proof of it, and what must not go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kipu.cli.completion import complete_session
from kipu.cli.exit_code import ExitCode
from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, SessionArgument, StoreOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kipu.manager.erasing.receipt import Receipt
    from kipu.manager.manager import SessionManager
    from kipu.ports.principal import Principal

app = typer.Typer(add_completion=False)

PersonOption = Annotated[str | None, typer.Option("--person", metavar="ID", help="All that this person owns.")]
TenantOption = Annotated[str, typer.Option("--tenant", metavar="T", help="The tenant of the person.")]


@app.command("erase")
def erase(
    context: typer.Context,
    *,
    session: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="A whole session id.", autocompletion=complete_session)
    ] = None,
    person: PersonOption = None,
    tenant: TenantOption = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    cascade: Annotated[bool, typer.Option("--cascade", help="Erase forks too.")] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Let forks stand alone: they take over what they share.")
    ] = False,
    proof: Annotated[bool, typer.Option("--proof/--no-proof", help="Search all files afterwards.")] = True,
    receipt: Annotated[bool, typer.Option("--receipt", help="Only show what was erased before.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Remove every byte of a session, or of all that a person owns, for good. There is no way back; `kipu trash` has one.

    Killed in the middle, it is finished by the next command that opens the store.
    """
    if (session is None) == (person is None):
        raise typer.BadParameter("give one session, or --person")
    if person == "":  # a variable that is not set
        raise typer.BadParameter("--person is empty; name the person")
    if cascade and detach:
        raise typer.BadParameter("give one of --cascade and --detach")
    invocation = begin(context, store=store, json=json)
    if receipt:
        invocation.run(_receipts(invocation, session, person=person, tenant=tenant))
        return
    if session is not None and invocation.run(_was_finished_now(invocation, session)):
        return
    if not yes:
        what = session if session is not None else f"all sessions and the memory of {person}"
        invocation.confirm(f"Erase {what} for good?")
    work = _Erasing(invocation, cascade=cascade, detach=detach, proof=proof)
    done = invocation.run(work.person(person, tenant) if person is not None else work.session(session or ""))
    if work.unreadable or (done.proof is not None and done.proof.found):
        raise typer.Exit(ExitCode.FAILURE)


async def _was_finished_now(invocation: Invocation, text: str) -> bool:
    """Show the receipt where opening the store has just ended a killed erasure of this session; else see that it is a whole id."""
    from kipu.cli.reference import find_head
    from kipu.errors import InputError

    async with invocation.manager() as manager:
        for receipt in manager.finished:
            if text in receipt.sessions:
                _tell(invocation, receipt)
                return True
        session_id = await find_head(manager, text)
    if session_id != text:  # what cannot be undone is not done to what was guessed
        raise InputError(reason=f"erase takes a whole id only, and {text} could mean {session_id}")
    return False


class _Erasing:
    def __init__(self, invocation: Invocation, *, cascade: bool, detach: bool, proof: bool) -> None:
        self._invocation = invocation
        self._options: dict[str, Any] = {"cascade": cascade, "detach": detach, "prove": proof}
        self.unreadable: list[str] = []  # sessions that may be the erased person's, and stand

    async def session(self, session_id: str) -> Receipt:
        """Erase one session."""

        async def work(manager: SessionManager, progress: Any) -> Receipt:
            return await manager.erase_session(session_id, progress=progress, **self._options)

        return await self._run(work)

    async def person(self, person: str, tenant: str) -> Receipt:
        """Erase a person. Who can run this command has the store's files: that is an administrator's right."""
        from kipu.ports.principal import Principal
        from kipu.ports.store import SessionQuery

        async def work(manager: SessionManager, progress: Any) -> Receipt:
            receipt = await manager.erase_person(
                Principal(person, tenant), progress=progress, principal=operator(tenant), **self._options
            )
            query = SessionQuery(limit=500, statuses=frozenset({"unreadable"}))
            self.unreadable = [head.session_id async for head in manager.heads(query)]
            return receipt

        return await self._run(work)

    async def _run(self, work: Any) -> Receipt:
        from kipu.cli.progress import progress_bar

        async with self._invocation.manager() as manager:
            with progress_bar(self._invocation.output, "erasing", unit="steps") as bar:

                def moved(_what: str, done: int, total: int) -> None:
                    if total:
                        bar.expect(total)
                    bar.done(done)

                receipt: Receipt = await work(manager, moved)
        _tell(self._invocation, receipt, unreadable=self.unreadable)
        return receipt


def operator(tenant: str) -> Principal:
    """Return whom the command line acts for where it is about other people: whoever has the store's files may."""
    from kipu.ports.principal import LOCAL_ID, Principal

    return Principal(LOCAL_ID, tenant, frozenset({"admin"}))


def _tell(invocation: Invocation, receipt: Receipt, *, unreadable: Sequence[str] = ()) -> None:
    output = invocation.output
    one = len(receipt.sessions) == 1
    for session_id in unreadable:
        output.say(
            f"{session_id} stands: it cannot be read, so nobody can say what of theirs is in it; kipu verify says more",
            style="red",
        )
    if output.json:
        named = {"session_id": receipt.sessions[0]} if one else {}
        left = {"unreadable": list(unreadable)} if unreadable else {}
        output.emit({**named, "erased": True, **receipt.to_json(), **left})
        return
    output.say(f"{receipt.sessions[0]} is erased" if one else f"{len(receipt.sessions)} sessions are erased")
    output.facts(_facts(receipt))
    for kept in receipt.kept:
        output.say(f"kept: {kept}", style="yellow")
    for held in receipt.held:
        output.say(f"{held} is under legal hold and stands", style="yellow")
    for session_id, count in receipt.elsewhere.items():
        said = f"{count} messages of theirs" if count else "what they said in it: it cannot be read, nor counted"
        output.say(f"{session_id} is somebody else's and keeps {said}", style="yellow")
    if receipt.proof is not None and receipt.proof.repeated:
        places = ", ".join(receipt.proof.places)
        output.say(f"words that stood in it stand in {places} too: said elsewhere, or left over", style="yellow")


def _facts(receipt: Receipt) -> list[tuple[str, object]]:
    facts: list[tuple[str, object]] = [("receipt", receipt.erasure_id), ("finished", receipt.finished_at)]
    for place, counts in receipt.removed.items():
        facts.append((place, ", ".join(f"{count} {what}" for what, count in counts.items())))
    if receipt.detached:
        facts.append(("stand alone now", ", ".join(receipt.detached)))
    if receipt.proof is not None:
        proof = receipt.proof
        facts.append(
            (
                "proof",
                f"{proof.found} of {proof.samples} samples found in {proof.files} files, {proof.bytes_read} bytes",
            )
        )
    return facts


@app.command("receipts")
def receipts(
    context: typer.Context,
    *,
    session: Annotated[str | None, typer.Argument(metavar="[ID]", help="Only of this session.")] = None,
    person: PersonOption = None,
    tenant: TenantOption = "",
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Show what was erased: when, how much of what, and nothing of what it said."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_receipts(invocation, session, person=person, tenant=tenant))


async def _receipts(invocation: Invocation, session: str | None, *, person: str | None, tenant: str) -> None:
    from kipu.errors import SessionNotFoundError
    from kipu.ports.principal import Principal

    async with invocation.manager() as manager:
        of = None if person is None else Principal(person, tenant)
        found = await manager.receipts(session_id=session, person=of, principal=operator(tenant))
    if not found and (session is not None or person is not None):
        raise SessionNotFoundError(session_id=session if session is not None else f"those of {person}")
    if invocation.json:
        invocation.output.emit([receipt.to_json() for receipt in found])
        return
    rows = [
        (
            receipt.finished_at,
            receipt.erasure_id,
            receipt.kind,
            str(sum(sum(counts.values()) for counts in receipt.removed.values())),
            ", ".join(receipt.sessions[:3]) + (" …" if len(receipt.sessions) > 3 else ""),
        )
        for receipt in found
    ]
    invocation.output.table(("finished", "receipt", "kind", "removed", "sessions"), rows)


@app.command("hold")
def hold(
    context: typer.Context,
    *,
    session: SessionArgument,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, on record.")],
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Put a session under legal hold: nothing erases it or puts it into the trash until `kipu release`."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_hold(invocation, session, reason))


async def _hold(invocation: Invocation, text: str, reason: str) -> None:
    from kipu.cli.reference import find_head

    async with invocation.manager() as manager:
        session_id = await find_head(manager, text)
        made = await manager.hold_session(session_id, reason=reason)
    if invocation.json:
        invocation.output.emit({"session_id": session_id, "by": made.by, "at": made.at, "reason": made.reason})
    else:
        invocation.output.say(f"{session_id} is held since {made.at} by {made.by}: {made.reason}")


@app.command("release")
def release(
    context: typer.Context, *, session: SessionArgument, store: StoreOption = None, json: JsonOption = False
) -> None:
    """Take the legal hold of a session back."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_release(invocation, session))


async def _release(invocation: Invocation, text: str) -> None:
    from kipu.cli.reference import find_head

    async with invocation.manager() as manager:
        session_id = await find_head(manager, text)
        changed = await manager.release_session(session_id)
    if invocation.json:
        invocation.output.emit({"session_id": session_id, "released": changed})
    else:
        invocation.output.say(f"{session_id} is {'released' if changed else 'not under legal hold'}")
