"""Session keys."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kipu.errors import InvalidSessionKeyError
from kipu.session.key import SCOPES, SessionKey


def test_the_default_key_is_channel_and_chat_id() -> None:
    """A key of channel and chat id reads channel:chat_id (A6, A14)."""
    assert str(SessionKey("telegram", "42")) == "telegram:42"
    assert SessionKey.parse("telegram:42") == SessionKey("telegram", "42")


def test_keys_can_name_threads_and_members() -> None:
    """Groups, threads and members of one chat have keys of their own, not made from a user id alone (A12, A15)."""
    keys = [
        SessionKey("slack", "C1", scope="group"),
        SessionKey("slack", "C1", scope="thread", thread_id="1.1"),
        SessionKey("slack", "C1", scope="thread", thread_id="1.2"),
        SessionKey("slack", "C1", scope="group", member="u1"),
        SessionKey("slack", "C2", scope="group"),
    ]
    assert len({str(key) for key in keys}) == len(keys)


@pytest.mark.parametrize(
    "text", ["", ":", "a:", ":b", "a", " : ", "a:b;", "a:b;x=1", "a:b;member=", "a:b;scope=world", "a:\0", "a:b;member=1;member=2",
     "a:" + "x" * 2000]
)  # fmt: skip
def test_a_key_with_a_missing_or_unknown_part_is_refused(text: str) -> None:
    """No key without every part, non-empty and known (A5)."""
    with pytest.raises(InvalidSessionKeyError) as caught:
        SessionKey.parse(text)
    assert caught.value.code == "session_key_invalid"


def test_keys_that_look_alike_stay_apart() -> None:
    """Separators, case and length tell keys apart; Unicode forms of one text are one key (A21)."""
    different = ["a:b", "a:b_", "a_b:c", "a:b/c", "a:b:c", "a:b_c", "A:b", "a:B", "a%3Ab:c", "a:b%253A"]
    assert len({str(SessionKey.parse(text)) for text in different}) == len(different)
    composed, decomposed = "chat:é", "chat:e\u0301"
    assert composed != decomposed
    assert SessionKey.parse(composed) == SessionKey.parse(decomposed)


PART = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=12).filter(
    lambda part: part.strip()
)
KEYS = st.builds(
    SessionKey,
    channel=PART,
    chat_id=PART,
    tenant=st.none() | PART,
    agent=st.none() | PART,
    account=st.none() | PART,
    scope=st.none() | st.sampled_from(sorted(SCOPES)),
    thread_id=st.none() | PART,
    member=st.none() | PART,
)


@given(KEYS)
def test_the_canonical_text_reads_back_as_the_same_key(key: SessionKey) -> None:
    """Writing and reading a key gives the same key, whatever its parts hold (A7, A21)."""
    assert SessionKey.parse(str(key)) == key
    assert str(SessionKey.parse(str(key))) == str(key)
    assert unicodedata.is_normalized("NFC", str(key))


@given(KEYS, KEYS)
def test_different_keys_have_different_texts(one: SessionKey, other: SessionKey) -> None:
    """The text form is injective: two keys share it only when they are equal (A21)."""
    assert (str(one) == str(other)) == (one == other)
