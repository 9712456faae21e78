"""The project's own source as parsed files, for tests that hold it to its rules."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class SourceFile:
    """One Python file, parsed when asked."""

    path: Path

    @property
    def name(self) -> str:
        """Return the path from the project's root, with forward slashes."""
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def text(self) -> str:
        """Return the file as text."""
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        """Return the file parsed."""
        return ast.parse(self.text, filename=str(self.path))

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Yield every function and method, nested ones too."""
        for node in ast.walk(self.tree):
            if isinstance(node, FUNCTION):
                yield node

    def classes(self) -> Iterator[ast.ClassDef]:
        """Yield every class, nested ones too."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef):
                yield node

    def comments(self) -> Iterator[tuple[int, str]]:
        """Yield each comment with its line number."""
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string

    def docstrings(self) -> Iterator[str]:
        """Yield the docstrings of the module, its classes and its functions."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    yield text


def python_files(*folders: str) -> list[SourceFile]:
    """Return every Python file under the folders (from the project's root), in the order of their names."""
    return [SourceFile(path) for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
