"""The list of mutations stays true: each still changes one place of the source, and names tests that are there."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.architecture.source import ROOT
from tests.mutations.run_mutations import Mutation, mutations

LIST = mutations()
FEWEST = 60
PROMISE = re.compile(r"[ABC]\d{1,2}")
CONFORMANCE = (ROOT / "src/kipu/testing/conformance/suite.py").read_text(encoding="utf-8")


def test_mutations_are_many_and_have_names_of_their_own() -> None:
    """At least 60 behaviours are removed one at a time, each under its own id."""
    assert len(LIST) >= FEWEST
    assert [name for name, count in Counter(each.id for each in LIST).items() if count > 1] == []


@pytest.mark.parametrize("mutation", LIST, ids=[each.id for each in LIST])
def test_mutation_changes_one_place_and_names_its_tests(mutation: Mutation) -> None:
    """What is to be removed stands exactly once in the source, and the tests that notice are there."""
    text = (ROOT / mutation.file).read_text(encoding="utf-8")
    found = text.count(mutation.old)
    assert found == 1, (
        f"{mutation.file} changed: bring {mutation.id} in tests/mutations/mutations.toml along, or drop it"
    )
    assert mutation.new != mutation.old
    assert mutation.promises
    assert all(PROMISE.fullmatch(number) for number in mutation.promises)
    assert mutation.tests
    for test in mutation.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).exists(), test
        for part in re.findall(r"[A-Za-z_]\w*", name.partition("[")[0]):
            assert part in (ROOT / path).read_text(encoding="utf-8") or part in CONFORMANCE, test
