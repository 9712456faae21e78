"""What a watcher makes of pieces that come late, twice, out of turn or not at all (A9, C5)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from kipu.events.conversation import AgentMessageEvent, ToolResultEvent
from kipu.events.event import SessionEvent, with_fields
from kipu.events.turn import TurnResumedEvent, TurnStartedEvent
from kipu.ports.model import TextDelta
from kipu.runtime.live.assembly import Assembly
from kipu.runtime.live.piece import Part, Piece, cut, decoded
from kipu.runtime.live.relay import NoSeal
from kipu.runtime.observer import LostNews, ModelNews, News, RetryNews, ToolNews

TEXT = "One two three four five six seven eight nine ten."


def piece(text: str = "", offset: int = 0, *, number: int = 1, at: int = 5, token: int = 3, **fields: object) -> Piece:
    parts: tuple[Part, ...] = (("text", text),) if text else ()
    whole: dict[str, object] = {"call_id": None, "parts": parts, **fields}
    stream = (str(whole.pop("by", "a")), number)
    return Piece("s", "turn_1", stream=stream, at=at, token=token, offset=offset, **whole)  # type: ignore[arg-type]


def stored(event: SessionEvent, seq: int) -> SessionEvent:
    return with_fields(event, {"seq": seq})


def answer(text: str = TEXT, seq: int = 9) -> SessionEvent:
    return stored(AgentMessageEvent(content=text), seq)


class Watcher:
    """An assembly, what is shown, and how often it asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.assembly = Assembly(self._ask)
        self.shown = self.output = ""
        self.news: list[News] = []
        self.event(stored(TurnStartedEvent(turn_id="turn_1", token=3), 2))

    def _ask(self) -> None:
        self.asked += 1

    def _show(self, news: Sequence[News]) -> None:
        self.news += news
        for one in news:
            if isinstance(one, LostNews | RetryNews):
                self.shown = ""
            elif isinstance(one, ModelNews) and isinstance(one.event, TextDelta):
                self.shown += one.event.text
            elif isinstance(one, ToolNews):
                self.output += one.text

    def take(self, *pieces: Piece) -> None:
        for one in pieces:
            self._show(self.assembly.take(one))

    def event(self, event: SessionEvent) -> None:
        self._show(self.assembly.event(event))


@pytest.mark.parametrize("seed", range(40))
def test_whatever_becomes_of_pieces_the_text_is_whole_and_shown_once(seed: int) -> None:
    """Dropped, doubled, overlapping and late pieces: what is shown is a beginning of the answer, and whole with its event (A9)."""
    chance = random.Random(seed)
    pieces = []
    place = 0
    while place < len(TEXT):
        length = chance.randint(1, 7)
        start = max(0, place - chance.choice([0, 0, 0, 3]))
        pieces.append(piece(TEXT[start : place + length], start))
        place += length
    came = [one for one in pieces for _ in range(chance.choice([0, 1, 1, 1, 2]))]
    if chance.random() < 0.3:
        chance.shuffle(came)
    if chance.random() < 0.3:
        came.insert(chance.randrange(len(came) + 1), piece(TEXT[:20]))
    watcher = Watcher()
    late = chance.randrange(len(came) + 1)
    for one in came[:late]:
        watcher.take(one)
        assert TEXT.startswith(watcher.shown)
    shown = watcher.shown
    watcher.event(answer())
    watcher.take(*came[late:])
    assert watcher.shown in ((TEXT, "") if not shown else (TEXT,))
    assert not any(isinstance(one, LostNews) for one in watcher.news)


def test_pieces_behind_a_gap_wait_for_what_is_missing() -> None:
    """Nothing is shown behind a gap; it is asked for, and what comes again is shown from where it was (A9)."""
    watcher = Watcher()
    watcher.take(piece(TEXT[:5]), piece(TEXT[9:12], 9))
    assert (watcher.shown, watcher.asked) == (TEXT[:5], 1)
    watcher.take(piece(TEXT[:12]), piece(TEXT[12:], 12))
    assert watcher.shown == TEXT


def test_pieces_of_a_worker_that_lost_the_session_are_not_shown() -> None:
    """What began before the turn was taken up elsewhere, or under an older token, is not shown, however late it comes (C14)."""
    watcher = Watcher()
    watcher.take(piece(TEXT[:8]))
    watcher.event(stored(TurnResumedEvent(turn_id="turn_1", token=4), 6))
    assert watcher.shown == ""
    watcher.take(piece(TEXT[8:16], 8), piece("zombie", at=7, by="a", number=2), piece(TEXT[:4], at=7, token=4, by="b"))
    assert watcher.shown == TEXT[:4]
    watcher.take(piece("zombie again", at=8, by="a", number=3))
    assert watcher.shown == TEXT[:4]


def test_second_try_takes_the_place_of_the_first_also_where_nobody_told() -> None:
    """A try that is made again begins anew; pieces of the one before are over (A9)."""
    watcher = Watcher()
    watcher.take(piece("Once upon"), piece(TEXT[:5], number=3), piece(" a time", 9))
    assert (watcher.shown, sum(isinstance(one, LostNews) for one in watcher.news)) == (TEXT[:5], 1)
    told = Watcher()
    told.take(piece("Once upon"), piece(number=2, retry=("busy", 1.0)), piece(" a time", 9), piece(TEXT[:5], number=3))
    assert told.shown == TEXT[:5]
    assert sum(isinstance(one, RetryNews) for one in told.news) == 1


def test_what_the_log_has_otherwise_is_shown_from_the_log() -> None:
    """Where what was shown is not the beginning of what the log has, it is taken back (A9)."""
    watcher = Watcher()
    watcher.take(piece("Something else"))
    watcher.event(answer())
    assert (watcher.shown, isinstance(watcher.news[-1], LostNews)) == ("", True)


def test_output_of_a_call_goes_on_behind_a_gap_and_ends_with_its_result() -> None:
    """Output that is missing is passed over; what comes after the result is not shown (A9)."""
    watcher = Watcher()
    output = {"call_id": "call_1", "number": 7}
    for text, offset in (("one ", 0), ("one two ", 0), ("four ", 20)):
        watcher.take(piece(offset=offset, parts=(("output", text),), **output))  # type: ignore[arg-type]
    assert (watcher.output, watcher.asked) == ("one two four ", 0)
    watcher.event(stored(ToolResultEvent(tool_call_id="call_1", result="done"), 8))
    watcher.take(piece(offset=25, parts=(("output", "five"),), **output))  # type: ignore[arg-type]
    assert watcher.output == "one two four "


@pytest.mark.parametrize("text", ["a" * 9_000, "é水🚀" * 4_000, "\x00\x1b\n" * 3_000])
def test_pieces_are_cut_to_what_fits_and_lose_nothing(text: str) -> None:
    """Every text that travels is short enough, and together they are the piece (A9)."""
    whole = piece(text, 17, ended=True)
    found = [decoded(data) for data in cut(whole, most_bytes=NoSeal().room(2_000))]
    assert all(len(data) <= 2_000 for data in cut(whole, most_bytes=2_000))
    came = [one for one in found if one is not None]
    assert [one.ended for one in came] == [False] * (len(came) - 1) + [True]
    assert "".join(part for one in came for _, part in one.parts) == text
    assert [one.offset for one in came] == [17 + sum(each.length for each in came[:i]) for i in range(len(came))]


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"n": 1}', b"\xff", b'{"n": ["a", "b"]}', b'{"n": null}'])
def test_what_is_no_piece_is_none(data: bytes) -> None:
    """Whatever else comes over a channel is left alone (A9)."""
    assert decoded(data) is None
