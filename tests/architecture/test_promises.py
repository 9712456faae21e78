"""No promise and no numbered requirement is without a test."""

from __future__ import annotations

import re
from pathlib import Path

from tests.architecture.citations import cited, cited_in, defined_requirements, promises
from tests.architecture.source import ROOT

FORMATS = ROOT / "docs" / "formats"


def _in_order(numbers: set[str]) -> list[str]:
    def key(number: str) -> tuple[str, int]:
        return re.sub(r"\d", "", number), int(re.sub(r"\D", "", number))

    return sorted(numbers, key=key)


def test_promises_are_each_cited_by_a_test() -> None:
    """Every promise in docs/promises.toml is cited by at least one test."""
    missing = set(promises()) - cited()
    told = [f"{number}: {promises()[number]}" for number in _in_order(missing)]
    assert not told, f"{len(told)} promises without a test:\n" + "\n".join(told)


def test_requirements_are_each_cited_by_a_test() -> None:
    """Every requirement defined in docs/formats is cited by at least one test."""
    missing = _in_order(set(defined_requirements(FORMATS)) - cited())
    assert not missing, f"{len(missing)} requirements without a test: " + " ".join(missing)


def test_requirements_are_each_defined_once() -> None:
    """No requirement number is given to two statements."""
    defined = defined_requirements(FORMATS)
    assert sorted(defined) == sorted(set(defined))


def test_citations_name_requirements_that_exist() -> None:
    """No test cites a number that the pages with its letters do not define."""
    defined = set(defined_requirements(FORMATS))
    families = {number.split("-")[0] for number in defined}
    dangling = {number for number in cited() if "-" in number and number.split("-")[0] in families} - defined
    assert not dangling, " ".join(_in_order(dangling))


def test_citations_may_be_ranges() -> None:
    """A range stands for every number in it, in either spelling."""
    assert cited_in("(A30-A33, C7)") == {"A30", "A31", "A32", "A33", "C7"}
    assert cited_in("B10–14 hold") == {"B10", "B11", "B12", "B13", "B14"}
    assert cited_in("EV-3, ST-1..ST-3") == {"EV-3", "ST-1", "ST-2", "ST-3"}
    assert cited_in("SHA256 of ABC") == set()


def test_requirements_are_found_at_the_start_of_lines(tmp_path: Path) -> None:
    """A number counts as defined where it stands bold at the start of a line, not where a sentence mentions it."""
    page = tmp_path / "event.md"
    page.write_text("**EV-1** Every event ...\n- **EV-2.** An item\nas **EV-9** says\n")
    assert defined_requirements(tmp_path) == ["EV-1", "EV-2"]
