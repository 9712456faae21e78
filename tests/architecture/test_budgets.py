"""Size, naming and shape of the code stay within what AGENTS.md says."""

from __future__ import annotations

import ast
import re

from tests.architecture.source import SourceFile, python_files

FUNCTION_LINES = 60
FILE_LINES = 500
POSITIONAL_PARAMETERS = 2
NAMES_WITHOUT_A_NOUN = {"base", "common", "helper", "helpers", "misc", "util", "utils"}
# apsw calls a virtual file system's methods positionally, under SQLite's own names.
SQLITE_CALLBACK = re.compile(r"x[A-Z]")


def test_functions_stay_within_the_hard_limit() -> None:
    """No function in src is longer than 60 lines."""
    too_long = [
        f"{file.name}:{function.lineno} {function.name} has {length} lines"
        for file in python_files("src")
        for function in file.functions()
        if (length := (function.end_lineno or function.lineno) - function.lineno + 1) > FUNCTION_LINES
    ]
    assert not too_long, "\n".join(too_long)


def test_files_stay_within_the_hard_limit() -> None:
    """No file in src is longer than 500 lines."""
    too_long = [
        f"{file.name} has {length} lines"
        for file in python_files("src")
        if (length := len(file.text.splitlines())) > FILE_LINES
    ]
    assert not too_long, "\n".join(too_long)


def test_files_are_named_by_a_noun() -> None:
    """No file or folder is called utils, helpers, common or base."""
    unnamed = [
        file.name
        for file in python_files("src", "tests", "bench")
        if NAMES_WITHOUT_A_NOUN & {part.removesuffix(".py") for part in file.name.split("/")}
    ]
    assert not unnamed, "\n".join(unnamed)


def _takes_too_many_by_position(function: ast.FunctionDef | ast.AsyncFunctionDef, *, is_method: bool) -> bool:
    is_special = function.name.startswith("__") and function.name.endswith("__") and function.name != "__init__"
    is_private = function.name.startswith("_") and function.name != "__init__"
    if is_special or is_private or SQLITE_CALLBACK.match(function.name):
        return False
    decorators = {node.id for node in function.decorator_list if isinstance(node, ast.Name)}
    bound = 1 if is_method and "staticmethod" not in decorators else 0
    return len(function.args.posonlyargs) + len(function.args.args) - bound > POSITIONAL_PARAMETERS


def _functions_with_owner(file: SourceFile) -> list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, bool]]:
    functions: list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, bool]] = []
    owners: list[ast.Module | ast.ClassDef] = [file.tree, *file.classes()]
    for owner in owners:
        for node in owner.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions.append((node, isinstance(owner, ast.ClassDef)))
    return functions


def test_parameters_are_keyword_only_after_two() -> None:
    """No public function or method in src takes more than two arguments by position."""
    broken = [
        f"{file.name}:{function.lineno} {function.name}"
        for file in python_files("src")
        for function, is_method in _functions_with_owner(file)
        if _takes_too_many_by_position(function, is_method=is_method)
    ]
    assert not broken, "\n".join(broken)


def test_types_are_never_silenced_in_src() -> None:
    """No line of src tells the type checker to look away."""
    silenced = [
        f"{file.name}:{line}"
        for file in python_files("src")
        for line, comment in file.comments()
        if re.search(r"type:\s*ignore", comment)
    ]
    assert not silenced, "\n".join(silenced)


def _base_names(node: ast.ClassDef) -> list[str]:
    return [ast.unparse(base).rsplit(".", 1)[-1] for base in node.bases]


def test_errors_live_in_one_file() -> None:
    """Every exception that Kipu raises is a class in errors/; only kipu.testing has its own beside them."""
    strays = [
        f"{file.name}:{node.lineno} {node.name}"
        for file in python_files("src")
        if not file.name.startswith(("src/kipu/errors/", "src/kipu/testing/"))
        for node in file.classes()
        if any(name.endswith(("Error", "Exception")) for name in _base_names(node))
    ]
    assert not strays, "\n".join(strays)


def test_testing_is_imported_by_the_conformance_command_only() -> None:
    """`kipu conformance` is the one shipped module that imports kipu.testing."""
    importers = [
        file.name
        for file in python_files("src")
        if not file.name.startswith("src/kipu/testing/")
        for node in ast.walk(file.tree)
        if (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kipu.testing"))
        or (isinstance(node, ast.Import) and any(alias.name.startswith("kipu.testing") for alias in node.names))
    ]
    assert all(name.startswith("src/kipu/cli/") and "conformance" in name for name in importers), importers


def test_tests_say_what_they_show() -> None:
    """Every test has a docstring: the sentence that would be false if it failed."""
    silent = [
        f"{file.name}:{function.lineno} {function.name}"
        for file in python_files("tests")
        for function in file.functions()
        if function.name.startswith("test_") and not ast.get_docstring(function)
    ]
    assert not silent, "\n".join(silent)
