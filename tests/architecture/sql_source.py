"""Every text of the PostgreSQL store that is SQL, put together as its module does, from the parsed source."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tests.architecture.source import ROOT, SourceFile, python_files

HOLE = "\x00"
"""Stands for what is only known when the program runs."""
_WORDS = re.compile(
    r"\b(SELECT|INSERT INTO|UPDATE [{\w]|DELETE FROM|CREATE (TABLE|INDEX|SCHEMA)|ALTER TABLE|LISTEN|NOTIFY|PARTITION"
    r"|ORDER BY|LIMIT %s|JOIN|VALUES|WHERE|ON CONFLICT|RETURNING)\b"
)


class SqlText(NamedTuple):
    """A text with its file; `HOLE` where a part of it is not known."""

    file: str
    text: str

    @property
    def pieces(self) -> list[str]:
        """Return what is known of it, in pieces."""
        return [piece for piece in self.text.split(HOLE) if piece.strip()]


def sql_texts(folder: str = "src/kipu/stores/postgres") -> list[SqlText]:
    """Return the texts of a folder's modules that are SQL, docstrings left out."""
    return [
        SqlText(file.name, text)
        for file in python_files(folder)
        for text in texts_of(file.tree, _namespace(file))
        if _WORDS.search(text)
    ]


def texts_of(tree: ast.Module, namespace: Mapping[str, Any]) -> Iterator[str]:
    """Yield every text that is not part of a longer one, its parts put together."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inner: set[int] = set()
    for node in ast.walk(tree):  # the outer one comes first
        if id(node) in inner or id(node) in docstrings or not _is_text(node):
            continue
        inner |= {id(one) for one in ast.walk(node)}
        yield _put_together(node, namespace)


def _is_text(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _is_text(node.left) or _is_text(node.right)
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _put_together(node: ast.AST, namespace: Mapping[str, Any]) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_put_together(part, namespace) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _put_together(node.left, namespace) + _put_together(node.right, namespace)
    expression = node.value if isinstance(node, ast.FormattedValue) else node
    names = {one.id for one in ast.walk(expression) if isinstance(one, ast.Name)}
    if isinstance(expression, ast.expr) and names <= set(namespace):
        code = compile(ast.Expression(expression), "<sql>", "eval")
        try:
            return str(eval(code, {**namespace}))
        except (AttributeError, NameError, TypeError):
            return HOLE
    return HOLE


def _namespace(file: SourceFile) -> Mapping[str, Any]:
    parts = file.path.relative_to(ROOT / "src").with_suffix("").parts
    return vars(importlib.import_module(".".join(part for part in parts if part != "__init__")))
