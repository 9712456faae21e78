"""Values lose their secrets and nothing else."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kipu.errors import ConfigurationError
from kipu.events.ids import prefixed_id
from kipu.security.redaction.known import secrets_of_environment
from kipu.security.redaction.policy import RedactionPolicy
from kipu.security.redaction.redactor import Redactor
from kipu.testing.fakes import SeededEntropy
from tests.unit.security.redaction.secret_samples import samples

REDACTOR = Redactor(known=["Tr0ub4dor&3/zebra ü", "plain-known-value-17"])
SECRET_TEXTS = [text for _, _, text in samples(5, each=1)]
TEXTS = st.one_of(
    st.text(max_size=60),
    st.sampled_from(SECRET_TEXTS),
    st.lists(
        st.sampled_from([*SECRET_TEXTS, "[redacted:jwt]", "=", "password", ": ", "sk-", '"', "\n", "a1B2"]), max_size=5
    ).map("".join),
)
VALUES = st.recursive(
    st.one_of(TEXTS, st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False)),
    lambda below: st.one_of(
        st.lists(below, max_size=4),
        st.dictionaries(
            st.one_of(st.text(max_size=8), st.sampled_from(["password", "token", "name", "value"])), below, max_size=4
        ),
    ),
    max_leaves=12,
)


def _same_shape(before: Any, after: Any) -> bool:
    if isinstance(before, str):
        return isinstance(after, str)
    if isinstance(before, dict):
        return list(before) == list(after) and all(_same_shape(before[name], after[name]) for name in before)
    if isinstance(before, list):
        return len(before) == len(after) and all(map(_same_shape, before, after))
    return before is after


@given(VALUES)
@settings(max_examples=120, deadline=None)
def test_redaction_changes_texts_only_and_once(value: Any) -> None:
    """Structure, keys, numbers and order stay; what was redacted is not redacted again; what holds nothing is the same object (C21)."""
    first = REDACTOR.redact(value)
    assert _same_shape(value, first.value)
    again = REDACTOR.redact(first.value)
    assert again.value == first.value
    assert again.findings == ()
    assert (first.value is value) == (first.findings == ())


@pytest.mark.parametrize("before", ["", "x", "xy", "xyz"])
def test_known_secrets_are_found_in_every_form(before: str) -> None:
    """A known secret is found plain, URL-encoded, JSON-escaped, in hex and in base64 wherever it begins (C21)."""
    secret = "Tr0ub4dor&3/zebra ü"
    inside = base64.b64encode((before + secret + "!").encode()).decode()
    forms = [
        secret,
        quote(secret),
        quote(secret, safe=""),
        json.dumps(secret)[1:-1],
        secret.encode().hex(),
        secret.encode().hex().upper(),
    ]
    for form in [*forms, inside, inside.translate(str.maketrans("+/", "-_"))]:
        found = REDACTOR.redact(f"{before}{form} after")
        assert "[redacted:known-secret]" in found.value, form
        assert form not in found.value


def test_findings_tell_rule_place_and_count_and_never_the_secret() -> None:
    """A report names rule, field and how many, and holds no byte of what was replaced (C21)."""
    found = REDACTOR.redact({"a": [1, "x plain-known-value-17 plain-known-value-17"]}, path="/result")
    (finding,) = found.findings
    assert (finding.path, finding.rule, finding.count) == ("/result/a/1", "known-secret", 2)
    assert "plain-known" not in json.dumps(finding.to_json())


def test_fields_named_like_secrets_lose_their_text() -> None:
    """What a field's name says is believed: objects, pairs of name and value, headers, Kubernetes secrets (C21)."""
    value = {
        "password": "weak", "user": "me", "retries": 3, "next_page_token": "abcdef123456",
        "env": [{"name": "DB_PASSWORD", "value": "weak"}, {"name": "HOME", "value": "/root"}],
        "headers": [["X-Api-Key", "f3kq8zpw71ax"], ["Accept", "text/html"]],
        "manifest": {"kind": "Secret", "data": {"a": "d2Vhaw=="}},
    }  # fmt: skip
    found = REDACTOR.redact(value).value
    assert found["password"] == "[redacted:password]"
    assert (found["user"], found["retries"], found["next_page_token"]) == ("me", 3, "abcdef123456")
    assert found["env"] == [{"name": "DB_PASSWORD", "value": "[redacted:password]"}, {"name": "HOME", "value": "/root"}]
    assert found["headers"] == [["X-Api-Key", "[redacted:token]"], ["Accept", "text/html"]]
    assert found["manifest"]["data"] == {"a": "[redacted:secret-manifest]"}


def test_files_of_text_inside_messages_lose_their_secrets() -> None:
    """A text file that comes as base64 is looked into; an image is left as it is (C21)."""
    text, image = base64.b64encode(b"plain-known-value-17").decode(), base64.b64encode(b"\x89PNG" * 9).decode()
    found = Redactor(known=["another-secret-99"]).redact(
        [
            {"type": "media", "media_type": "text/plain", "data": base64.b64encode(b"a another-secret-99 b").decode()},
            {"type": "media", "media_type": "image/png", "data": image},
            {"type": "media", "media_type": "text/plain", "data": text},
        ]
    )
    assert base64.b64decode(found.value[0]["data"]) == b"a [redacted:known-secret] b"
    assert found.value[1]["data"] == image
    assert found.value[2]["data"] == text


def test_replacement_tells_secrets_apart_with_a_key() -> None:
    """With a key the same secret has the same replacement and another one has another; under another key it differs (C21)."""
    text = "plain-known-value-17 then other-known-value-18 then plain-known-value-17"
    known = ["plain-known-value-17", "other-known-value-18"]
    words = str(Redactor(known=known, hash_key=b"k" * 32).redact(text).value).split(" then ")
    other = str(Redactor(known=known, hash_key=b"j" * 32).redact(text).value).split(" then ")
    assert words[0] == words[2] != words[1]
    assert words[0] != other[0]


def test_vault_gets_what_was_replaced_and_only_the_vault() -> None:
    """With a vault key a finding holds the sealed secrets in their order; without one there is nothing to bring back (C21)."""
    redactor = Redactor(known=["plain-known-value-17"], seal=lambda secret: secret[::-1])
    (finding,) = redactor.redact("a plain-known-value-17").findings
    assert finding.sealed == ("71-eulav-nwonk-nialp",)
    assert REDACTOR.redact("a plain-known-value-17").findings[0].sealed == ()


def test_places_are_taken_out_by_rule() -> None:
    """Temporary paths, internal addresses and one's own patterns go where the policy says so, and only there (B57)."""
    text = "wrote /tmp/build-7/out.log on 10.1.2.3 and db1.corp, asked 8.8.8.8 for ticket ACME-1234"
    policy = RedactionPolicy(temporary_paths=True, internal_addresses=True, custom=(("ticket", "ACME-[0-9]+"),))
    assert Redactor(policy=policy).redact(text).value == (
        "wrote [redacted:temporary-path] on [redacted:internal-address] and [redacted:internal-address], asked 8.8.8.8 "
        "for ticket [redacted:ticket]"
    )
    assert REDACTOR.redact(text).value == text


def test_policy_refuses_what_is_no_rule() -> None:
    """A pattern that does not compile, a name that cannot be written and a rule that is not there are configuration errors (B57)."""
    for policy in (
        RedactionPolicy(custom=(("mine", "(["),)),
        RedactionPolicy(custom=(("Not A Name", "x"),)),
        RedactionPolicy(excluded=frozenset({"no-such-rule"})),
    ):
        with pytest.raises(ConfigurationError):
            Redactor(policy=policy)


def test_bracketed_secret_is_no_marker() -> None:
    """A secret in the brackets of a replacement, under no rule's name, is replaced all the same (C21)."""
    assert "plain-known-value-17" not in REDACTOR.redact("[redacted:plain-known-value-17]").value


def test_entropy_only_flags() -> None:
    """What merely looks like chance is told and never replaced (C21)."""
    text = "blob q7Zx9Kp2Vn4Lw8Rt6Yb3Md5Hc1Jf0Gs"
    assert REDACTOR.redact(text).value == text
    assert [flag.rule for flag in REDACTOR.flags({"a": text, "b": "plain words only"})] == ["entropy"]


def test_environment_gives_its_secrets_and_not_its_words() -> None:
    """Variables named like secrets are known secrets, but for paths, words and short values (C21)."""
    environment = {
        "OPENAI_API_KEY": "sk-abc-123456",
        "SSH_AUTH_SOCK": "/run/agent.1",
        "PASSWORD_STORE": "directory",
        "HOME": "/root",
    }
    assert secrets_of_environment(environment) == ["sk-abc-123456"]


def test_ids_of_kipu_are_never_taken_for_secrets() -> None:
    """An id that Kipu minted is kept wherever it stands: as a name, in a value and within text (C15, C21)."""
    redactor = Redactor()
    entropy = SeededEntropy(7)
    for prefix in ("appr", "call", "erasure", "grant", "ledger", "mem", "prop", "sess", "trial", "turn"):
        for number in range(400):
            minted = prefixed_id(prefix, 1_790_000_000_000 + number * 977, random=entropy.random_bytes(10))
            value = {f"grant.{minted}": {"id": minted, "said": f"approved {minted}, see --resume {minted}."}}
            assert redactor.redact(value, path="/set").value == value
