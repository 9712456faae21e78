"""Text in pieces loses the same secrets as in one."""

from __future__ import annotations

import random

import pytest

from kipu.security.redaction.redactor import Redactor
from kipu.security.redaction.streaming import StreamRedactor
from tests.unit.security.redaction.secret_samples import samples

REDACTOR = Redactor(known=["correct horse battery 7 staple"])
MADE = samples(3, each=1)
TEXT = (
    "Starting — 你好\nexport TOKEN=" + next(text for family, _, text in MADE if family == "github")
    + "\nthe password is hunter2x, and correct horse battery 7 staple too\nDB_PASSWORD=hunter22 x\n"
    "kind: Secret\ndata:\n  a: cGFzc3c=\n  b: eA==\nend\n"
)  # fmt: skip


def test_stream_gives_the_whole_text_redacted_wherever_it_is_cut() -> None:
    """Cut at any one place, and piece by piece, a stream gives what redacting the whole gives (C21)."""
    whole = REDACTOR.redact(TEXT).value
    for at in range(len(TEXT) + 1):
        stream = StreamRedactor(REDACTOR)
        assert stream.feed(TEXT[:at]) + stream.feed(TEXT[at:]) + stream.finish() == whole, at
    stream = StreamRedactor(REDACTOR)
    assert "".join(map(stream.feed, TEXT)) + stream.finish() == whole


def test_stream_leaves_nothing_of_a_key_beside_what_stands_for_it() -> None:
    """Cut anywhere, also within the line that ends a private key, a stream gives what redacting the whole gives (C21)."""
    text = next(text for family, _, text in samples(0, each=2) if family == "private key" and "-----END" in text)
    whole = REDACTOR.redact(text).value
    for at in range(text.index("-----END") - 2, len(text)):
        stream = StreamRedactor(REDACTOR)
        assert stream.feed(text[:at]) + stream.feed(text[at:]) + stream.finish() == whole, at


@pytest.mark.parametrize("seed", range(4))
def test_stream_shows_no_secret_in_pieces_of_any_length(seed: int) -> None:
    """However a model's deltas are cut, no secret of any family comes out, and no more is held back than allowed (C21)."""
    chance = random.Random(seed)
    found = {family for family, secret, text in MADE if secret not in REDACTOR.redact(text).value}
    for family, secret, text in MADE:
        stream, shown, at = StreamRedactor(REDACTOR), "", 0
        while at < len(text):
            size = chance.randrange(1, 40)
            shown += stream.feed(text[at : at + size])
            assert stream.held <= 4_096
            at += size
        shown += stream.finish()
        assert secret not in shown or family not in found, (family, shown)


def test_stream_swallows_what_is_longer_than_it_holds() -> None:
    """A key longer than what can be held back is replaced once, and what follows it is shown (C21)."""
    key = next(
        secret for secret in (text for family, _, text in MADE if family == "private key") if "-----END" in secret
    )
    body = "".join(random.Random(1).choices("abcdefghijkmnpqrstuvwxyzABCDEFGH23456789", k=2_700))
    begin, end = key.index("-----BEGIN"), key.rindex("-----") + 5
    long = key[begin : key.index("\n", begin) + 1] + body + "\n" + key[key.index("-----END") : end]
    stream = StreamRedactor(REDACTOR, hold=300)
    shown = "".join(map(stream.feed, f"before {long} after")) + stream.finish()
    assert shown == "before [redacted:private-key] after"


def test_stream_goes_on_where_nothing_is_suspicious() -> None:
    """Ordinary words are not kept waiting for the end of their line (C21)."""
    stream = StreamRedactor(REDACTOR)
    shown = stream.feed("An ordinary sentence about nothing in particular, which goes on and on without an end, " * 2)
    assert len(shown) > 100
