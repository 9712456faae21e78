"""One rule of a validator with the smallest body that breaks it and the nearest one that does not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import pytest

from kipu.testing.validators import Violation

# 1x1 pixel, transparent.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


@dataclass(frozen=True, slots=True)
class RuleCase:
    """Hold one rule's pair of bodies; `also` names other rules that cannot help being broken with it."""

    rule: str
    rejected: Any
    accepted: Any
    also: frozenset[str] = frozenset()


def as_params(cases: Sequence[RuleCase]) -> Iterable[Any]:
    """Give each case its rule's name as id."""
    return [pytest.param(case, id=f"{index}-{case.rule}") for index, case in enumerate(cases)]


def rules_of(violations: Sequence[Violation]) -> set[str]:
    """Return the rules without their target."""
    return {violation.rule.partition(".")[2] for violation in violations}


def rules_in_source(*modules: str) -> set[str]:
    """Return the rules that the named validator modules, and the ones they share, can report."""
    found: set[str] = set()
    for module in (*modules, "json_value", "media_data", "violation"):
        text = files("kipu.testing.validators").joinpath(f"{module}.py").read_text(encoding="utf-8")
        found |= set(re.findall(r'\.add\(\s*"([a-z0-9_]+)"', text))
    return found
