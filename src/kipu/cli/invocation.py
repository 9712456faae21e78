"""One run of one command: its settings, its output, and how it opens the store."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from kipu.cli.ending import Ending
from kipu.cli.exit_code import ExitCode
from kipu.cli.output import Output
from kipu.cli.settings import Settings

if TYPE_CHECKING:
    from kipu.manager.manager import SessionManager
    from kipu.ports.store import EventStore
    from kipu.ports.vault import VaultPlace
    from kipu.security.key_finder import KeyFinder

T = TypeVar("T")


class Invocation:
    """What a command function works with."""

    def __init__(self, settings: Settings, *, json: bool) -> None:
        self.settings = settings
        self.output = Output(json=json, colours=settings["colours"] or "auto")
        for name in settings.unknown:
            self.output.say(f"{settings.path}: there is no setting {name!r}; it is left alone")

    @property
    def json(self) -> bool:
        """Return True when the result is for a program."""
        return self.output.json

    @property
    def store_url(self) -> str:
        """Return the store in force."""
        from kipu.store_url import default_store_url

        return self.settings["store"] or default_store_url(os.environ)

    @property
    def is_new_user(self) -> bool:
        """Return True where nobody named a store and the default one is not made yet."""
        from kipu.cli.place import is_there

        source = next(setting.source for setting in self.settings.all() if setting.name == "store")
        return source == "default" and not is_there(self.store_url)

    @cached_property
    def find_keys(self) -> KeyFinder:
        """Return what finds the key of an encrypted store; a passphrase is asked for on a terminal, once."""
        from kipu.cli.passphrase import asking
        from kipu.security.key_finder import KeyFinder
        from kipu.stores.host import SystemEntropy

        ask = asking("Passphrase of the store")
        return KeyFinder(os.environ, entropy=SystemEntropy(), setting=self.settings["key"], ask=ask)

    async def vault(self) -> tuple[str | None, VaultPlace]:
        """Return what the store's URL names as its key, and where its key vault is. Raises: InputError where there is none."""
        from kipu.cli.place import require_place
        from kipu.errors import InputError
        from kipu.store_parts import refuse_remains, shown_url, vault_place
        from kipu.store_url import StoreUrl

        require_place(self.store_url, create=False)
        parsed = StoreUrl.parse(self.store_url)
        refuse_remains(parsed)
        place = vault_place(parsed)
        if not await place.is_there():
            raise InputError(reason=f"{shown_url(parsed)} has no key vault; `kipu key status` says more")
        return parsed.settings.get("encrypt"), place

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a command's work to its end, which comes in order at SIGTERM too, and when the terminal is closed.

        Raises: KeyboardInterrupt, also where Ctrl-C cancelled it from within; SystemExit after another signal.
        """
        ending = Ending()
        try:
            return asyncio.run(ending.ends(work))
        except asyncio.CancelledError:
            if ending.number is not None:
                raise SystemExit(128 + ending.number) from None
            raise KeyboardInterrupt from None

    def confirm(self, question: str) -> None:
        """Go on if a person says yes to what cannot be taken back.

        Raises: InputError (there is nobody to ask: a program, or a script whose input has ended), typer.Exit (no).
        """
        from kipu.errors import InputError

        if self.json:
            raise InputError(reason="with --json nobody is asked; --yes says that it is meant")
        sys.stderr.write(f"{question} [y/N]: ")
        sys.stderr.flush()
        answer = sys.stdin.readline()
        if not answer:
            sys.stderr.write("\n")
            raise InputError(reason="nobody answered; --yes says that it is meant")
        if answer.strip().lower() not in {"y", "yes"}:
            self.output.say("nothing was changed")
            raise typer.Exit(ExitCode.FAILURE)

    @asynccontextmanager
    async def manager(self, *, create: bool = False) -> AsyncIterator[SessionManager]:
        """Open the manager over the store in force, made only with `create`, and close it. Raises: StoreNotFoundError.

        Secrets are left out of what it writes, unless that is switched off.
        """
        from kipu.cli.place import require_place
        from kipu.cli.redaction_settings import redactor_source
        from kipu.wiring import open_manager

        require_place(self.store_url, create=create)
        redactor = redactor_source(self.settings, os.environ)
        counter = self.settings["tokens"] or "estimate"
        async with await open_manager(
            self.store_url,
            counter=counter,
            find_keys=self.find_keys,
            redactor=redactor,
            archive=self.settings["archive"],
        ) as manager:
            yield manager

    @asynccontextmanager
    async def store(self) -> AsyncIterator[EventStore]:
        """Open the store alone, for what needs no session, and close it. Raises: StoreNotFoundError."""
        from kipu.cli.place import require_place
        from kipu.wiring import open_store

        require_place(self.store_url, create=False)
        store = await open_store(self.store_url, find_keys=self.find_keys, archive=self.settings["archive"])
        try:
            yield store
        finally:
            await store.close()


def begin(context: typer.Context, *, store: str | None = None, json: bool = False, **options: str | None) -> Invocation:
    """Return this run; options before the command's name count where the command's own were not given."""
    outer: dict[str, Any] = context.find_root().obj or {}
    given = {"store": outer.get("store") if store is None else store, **options}
    if given["store"] == "":  # a variable that is not set: rather nothing than another store
        raise typer.BadParameter("--store is empty; name the store, or leave it out")
    return Invocation(Settings.load(os.environ, options=given), json=json or bool(outer.get("json")))
