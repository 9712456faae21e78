"""Requirements 60 to 74: pages of a log, forwards and backwards."""

from __future__ import annotations

from kipu.errors import SessionNotFoundError
from kipu.ports.store import MAX_PAGE
from kipu.testing.conformance.expectation import expect_equal, expect_error
from kipu.testing.conformance.requirement import requirement
from kipu.testing.conformance.subject import Subject, text_of


def window(last: int, *, after: int, until: int | None, limit: int, backwards: bool) -> list[int]:
    """Return the seqs that `read` must give for a log of 1 … `last`."""
    end = last if until is None else min(until, last)
    seqs = [seq for seq in range(1, last + 1) if after < seq <= end]
    return seqs[::-1][:limit] if backwards else seqs[:limit]


@requirement(60, "B6", "B51")
async def every_window_is_what_was_asked_for(subject: Subject) -> None:
    """For all bounds and limits, forwards and backwards, `read` gives exactly the events in the window, newest first backwards."""
    store = await subject.open()
    await subject.begin(store, "s1")
    for size in (1, 3, 1, 2):
        await store.append("s1", [subject.record(str(n)) for n in range(size)])
    for backwards in (False, True):
        for after in (0, 1, 4, 7, 8, 100):
            for until in (None, 0, 1, 4, 8, 100):
                for limit in (1, 2, 5, MAX_PAGE):
                    events = await store.read("s1", after=after, until=until, limit=limit, backwards=backwards)
                    expected = window(8, after=after, until=until, limit=limit, backwards=backwards)
                    asked = f"after={after} until={until} limit={limit} backwards={backwards}"
                    expect_equal([event.seq for event in events], expected, what=asked)


@requirement(61, "B6")
async def backwards_gives_the_same_events(subject: Subject) -> None:
    """Reading backwards page by page gives the whole log, each event once and the same as forwards."""
    store = await subject.open()
    await subject.begin(store, "s1")
    await store.append("s1", [subject.record("é" * (n * 37 % 5000)) for n in range(60)])
    forwards = await store.read("s1")
    backwards = []
    until: int | None = None
    while page := await store.read("s1", until=until, limit=7, backwards=True):
        backwards += page
        until = page[-1].seq - 1
    expect_equal(backwards[::-1], forwards, what="the log read backwards")


@requirement(62, "B51")
async def a_page_has_a_bound(subject: Subject) -> None:
    """Without a limit `read` gives at most 1 000 events, and `after` leads on to the rest."""
    store = await subject.open()
    await subject.begin(store, "s1")
    for start in range(0, 1500, 500):
        await store.append("s1", [subject.record(str(start + n)) for n in range(500)])
    first = await store.read("s1")
    expect_equal(len(first), MAX_PAGE, what="the first page")
    rest = await store.read("s1", after=first[-1].seq)
    expect_equal([event.seq for event in first + rest], list(range(1, 1502)), what="the two pages")


@requirement(63, "A50", "B23")
async def an_unknown_session_is_not_an_empty_one(subject: Subject) -> None:
    """`read` of an unknown id is SessionNotFoundError, and `head` is None; reading makes no session."""
    store = await subject.open()
    for _ in range(2):
        with expect_error(SessionNotFoundError, what="reading nothing"):
            await store.read("ghost")
        expect_equal(await store.head("ghost"), None, what="the head of nothing")


@requirement(64, "C11")
async def a_fork_is_read_by_its_own_numbers(subject: Subject) -> None:
    """Windows over a session with a base are in its own numbers, and what lies before the base is not given."""
    store = await subject.open()
    await subject.begin(store, "fork", base_seq=1000)
    await store.append("fork", [subject.record(str(n)) for n in range(4)])
    cases = {(0, None): [1001, 1002, 1003, 1004, 1005], (1002, 1004): [1003, 1004], (0, 1000): [], (1005, None): []}
    for (after, until), expected in cases.items():
        for backwards in (False, True):
            events = await store.read("fork", after=after, until=until, backwards=backwards)
            seqs = [event.seq for event in events]
            expect_equal(seqs, expected[::-1] if backwards else expected, what=f"after={after} until={until}")


@requirement(65, "B31", "B2")
async def what_was_acknowledged_is_read_at_once(subject: Subject) -> None:
    """An append that returned is in the next read, forwards and backwards, and in the head."""
    store = await subject.open()
    await subject.begin(store, "s1")
    for number in range(2, 40):
        await subject.say(store, "s1", text=str(number))
        newest = await store.read("s1", limit=1, backwards=True)
        expect_equal([(e.seq, text_of(e)) for e in newest], [(number, str(number))], what="the newest event")
        head = await store.head("s1")
        expect_equal(head and head.last_seq, number, what="last_seq in the head")


@requirement(66, "B31", needs=("shared",))
async def what_was_acknowledged_is_read_through_another_store(subject: Subject) -> None:
    """An append that returned is in the next read through another store object at the same place."""
    one, two = await subject.open(), await subject.open()
    await subject.begin(one, "s1")
    for number in range(2, 30):
        writer, reader = (one, two) if number % 2 else (two, one)
        await subject.say(writer, "s1", text=str(number))
        newest = await reader.read("s1", limit=1, backwards=True)
        expect_equal([(e.seq, text_of(e)) for e in newest], [(number, str(number))], what="the newest event")
