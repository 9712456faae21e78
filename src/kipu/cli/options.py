"""Options and arguments that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from kipu.cli.completion import complete_session

StoreOption = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help="Use this store (default: KIPU_STORE, config, your data folder)."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON to stdout; messages go to stderr.")]
ChainOption = Annotated[
    bool, typer.Option("--chain", help="Chain events by keyed tags, so that a dropped one is found.")
]
FieldsOption = Annotated[
    str | None,
    typer.Option("--fields", metavar="NAMES", help="Seal these fields of events alone (default: whole bodies)."),
]
SessionArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="A session id, the unique start or end of one, or a key.", autocompletion=complete_session
    ),
]
