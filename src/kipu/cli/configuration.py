"""`kipu config`."""

from __future__ import annotations

from typing import Annotated

import typer

from kipu.cli.config_file import ConfigFile
from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, StoreOption
from kipu.cli.settings import KNOWN
from kipu.errors import ConfigurationError

app = typer.Typer(add_completion=False)
config = typer.Typer(add_completion=False)
app.add_typer(config, name="config")


@config.callback(invoke_without_command=True)
def show(context: typer.Context, *, store: StoreOption = None, json: JsonOption = False) -> None:
    """Show every setting in force and where it comes from; change the file with set and unset."""
    if context.invoked_subcommand is not None:
        return
    _show(begin(context, store=store, json=json))


@config.command("set")
def set_value(
    context: typer.Context,
    *,
    name: Annotated[str, typer.Argument(help=", ".join(KNOWN))],
    value: Annotated[str, typer.Argument(help="Its value.")],
    json: JsonOption = False,
) -> None:
    """Set a value in the configuration file."""
    invocation = begin(context, json=json)
    _check(name, value)
    ConfigFile(invocation.settings.path).change({name: value})
    _show(begin(context, json=json))


@config.command("unset")
def unset(context: typer.Context, *, name: Annotated[str, typer.Argument()], json: JsonOption = False) -> None:
    """Remove a value from the configuration file."""
    invocation = begin(context, json=json)
    ConfigFile(invocation.settings.path).change({name: None})
    _show(begin(context, json=json))


def _check(name: str, value: str) -> None:
    if name not in KNOWN:
        raise ConfigurationError(reason=f"there is no setting {name!r}; there are {', '.join(KNOWN)}")
    if not value.strip():
        raise ConfigurationError(reason=f"{name} would be empty; use kipu config unset {name}")
    if name == "store":
        from kipu.store_url import StoreUrl

        StoreUrl.parse(value)
    if name == "project":
        from kipu.session.key import SessionKey

        SessionKey("cli", value)
    choices = KNOWN[name].choices
    if choices and value not in choices:
        raise ConfigurationError(reason=f"{name} is one of {', '.join(choices)}")
    if name == "tokens":
        from kipu.wiring import token_counter

        token_counter(value)  # refused now, not by every command that follows


def _show(invocation: Invocation) -> None:
    settings = invocation.settings.all()
    if invocation.json:
        invocation.output.emit(
            {
                "file": str(invocation.settings.path),
                "settings": [{"name": each.name, "value": each.shown, "source": each.source} for each in settings],
            }
        )
        return
    rows = [(each.name, each.shown or "", each.source, KNOWN[each.name].meaning) for each in settings]
    invocation.output.table(("setting", "value", "from", "meaning"), rows)
    invocation.output.say(f"configuration file: {invocation.settings.path}")
