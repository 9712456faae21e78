"""`kipu reveal`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, SessionArgument, StoreOption

app = typer.Typer(add_completion=False)


@app.command("reveal")
def reveal(
    context: typer.Context,
    *,
    session: SessionArgument,
    seq: Annotated[int, typer.Argument(min=1, help="The event's number.")],
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    r"""Show an event with the secrets that were left out of it. Needs `vault` in \[redaction_rules], and the key it had then.

    Nothing is changed: the log stays without them. What was left out before a vault was configured is gone.
    """
    invocation = begin(context, store=store, json=json)
    invocation.run(_reveal(invocation, session, seq))


async def _reveal(invocation: Invocation, text: str, seq: int) -> None:
    from kipu.cli.redaction_settings import TABLE, vault_of
    from kipu.cli.reference import find_session
    from kipu.cli.transcript import event_json
    from kipu.errors import InputError
    from kipu.manager.access import Verb
    from kipu.security.redaction.vault import restored

    async with invocation.manager() as manager:
        session = await find_session(manager, text, verb=Verb.CONFIGURE)
        vault = vault_of(invocation.settings, os.environ)
        if vault is None:
            reason = f"no vault is configured: vault in [{TABLE}] of {invocation.settings.path} names its key"
            raise InputError(reason=reason)
        found = await session.history.reader.at([seq])
        if seq not in found:
            raise InputError(reason=f"session {session.session_id} has no event {seq}")
        fields = restored(event_json(found[seq].event), open_sealed=vault.open)
    if invocation.json:
        invocation.output.emit(fields)
        return
    for name, value in fields.items():
        invocation.output.write(f"{name}: {value}\n")
