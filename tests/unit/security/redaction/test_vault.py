"""What a vault holds can be had back, by its key and by nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from kipu.errors import KeySourceError, KeyUnavailableError, MissingExtraError
from kipu.security.redaction.engine import PlainEngine
from kipu.security.redaction.policy import RedactionPolicy
from kipu.security.redaction.redactor import Redactor
from kipu.security.redaction.vault import SecretVault, restored
from kipu.stores.host import SystemEntropy

TOKEN = "ghp_" + "Zk3vQ8mW1xT6yB9nC4rL7pD2sF5gH0jAbXeU"
KNOWN = "zebra-Quartz-77-lantern"


def vault(*keys: bytes) -> SecretVault:
    """Return a vault with these keys."""
    return SecretVault(keys or (b"k" * 32,), entropy=SystemEntropy())


def redacted(value: dict[str, Any], *, by: SecretVault) -> dict[str, Any]:
    """Return an event's fields as they are kept."""
    found = Redactor(known=[KNOWN], seal=by.seal).redact(value)
    return {**found.value, "normalised": [each.to_json() for each in found.findings]}


def test_fields_come_back_as_they_were() -> None:
    """Every text, with several secrets in it, of several rules, found in several looks, is what it was (C21)."""
    fields = {
        "content": f"a {TOKEN} b {KNOWN} c {TOKEN} password=Tr0ub4dor&3 d {KNOWN}",
        "data": {"list": ["x", {"password": "weak", "a/b": f"z {KNOWN}"}], "n": 1},
    }
    kept = redacted(fields, by=vault())
    assert TOKEN not in str(kept)
    assert KNOWN not in str(kept)
    assert restored(kept, open_sealed=vault().open) == fields


def test_other_keys_open_nothing() -> None:
    """Another key, and a changed seal, are errors; an older key opens what it sealed (C21)."""
    kept = redacted({"content": KNOWN}, by=vault())
    (note,) = kept["normalised"]
    with pytest.raises(KeyUnavailableError):
        restored(kept, open_sealed=vault(b"j" * 32).open)
    changed = {**kept, "normalised": [{**note, "sealed": [note["sealed"][0][:-6] + "AAAAA="]}]}
    with pytest.raises(KeyUnavailableError):
        restored(changed, open_sealed=vault().open)
    assert restored(kept, open_sealed=vault(b"k" * 32, b"j" * 32).open) == {"content": KNOWN}
    with pytest.raises(KeySourceError):
        vault(b"short")


def test_patterns_of_ones_own_need_an_engine_that_cannot_be_stalled() -> None:
    """Without RE2 a pattern of one's own is refused; with it one that stalls others takes no time (B57)."""
    policy = RedactionPolicy(custom=(("mine", "(a+)+(b+)+c"),))
    with pytest.raises(MissingExtraError):
        Redactor(policy=policy, engine=PlainEngine())
    redactor = Redactor(policy=policy)
    assert redactor.redact("a" * 200_000).findings == ()
    assert redactor.redact("x aabbc y", places=False).value == "x [redacted:mine] y"
    assert (
        Redactor(policy=RedactionPolicy(custom=(("any", "z*"),))).redact("abcdef zz").value == "abcdef [redacted:any]"
    )
