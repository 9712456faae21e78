"""What the demo model does next: a script over calls and results, run again from its start for every window.

So it remembers nothing: the same window gives the same step, also after a crash and in another process.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, field

from kipu.runtime.models.demo_repair import examples_in, imports_in, repair_of
from kipu.runtime.models.demo_requests import Request
from kipu.runtime.models.demo_task import Call, Done

Script = Generator[list[Call], list[Done], None]

TOOLS = {
    "list": "list_dir",
    "read": "read_file",
    "write": "write_file",
    "edit": "edit_file",
    "run": "shell",
    "search": "search_files",
    "fix": "shell",
}
# Without byte code, which would be taken for current when a file changes twice in a second.
TEST_COMMANDS = (
    "python3 -B -m pytest -x -q",
    "python3 -B -m unittest discover -v",
    "python3 -B -m unittest discover -v -s tests",
)
NO_TESTS = re.compile(r"No module named pytest|Ran 0 tests|NO TESTS RAN")
FAILING = (
    re.compile(r"^(?:FAILED|ERROR) (\S+?\.py)(?:::|\b)", re.MULTILINE),
    re.compile(r"^(\S*test\w*\.py):\d+:", re.MULTILINE),
    re.compile(r'File "([^"]*test\w*\.py)", line'),
)
NUMBERED = re.compile(r"^ *\d+\t(.*)$", re.MULTILINE)
MAX_ROUNDS = 3


@dataclass(slots=True)
class Plan:
    """The next calls (none: it is done), and what the script found out on its way, as words of `demo_report.FINDINGS`."""

    calls: list[Call] = field(default_factory=list)
    findings: list[tuple[str, str]] = field(default_factory=list)


def plan_of(requests: Sequence[Request], done: Sequence[Done], *, offered: Collection[str]) -> Plan:
    """Return what comes next after these calls."""
    plan = Plan()
    script = _all(requests, offered, plan.findings)
    waiting = list(done)
    try:
        calls = next(script)
        while len(waiting) >= len(calls):
            taken, waiting = waiting[: len(calls)], waiting[len(calls) :]
            if any(result.is_refused for result in taken):
                return plan  # a no is a no: nothing else is tried
            calls = script.send(taken)
    except StopIteration:
        return plan
    plan.calls = calls[len(waiting) :]
    return plan


def _all(requests: Sequence[Request], offered: Collection[str], findings: list[tuple[str, str]]) -> Script:
    for group in _grouped(requests):
        tool = group[0].details["name"] if group[0].kind == "call" else TOOLS[group[0].kind]
        if tool not in offered:
            findings.append(("no_tool", tool))
            continue
        if group[0].kind in {"list", "read", "search"}:
            yield [_looking(request) for request in group]
        else:
            yield from _doing(group[0], offered, findings)


def _grouped(requests: Sequence[Request]) -> Iterator[list[Request]]:
    """Return what may be called at once: neighbours that only look, of one kind; everything else alone."""
    group: list[Request] = []
    for request in requests:
        together = group and request.kind == group[0].kind and request.kind in {"list", "read", "search"}
        if group and not together:
            yield group
            group = []
        group = [*group, request]
    if group:
        yield group


def _looking(request: Request) -> Call:
    path = request.details.get("path")
    arguments = {"path": path} if path else {}
    if request.kind == "search":
        arguments |= {"pattern": request.details["pattern"], "literal": True}
    return Call(TOOLS[request.kind], arguments)


def _doing(request: Request, offered: Collection[str], findings: list[tuple[str, str]]) -> Script:
    details = request.details
    if request.kind == "call":
        yield [Call(details["name"], details["arguments"])]
    elif request.kind == "write":
        yield from _write(details["path"], details["content"], offered=offered)
    elif request.kind == "edit":
        yield from _edit(details["path"], details["old"], new=details["new"], offered=offered)
    elif request.kind == "fix":
        yield from _fix(request, offered, findings)
    elif details["command"]:
        arguments = {"command": details["command"]}
        yield [Call("shell", {**arguments, "background": True} if details["background"] else arguments)]
    else:
        yield from _tests(None, "")


def _write(path: str, content: str, *, offered: Collection[str]) -> Script:
    call = Call("write_file", {"path": path, "content": content})
    (written,) = yield [call]
    if written.is_error and "read it first" in written.result.lower() and "read_file" in offered:
        (read,) = yield [Call("read_file", {"path": path})]
        if not read.is_error:
            yield [call]


def _edit(path: str, old: str, *, new: str, offered: Collection[str]) -> Script:
    if "read_file" in offered:
        (read,) = yield [Call("read_file", {"path": path})]
        if read.is_error:
            return
    yield [Call("edit_file", {"path": path, "edits": [{"old_text": old, "new_text": new}]})]


def _tests(command: str | None, path: str) -> Generator[list[Call], list[Done], tuple[str, Done]]:
    """Run the tests, in the first way that finds any; return the command and its result."""
    commands = (command,) if command else TEST_COMMANDS
    for number, chosen in enumerate(commands):
        arguments = {"command": chosen, "cwd": path} if path else {"command": chosen}
        (ran,) = yield [Call("shell", arguments)]
        if not NO_TESTS.search(ran.result) or number == len(commands) - 1:
            return chosen, ran
    raise AssertionError("there is a command")


def _fix(request: Request, offered: Collection[str], findings: list[tuple[str, str]]) -> Script:
    """Run the tests; while they fail, look into the test and what it imports, change one line, and run them again."""
    path = request.details["path"].rstrip("/")
    command: str | None = request.details["command"] or None
    for round_number in range(MAX_ROUNDS + 1):
        command, ran = yield from _tests(command, path)
        if not ran.is_error:
            nothing = NO_TESTS.search(ran.result) is not None
            findings.append(("no_tests" if nothing else "passes" if round_number == 0 else "fixed", command))
            return
        if round_number == MAX_ROUNDS or not {"read_file", "edit_file"} <= set(offered):
            break
        changed = yield from _repair(ran, path, findings)
        if not changed:
            break
    findings.append(("still_fails", command or ""))


def _repair(ran: Done, path: str, findings: list[tuple[str, str]]) -> Generator[list[Call], list[Done], bool]:
    """Change one line; return whether that was done."""
    test = yield from _first_read([_below(path, name) for name in _failing_files(ran.result)])
    if test is None:
        findings.append(("no_test_file", ""))
        return False
    examples = examples_in(test)
    modules = dict.fromkeys(
        module
        for name, module in imports_in(test).items()
        if module not in sys.stdlib_module_names
        and (name == module or any(example.function == name for example in examples))
    )
    for module in modules:
        places = [_below(path, f"{folder}{module.replace('.', '/')}.py") for folder in ("", "src/")]
        found = yield from _first_file(places)
        repair = repair_of(found[1], examples) if found is not None else None
        if found is not None and repair is not None:
            edits = [{"old_text": repair.old_text, "new_text": repair.new_text}]
            (edited,) = yield [Call("edit_file", {"path": found[0], "edits": edits})]
            if not edited.is_error:
                findings.append(("changed", f"{found[0]}: “{repair.old_line}” → “{repair.new_line}”"))
            return not edited.is_error
    findings.append(("no_fault", ""))
    return False


def _failing_files(output: str) -> list[str]:
    """Return where the failing test may stand, relative to the project; of an absolute path its last parts are tried."""
    for form in FAILING:
        found = form.search(output)
        if found is None:
            continue
        name = found.group(1)
        if not name.startswith("/"):
            return [name.removeprefix("./")]
        parts = name.split("/")
        nested = "/".join(parts[-2:])
        return [nested, parts[-1]] if parts[-2].startswith("test") else [parts[-1], nested]
    return []


def _below(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def _first_read(paths: Sequence[str]) -> Generator[list[Call], list[Done], str | None]:
    found = yield from _first_file(paths)
    return found[1] if found is not None else None


def _first_file(paths: Sequence[str]) -> Generator[list[Call], list[Done], tuple[str, str] | None]:
    """Read the first of these files that is there; return its path and its text."""
    for path in paths:
        (read,) = yield [Call("read_file", {"path": path})]
        if not read.is_error:
            return path, plain_text(read.result)
    return None


def plain_text(numbered: str) -> str:
    """Return a file's text from numbered lines."""
    return "\n".join(NUMBERED.findall(numbered)) + "\n"
