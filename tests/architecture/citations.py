"""Which promises and requirements exist, and which of them the tests cite."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.architecture.source import ROOT, SourceFile, python_files

PROMISE = re.compile(r"\b([A-C])(\d{1,2})\b(?:\s*[-–]\s*\1?(\d{1,2})\b)?")
REQUIREMENT = re.compile(r"\b([A-Z]{2,3})-(\d{1,3})\b(?:\s*(?:\.\.|[-–])\s*(?:\1-)?(\d{1,3})\b)?")
DEFINITION = re.compile(r"^\s*(?:[-*]\s+|\|\s*|#+\s+)?\*\*([A-Z]{2,3}-\d{1,3})\b[^*]*\*\*", re.MULTILINE)


def promises() -> dict[str, str]:
    """Return the promises by number, with one sentence each."""
    table = tomllib.loads((ROOT / "docs" / "promises.toml").read_text(encoding="utf-8"))
    found: dict[str, str] = table["promises"]
    return found


def defined_requirements(folder: Path) -> list[str]:
    """Return the numbers defined at the start of a line in the folder's pages, doubles included."""
    pages = sorted(folder.glob("**/*.md")) if folder.exists() else []
    return [number for page in pages for number in DEFINITION.findall(page.read_text(encoding="utf-8"))]


def _expanded(matches: Iterable[re.Match[str]], *, separator: str) -> Iterator[str]:
    for match in matches:
        first = int(match[2])
        last = int(match[3]) if match[3] else first
        for number in range(first, max(first, last) + 1):
            yield f"{match[1]}{separator}{number}"


def cited_in(text: str) -> set[str]:
    """Return the numbers that a text cites; `A30-A33` and `EV-1..EV-4` stand for all between."""
    return {
        *_expanded(PROMISE.finditer(text), separator=""),
        *_expanded(REQUIREMENT.finditer(text), separator="-"),
    }


def cited_by_decorator(file: SourceFile) -> set[str]:
    """Return what the conformance suite cites: `@requirement(30, "A39")` checks ST-30 and A39."""
    numbers: set[str] = set()
    for function in file.functions():
        for call in function.decorator_list:
            if not isinstance(call, ast.Call) or ast.unparse(call.func) != "requirement":
                continue
            for argument in call.args:
                match argument:
                    case ast.Constant(value=int(number)):
                        numbers.add(f"ST-{number}")
                    case ast.Constant(value=str(text)):
                        numbers |= cited_in(text)
    return numbers


def citing_files() -> list[SourceFile]:
    """Return the tests and the shipped conformance suite; this folder's own bookkeeping cites nothing."""
    bookkeeping = {"tests/architecture/citations.py", "tests/architecture/test_promises.py"}
    return [file for file in python_files("tests", "src/kipu/testing/conformance") if file.name not in bookkeeping]


def cited() -> set[str]:
    """Return every number cited in a docstring or comment of the tests, or by the conformance suite."""
    numbers: set[str] = set()
    for file in citing_files():
        numbers |= cited_by_decorator(file)
        for text in [*file.docstrings(), *(comment for _, comment in file.comments())]:
            numbers |= cited_in(text)
    return numbers
