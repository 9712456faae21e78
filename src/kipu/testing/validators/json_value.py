"""Checks of plain JSON: what a provider's JSON reader or tokenizer refuses wherever it stands."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from kipu.testing.validators.violation import Findings

_MAX_DEPTH = 100
"""Protocol buffer readers, and many JSON readers, stop at about this depth."""


def check_json(findings: Findings, value: object, *, path: str) -> None:
    """Report all that is not JSON, or that no provider reads: surrogates, NUL, NaN, foreign types, deep nesting."""
    stack: list[tuple[object, str, int]] = [(value, path, 0)]
    while stack:
        current, where, depth = stack.pop()
        if depth > _MAX_DEPTH:
            findings.add("json_depth", where, message=f"is nested deeper than {_MAX_DEPTH}")
        elif isinstance(current, Mapping):
            for key, item in current.items():
                if isinstance(key, str):
                    _check_text(findings, key, where)
                    stack.append((item, f"{where}/{pointer_part(key)}", depth + 1))
                else:
                    findings.add("json_key", where, message=f"the key {key!r} is not a string")
        elif isinstance(current, (list, tuple)):
            stack.extend((item, f"{where}/{index}", depth + 1) for index, item in enumerate(current))
        else:
            _check_scalar(findings, current, where)


def parse_object(text: str) -> Mapping[str, object] | None:
    """Return the JSON object that `text` is, or None when it is anything else."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def pointer_part(key: str) -> str:
    """Return a key as it stands in a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def _check_scalar(findings: Findings, value: object, path: str) -> None:
    if isinstance(value, str):
        _check_text(findings, value, path)
    elif isinstance(value, float):
        if not math.isfinite(value):
            findings.add("json_number", path, message=f"{value} is not a JSON number")
    elif value is not None and not isinstance(value, (bool, int)):
        findings.add("json_type", path, message=f"{type(value).__name__} is not a JSON type")


def _check_text(findings: Findings, text: str, path: str) -> None:
    if "\x00" in text:
        findings.add("json_nul", path, message="holds a NUL character")
    # A str can only fail to encode for its lone surrogates; isascii is the cheap way past most text.
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            findings.add("json_surrogate", path, message="holds a lone surrogate, which is not UTF-8")


def _refuse_constant(name: str) -> object:
    raise ValueError(name)
