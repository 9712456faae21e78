"""The command line: its commands, its common options, and how errors end."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import TextIOWrapper
from itertools import pairwise
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kipu.cli.exit_code import ExitCode, exit_code_of
from kipu.cli.options import JsonOption, StoreOption
from kipu.errors import KipuError

_HELP = """Keep the sessions of AI agents: chat, run, list, search, fork, rewind, export, copy, verify. Begin with `kipu demo`.

Exit codes: 0 done · 1 failed, damage or secrets · 2 usage · 3 not found · 4 busy or conflict · 5 store unreadable · 6 denied · 130 Ctrl-C.
`kipu run` has more: 10 failed · 11 waits for a person · 12 a limit · 13 stopped · 143 SIGTERM.
"""
# Typer carries its own click; the class is named through what it exports.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]
# Loaded only for the command that was named, so that `kipu ls` does not pay for the others.
_MODULES = {
    "chat": "chat.command",
    "run": "run.command",
    "demo": "demo.command",
    "approvals": "approving",
    "approve": "approving",
    "answer": "approving",
    "deny": "approving",
    "grants": "granting",
    "revoke": "granting",
    "policy": "policy_check",
    "proposals": "proposing",
    "memory": "memory",
    "status": "controlling",
    "stop": "controlling",
    "queue": "controlling",
    "send": "controlling",
    "pick": "pick",
    "ls": "listing",
    "show": "show",
    "search": "searching",
    "stats": "statistics",
    "fork": "branching",
    "rewind": "branching",
    "undo": "workspace_files",
    "diff": "workspace_files",
    "rename": "labels",
    "tag": "labels",
    "pin": "labels",
    "window": "window",
    "replay": "replay",
    "export": "exporting",
    "import": "importing",
    "copy": "copying",
    "share": "sharing",
    "unshare": "sharing",
    "members": "sharing",
    "audit": "sharing",
    "trash": "trash",
    "restore": "trash",
    "archive": "archiving",
    "unarchive": "archiving",
    "gc": "collecting",
    "worker": "working",
    "store": "upkeep",
    "erase": "erasing",
    "receipts": "erasing",
    "hold": "erasing",
    "release": "erasing",
    "verify": "verifying",
    "encrypt": "sealing",
    "decrypt": "sealing",
    "key": "keys",
    "scan": "scanning",
    "reveal": "revealing",
    "conformance": "conformance",
    "config": "configuration",
}
_PLACES = ("-o", "--output", "--to", "--from", "--blobs", "--quarantine", "--save", "--against", "--workspace")
_NAMING = (*_PLACES, "--model", "--project")


class KipuGroup(TyperGroup):
    """Load commands by name, and end errors with their message, their code and the documented exit code."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order they are documented."""
        return list(_MODULES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return one command, its module loaded now."""
        if cmd_name not in _MODULES:
            return None
        module = import_module(f"kipu.cli.{_MODULES[cmd_name]}")
        made: Any = typer.main.get_command(module.app)
        return made.commands[cmd_name] if cmd_name in getattr(made, "commands", {}) else made

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the rest of the words; `--resume=ID` is also written so, though the session is a word of its own."""
        words: list[str] = []
        for word in args:
            name, equals, value = word.partition("=")
            words.extend([name, value] if name == "--resume" and equals else [word])
        try:
            _refuse_unnamed(words)
            return super().parse_args(ctx, words)
        except UsageError as error:
            _refuse(error)
            raise typer.Exit(ExitCode.USAGE) from error

    def invoke(self, ctx: Any) -> Any:
        """Run the command; no traceback for what Kipu can name."""
        try:
            return super().invoke(ctx)
        except UsageError as error:
            _refuse(error)
            raise typer.Exit(ExitCode.USAGE) from error
        except KipuError as error:
            _complain(str(error), error.code)
            raise typer.Exit(exit_code_of(error)) from error
        except BrokenPipeError:
            raise
        except OSError as error:
            reason = (
                f"{error.strerror or error}: {error.filename2 or error.filename}"
                if error.filename
                else error.strerror or str(error)
            )
            _complain(f"{reason}. Correct the path or its permissions, or make room, and run it again.", "os")
            raise typer.Exit(ExitCode.FAILURE) from error
        except KeyboardInterrupt as error:
            sys.stderr.write("\n")
            raise typer.Exit(ExitCode.INTERRUPTED) from error


def _refuse_unnamed(words: list[str]) -> None:
    """Raise where a place, a model or a project is named by nothing: rather that than another one (a path "" is where one stands)."""
    for word, following in pairwise([*words, "."]):
        if word == "--":
            return
        name, equals, value = word.partition("=")
        if name in _NAMING and not (value if equals else following):  # a variable that is not set
            raise typer.BadParameter(f"{name} is empty; name it, or leave it out")


def _refuse(error: Any) -> None:
    """Say what is wrong with the words given, in one line; where there are none, the help is shown instead."""
    if type(error).__name__ == "NoArgsIsHelpError":
        raise error
    message = " ".join(error.format_message().split()).rstrip(".")
    words = error.ctx.command_path.split()[1:] if error.ctx is not None else []
    _complain(f"{message}. See {' '.join(('kipu', *words))} --help", "usage")


def _complain(message: str, code: str) -> None:
    from kipu.interop.printable import printable

    sys.stderr.write(f"error: {printable(message)} [{code}]\n")


def _version(wanted: bool) -> None:
    if wanted:
        import kipu

        sys.stdout.write(f"kipu {kipu.__version__}\n")
        raise typer.Exit


def make_app() -> typer.Typer:
    """Return the application."""
    app = typer.Typer(
        cls=KipuGroup, help=_HELP, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich"
    )

    @app.callback()
    def kipu(
        context: typer.Context,
        store: StoreOption = None,
        json: JsonOption = False,
        version: Annotated[
            bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
        ] = False,
    ) -> None:
        """Keep the sessions of AI agents."""
        context.obj = {"store": store, "json": json}

    return app


def _open_closed_streams() -> None:
    """Put the empty device where a process was begun without stdin, stdout or stderr: else a file of a store gets its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


def run() -> None:
    """Run the command line with this process's arguments."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a character the terminal lacks is no reason to stop
    make_app()()
