"""Repairing one small fault by rules: a wrong operator or constant in a `return`, judged by the examples of the tests."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

OPERATORS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
COMPARISONS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
MAX_VALUE = 10**12
MAX_DEPTH = 40


@dataclass(frozen=True, slots=True)
class Example:
    """What a test says of a function: with these arguments it returns this."""

    function: str
    arguments: tuple[Any, ...]
    expected: Any


@dataclass(frozen=True, slots=True)
class Repair:
    """One line to change, with the function's text before and after."""

    function: str
    old_text: str
    new_text: str
    old_line: str
    new_line: str


def examples_in(test_source: str) -> list[Example]:
    """Return the examples that a test file states with literals: `assert f(1) == 2` and `assertEqual(f(1), 2)`."""
    found: list[Example] = []
    for node in ast.walk(_parsed(test_source)):
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare) and len(node.test.ops) == 1:
            if isinstance(node.test.ops[0], ast.Eq | ast.Is):
                found += _example(node.test.left, node.test.comparators[0])
        elif isinstance(node, ast.Assert):
            found += _example(node.test, ast.Constant(value=True))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) == 2:
            found += _example(*node.args) if node.func.attr == "assertEqual" else ()
    return found


def imports_in(test_source: str) -> dict[str, str]:
    """Return the names that a test file imports, each with its module."""
    found: dict[str, str] = {}
    for node in ast.walk(_parsed(test_source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {alias.asname or alias.name: node.module for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.asname or alias.name: alias.name for alias in node.names}
    return found


def repair_of(source: str, examples: list[Example]) -> Repair | None:
    """Return the first change of one operator or constant after which a function that breaks its examples keeps them all."""
    for node in _parsed(source).body:
        if not isinstance(node, ast.FunctionDef):
            continue
        ours = [example for example in examples if example.function == node.name]
        returned = _returned(node)
        if not ours or returned is None or _keeps(node, returned, ours) is not False:
            continue
        for changed in _changes(returned):
            if _keeps(node, changed, ours):
                return _repair(source, node, returned=returned, changed=changed)
    return None


def _parsed(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])


def _example(called: ast.expr, expected: ast.expr) -> list[Example]:
    if not isinstance(called, ast.Call) or called.keywords:
        return []
    name = called.func.attr if isinstance(called.func, ast.Attribute) else getattr(called.func, "id", "")
    try:
        arguments = tuple(ast.literal_eval(argument) for argument in called.args)
        return [Example(name, arguments, ast.literal_eval(expected))]
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return []


def _returned(function: ast.FunctionDef) -> ast.expr | None:
    """Return what a function returns that does nothing else; a docstring may stand before it."""
    body = function.body
    if len(body) > 1 and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    is_simple = len(body) == 1 and isinstance(body[0], ast.Return) and not function.args.kwonlyargs
    return body[0].value if is_simple and isinstance(body[0], ast.Return) else None


def _keeps(function: ast.FunctionDef, returned: ast.expr, examples: list[Example]) -> bool | None:
    """Return whether the examples hold, or None where that cannot be told: what is not understood is not called wrong."""
    names = [argument.arg for argument in function.args.args]
    if any(len(example.arguments) != len(names) for example in examples):
        return None
    try:
        return all(
            _value(returned, dict(zip(names, example.arguments, strict=True)), 0) == example.expected
            for example in examples
        )
    except ArithmeticError:
        return False
    except (ValueError, TypeError, LookupError):
        return None


def _value(node: ast.expr, names: Mapping[str, Any], depth: int) -> Any:
    """Return the value of a simple expression. Only operators are computed: nothing is called, and nothing grows large."""
    if depth > MAX_DEPTH:
        raise ValueError("too deep")
    if isinstance(node, ast.Constant):
        return _small(node.value)
    if isinstance(node, ast.Name):
        return _small(names[node.id])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, names, depth + 1)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        left, right = _value(node.left, names, depth + 1), _value(node.right, names, depth + 1)
        joins = isinstance(node.op, ast.Add) and type(left) is type(right)
        if str in {type(left), type(right)} and not joins:
            raise ValueError("texts are only joined")
        return _small(OPERATORS[type(node.op)](left, right))
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
        left, right = _value(node.left, names, depth + 1), _value(node.comparators[0], names, depth + 1)
        return COMPARISONS[type(node.ops[0])](left, right)
    raise ValueError("not a simple expression")


def _small(value: Any) -> Any:
    if isinstance(value, int | float) and abs(value) <= MAX_VALUE:
        return value
    if isinstance(value, str) and len(value) <= 1000:
        return value
    raise ValueError("not a small value")


def _changes(returned: ast.expr) -> Iterator[ast.expr]:
    """Return the expression with one operator exchanged, or one whole number one more or less."""
    places = [node for node in ast.walk(returned) if isinstance(node, ast.BinOp | ast.Compare | ast.Constant)]
    for place in range(len(places)):
        original = places[place]
        if isinstance(original, ast.BinOp):
            others: list[Any] = [kind() for kind in OPERATORS if kind is not type(original.op)]
        elif isinstance(original, ast.Compare):
            others = [[kind()] for kind in COMPARISONS if kind is not type(original.ops[0])]
        else:
            number = original.value if type(original.value) is int else None
            others = [] if number is None else [number + 1, number - 1]
        for other in others:
            yield _with(returned, place, other)


def _with(returned: ast.expr, place: int, other: Any) -> ast.expr:
    copy = ast.parse(ast.unparse(returned), mode="eval").body
    node = [found for found in ast.walk(copy) if isinstance(found, ast.BinOp | ast.Compare | ast.Constant)][place]
    if isinstance(node, ast.BinOp):
        node.op = other
    elif isinstance(node, ast.Compare):
        node.ops = other
    else:
        node.value = other
    return copy


def _repair(source: str, function: ast.FunctionDef, *, returned: ast.expr, changed: ast.expr) -> Repair | None:
    statement = function.body[-1]
    if statement.lineno != statement.end_lineno:
        return None
    lines = source.splitlines()
    old_line = lines[statement.lineno - 1]
    text = ast.get_source_segment(source, returned) or ""
    if old_line.count(text) != 1:
        return None
    new_line = old_line.replace(text, ast.unparse(changed))
    before = lines[function.lineno - 1 : statement.lineno - 1]
    # The function's head makes the place unique: the same line may stand in another one.
    return Repair(
        function.name,
        "\n".join([*before, old_line]),
        "\n".join([*before, new_line]),
        old_line.strip(),
        new_line.strip(),
    )
