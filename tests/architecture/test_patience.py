"""What a test waits for comes, however slow the machine is: a limit on the wait ends a hang, and decides nothing else."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.source import python_files

HANGS_AFTER_S = 60
LIMITED = {"timeout": 0, "wait_for": 1}  # what asyncio has, and where the limit stands


def _limits(tree: ast.Module) -> Iterator[ast.Constant]:
    for call in ast.walk(tree):
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and isinstance(call.func.value, ast.Name)
            and call.func.value.id == "asyncio"
            and (place := LIMITED.get(call.func.attr)) is not None
        ):
            by_name = [keyword.value for keyword in call.keywords if keyword.arg == "timeout"]
            for limit in [*call.args[place : place + 1], *by_name]:
                if isinstance(limit, ast.Constant):
                    yield limit


def test_limits_that_end_a_hang_leave_a_slow_machine_its_time() -> None:
    """A number of seconds in a test is a minute, or so short that nothing is to come; one that states a behaviour has a name."""
    hasty = [
        f"{file.name}:{limit.lineno} waits {limit.value} s"
        for file in python_files("tests")
        for limit in _limits(file.tree)
        if isinstance(limit.value, int | float) and 1 <= limit.value < HANGS_AFTER_S
    ]
    assert not hasty, "\n".join(hasty)
