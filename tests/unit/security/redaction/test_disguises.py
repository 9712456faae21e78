"""Secrets that something runs through, that lie over several texts, or that are keys."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kipu.security.redaction.redactor import Redactor
from tests.unit.security.redaction.secret_samples import samples

TOKEN = "ghp_" + "Zk3vQ8mW1xT6yB9nC4rL7pD2sF5gH0jAbXeU"
KNOWN = "zebra-Quartz-77-lantern"
REDACTOR = Redactor(known=[KNOWN])
MADE = samples(31, each=1)


@pytest.mark.parametrize(
    "hidden",
    [
        TOKEN[:7] + "\u200b" + TOKEN[7:],
        "\u2060".join(TOKEN),
        TOKEN[:4] + "\x1b[0m\x1b[01;31m" + TOKEN[4:],
        TOKEN[:9] + "\u00ad" + TOKEN[9:20] + "\ufeff" + TOKEN[20:],
        "".join(chr(ord(char) + 0xFEE0) for char in TOKEN),
        KNOWN[:5] + "\u200d" + KNOWN[5:],
    ],
)
def test_invisible_characters_and_colours_hide_nothing(hidden: str) -> None:
    """A secret with something unseen in it, or in letters that look alike, is replaced whole; its neighbours stay (C21)."""
    found = REDACTOR.redact(f"用的是 {hidden}，请保存")
    assert found.value in ("用的是 [redacted:github-token]，请保存", "用的是 [redacted:known-secret]，请保存")
    assert REDACTOR.redact(found.value).value == found.value


@pytest.mark.parametrize(
    "text",
    ["密码是：请看文件。一切都好，谢谢！", "ＡＢＣ：１２３", "\x1b[31merror\x1b[0m: no such file", "a\u200bb c\u00add"],
)
def test_text_that_only_looks_unusual_is_kept(text: str) -> None:
    """Chinese, full-width letters, colours and soft hyphens by themselves are no secrets: the same object comes back (C21)."""
    assert REDACTOR.redact(text).value is text


@pytest.mark.parametrize("at", [2, 5, 11, 30, 39])
def test_secret_over_parts_of_a_message_is_replaced(at: int) -> None:
    """What two parts of a message hold together is replaced in the first and gone from the second (C21)."""
    parts = [{"type": "text", "text": f"key {TOKEN[:at]}"}, {"type": "text", "text": f"{TOKEN[at:]} ok"}]
    found = REDACTOR.redact(parts, path="/content")
    assert [part["text"] for part in found.value] == ["key [redacted:github-token]", " ok"]
    assert [(each.path, each.rule, each.count) for each in found.findings] == [("/content/0", "github-token", 1)]
    assert REDACTOR.redact(found.value).findings == ()


def test_secret_over_lines_and_words_of_a_list_is_replaced() -> None:
    """A key given line by line, and a password that is the next word of a command, are found (C21)."""
    body = [f"{line}q7Zx9Kp2Vn4Lw8Rt6Yb3Md5Hc1Jf0GsMIIE{line}" for line in range(3, 9)]
    lines = ["first", "-----BEGIN PRIVATE KEY-----", *body, "-----END PRIVATE KEY-----", "last"]
    found = REDACTOR.redact(lines).value
    assert found == ["first", "[redacted:private-key]", *[""] * 7, "last"]
    words = ["mysqldump", "--password", "S3cret-99-x", "shop"]
    assert REDACTOR.redact(words).value == ["mysqldump", "--password", "[redacted:command-flag]", "shop"]
    plain = ["a", "password", "is", "needed", "here"]
    assert REDACTOR.redact(plain).value is plain


def test_keys_of_objects_that_are_secrets_are_replaced() -> None:
    """A secret is no less one for being a name: two of them stay two, in their order, and no path tells them (C21)."""
    other = "ghp_" + "Yk3vQ8mW1xT6yB9nC4rL7pD2sF5gH0jAbXeV"
    found = REDACTOR.redact({"a": 1, TOKEN: {"b": 2}, other: 3}, path="/data")
    assert found.value == {"a": 1, "[redacted:github-token]": {"b": 2}, "[redacted:github-token] (2)": 3}
    assert all("ghp_" not in finding.path for finding in found.findings)
    assert REDACTOR.redact(found.value).value == found.value


@given(st.lists(st.sampled_from([text for _, _, text in MADE]), min_size=1, max_size=3), st.booleans())
@settings(max_examples=80, deadline=None)
def test_json_within_text_stays_json(texts: list[str], twice: bool) -> None:
    """A text that is JSON is JSON afterwards, however deep secrets lie in it, and loses nothing but them (C21)."""
    value: dict[str, Any] = {"texts": texts, "n": 17, "last": "kept"}
    text = json.dumps(value)
    if twice:
        text = json.dumps({"log": text})
    after = json.loads(REDACTOR.redact(text).value)
    inner = json.loads(after["log"]) if twice else after
    assert len(inner["texts"]) == len(texts)
    assert (inner["n"], inner["last"]) == (17, "kept")


def test_key_without_an_end_eats_nothing_behind_it() -> None:
    """A private key that was cut off within JSON takes no quotes and no neighbours with it (C21)."""
    body = "MIIEowIBAAKCAQEAq7Zx9Kp2Vn4Lw8Rt6Yb3Md5Hc1Jf0Gs" * 3
    text = json.dumps({"key": f"-----BEGIN RSA PRIVATE KEY-----\n{body}", "user": "app"})
    found = json.loads(REDACTOR.redact(text).value)
    assert found == {"key": "[redacted:private-key]", "user": "app"}
