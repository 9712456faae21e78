"""`kipu conformance`: the one shipped module that uses kipu.testing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kipu.cli.exit_code import ExitCode
from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, StoreOption

if TYPE_CHECKING:
    from kipu.testing.conformance import Report

app = typer.Typer(add_completion=False)


@app.command("conformance")
def conformance(
    context: typer.Context,
    *,
    url: Annotated[
        str, typer.Argument(metavar="URL", help="The kind of store; fresh ones are made, yours is not touched.")
    ],
    requirement: Annotated[list[str] | None, typer.Option("--requirement", "-r", help="Only these, by number.")] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Run the conformance suite against a kind of store and print the matrix. Ends with 1 where a requirement is unmet."""
    invocation = begin(context, store=store, json=json)
    if not invocation.run(_conformance(invocation, url, requirement or [])):
        raise typer.Exit(ExitCode.FAILURE)


async def _conformance(invocation: Invocation, url: str, wanted: list[str]) -> bool:
    from kipu.cli.progress import progress_bar
    from kipu.errors import InputError
    from kipu.store_url import StoreUrl
    from kipu.testing.conformance import all_requirements, run

    StoreUrl.parse(url)
    chosen = [each for each in all_requirements() if not wanted or each.id in wanted]
    if not chosen:
        raise InputError(reason=f"there is no requirement {', '.join(wanted)}")
    with progress_bar(invocation.output, url, unit="requirements") as bar:
        bar.expect(len(chosen))
        done = 0

        def each(_finding: object) -> None:
            nonlocal done
            done += 1
            bar.done(done)

        report = await run(url, requirements=chosen, each=each)
    _write(invocation, report)
    return report.conforms


def _write(invocation: Invocation, report: Report) -> None:
    output = invocation.output
    if output.json:
        output.emit(report.to_json())
        return
    if not output.rich:
        output.write(report.to_text() + "\n")
        return
    rows = [
        (found.outcome.value, found.requirement.id, ",".join(found.requirement.promises), found.requirement.sentence)
        for found in report.findings
    ]
    output.table(("outcome", "id", "promises", "requirement"), rows, title=report.store)
    for found in report.findings:
        if found.detail and found.outcome.value == "failed":
            output.line(f"{found.requirement.id}: {found.detail}", style="red")
    output.line(", ".join(f"{count} {name}" for name, count in report.counts().items()), style="bold")
