"""Requirements 1 to 19: what `append` does and refuses."""

from __future__ import annotations

import orjson

from kipu.errors import ConflictError, SessionExistsError, SessionNotFoundError
from kipu.ports.head import HeadPatch
from kipu.ports.store import Appended, Record
from kipu.testing.conformance.expectation import expect, expect_equal, expect_error
from kipu.testing.conformance.requirement import requirement
from kipu.testing.conformance.subject import Subject, text_of, texts, unchanged, whole_log

_LARGE_BYTES = 20_000_000


@requirement(1, "C1", "C2", "B19")
async def a_session_begins_at_seq_1(subject: Subject) -> None:
    """The first append of a new session, a `session_init`, gets seq 1 and is read back."""
    store = await subject.open()
    appended = await subject.begin(store, "s1")
    expect_equal(appended, Appended("s1", 1, 1, duplicate=False), what="the outcome of the first append")
    log = await whole_log(store, "s1")
    expect_equal([(e.seq, e.session_id, e.record.event_type) for e in log], [(1, "s1", "session_init")], what="the log")


@requirement(2, "C1", "C2")
async def seq_has_no_gap(subject: Subject) -> None:
    """Batches of any size get consecutive numbers in the order given, and the outcome names the first and last."""
    store = await subject.open()
    await subject.begin(store, "s1")
    expected = ["begin"]
    for size in (1, 3, 1, 7, 2):
        batch = [subject.record(f"{size}.{n}") for n in range(size)]
        first = len(expected) + 1
        outcome = await store.append("s1", batch)
        expect_equal(outcome, Appended("s1", first, first + size - 1), what=f"the outcome of a batch of {size}")
        expected += [f"{size}.{n}" for n in range(size)]
    log = await whole_log(store, "s1")
    expect_equal([e.seq for e in log], list(range(1, len(expected) + 1)), what="the numbers")
    expect_equal([text_of(e) for e in log], expected, what="the order")


@requirement(3, "C2", "A52")
async def a_refused_batch_leaves_nothing(subject: Subject) -> None:
    """An append that is refused changes neither the log nor the head nor a key."""
    store = await subject.open()
    await subject.begin(store, "s1")
    batch = [subject.record("a"), subject.record("b"), subject.record("c")]
    async with unchanged(store, "s1"):
        with expect_error(ConflictError, what="a wrong expected_seq"):
            await store.append("s1", batch, head=HeadPatch(set={"title": "no"}), expected_seq=7)
    expect_equal((await subject.say(store, "s1")).first_seq, 2, what="the next number after a refusal")


@requirement(4, "B21", "A26")
async def a_second_beginning_is_refused(subject: Subject) -> None:
    """`session_init` for an id that exists is SessionExistsError and changes nothing."""
    store = await subject.open()
    await subject.begin(store, "s1", title="first")
    await subject.say(store, "s1")
    async with unchanged(store, "s1"):
        with expect_error(SessionExistsError, what="a second session_init"):
            await subject.begin(store, "s1", title="second")


@requirement(5, "B24", "A50")
async def an_unknown_session_is_refused(subject: Subject) -> None:
    """Anything but `session_init` for an id that does not exist is SessionNotFoundError and makes no session."""
    store = await subject.open()
    with expect_error(SessionNotFoundError, what="an append to nothing"):
        await subject.say(store, "ghost")
    expect_equal(await store.head("ghost"), None, what="the head of a session that was never begun")
    await subject.begin(store, "ghost")
    expect_equal(await texts(store, "ghost"), ["begin"], what="the log of the session begun later")


@requirement(6, "C11")
async def a_fork_starts_after_its_base(subject: Subject) -> None:
    """Own events of a session whose first patch sets `base_seq` start at the next number; only they are kept."""
    store = await subject.open()
    outcome = await subject.begin(store, "fork", base_seq=120, forked_from="parent")
    expect_equal((outcome.first_seq, outcome.last_seq), (121, 121), what="the first number of a fork")
    expect_equal((await subject.say(store, "fork")).first_seq, 122, what="its second number")
    expect_equal([e.seq for e in await whole_log(store, "fork")], [121, 122], what="what is read")
    head = await store.head("fork")
    expect(head and (head.base_seq, head.last_seq, head.event_count) == (120, 122, 2), f"the head of a fork: {head}")


@requirement(7, "C1", "C15")
async def expected_seq_decides_who_was_first(subject: Subject) -> None:
    """An append with the session's last seq passes; with any other number it is ConflictError with nothing changed."""
    store = await subject.open()
    await subject.begin(store, "s1")
    expect_equal((await subject.say(store, "s1", expected_seq=1)).first_seq, 2, what="an append that saw the newest")
    for wrong in (0, 1, 3, 10**9):
        async with unchanged(store, "s1"):
            with expect_error(ConflictError, what=f"expected_seq={wrong} at 2"):
                await subject.say(store, "s1", expected_seq=wrong)


@requirement(8, "A28", "B10", "C18")
async def an_envelope_comes_back_as_it_was(subject: Subject) -> None:
    """Every field of a record comes back with its value (`urgent` is advice and need not)."""
    store = await subject.open()
    await subject.begin(store, "s1")
    full = subject.record(
        "x",
        tokens=1234,
        turn_id="turn_1",
        trace_id="trace/é",
        principal="user:日本",
        v=7,
        timestamp="0001-01-01T00:00:00.000000Z",
    )
    bare = subject.record("y", event_type="delivery")
    odd = subject.record("z", event_type="a_type_nobody_knows", turn_id="", trace_id="", principal="")
    await store.append("s1", [full, bare, odd])
    read = [e.record._replace(urgent=False) for e in await store.read("s1", after=1)]
    expect_equal(read, [full, bare, odd], what="the records")


def odd_bodies() -> list[bytes]:
    """Return bodies that stores have stumbled over: line separators, escapes, forms of numbers, spacing, depth."""
    texts = [
        "\u2028\u2029\u0085\x0b\x1c",
        "a\u0000b",
        "\x1b[2J\x07",
        "\ufeff",
        "e\u0301é",
        "悬空 itgc后50条",
        "👩‍👩‍👧‍👦",
        "'\"\\%_*",
    ]
    bodies = [orjson.dumps({"content": text}) for text in texts]
    bodies += [
        b'{"content":"\\ud83d"}',
        b'{"content":"\\u0000\\/\\b"}',
        b'{ "content" : "spaces" , "n" : 1.0e+5 }',
        b'{"content":"twice","content":"twice"}',
        b'{"content":12345678901234567890123456789,"f":0.1000}',
        '{"content":"\u2028 and \\u2028, \u0085 and \\u0085"}'.encode(),
        b"{}",
        b'{"content":' + b"[" * 400 + b"]" * 400 + b"}",
        b'{"c":"00000000","seq":0,"content":"looks like an envelope","event_id":"x"}',
    ]
    return bodies


@requirement(9, "B8", "C6")
async def a_body_comes_back_byte_for_byte(subject: Subject) -> None:
    """A body is opaque: odd Unicode, escapes, spacing, number forms and names like the envelope's come back as the same bytes."""
    store = await subject.open()
    await subject.begin(store, "s1")
    bodies = odd_bodies()
    await store.append("s1", [subject.record(body=body) for body in bodies])
    for body in bodies:
        await store.append("s1", [subject.record(body=body)])
    read = [e.record.body for e in await store.read("s1", after=1)]
    expect_equal(read, bodies * 2, what="the bodies")


@requirement(10, "C16")
async def size_is_not_damage(subject: Subject) -> None:
    """A body of 20 MB is kept, read back and passed over in both directions; nothing calls it damaged."""
    store = await subject.open()
    await subject.begin(store, "s1")
    large = orjson.dumps({"content": 'é\\"' * (_LARGE_BYTES // 6)})
    await store.append("s1", [subject.record(body=large)])
    await subject.say(store, "s1", text="after")
    expect(((await store.read("s1", after=1, limit=1))[0]).record.body == large, "the large body must come back")
    backwards = await store.read("s1", backwards=True, limit=2)
    expect_equal([e.seq for e in backwards], [3, 2], what="reading backwards over it")
    expect_equal(await store.verify("s1"), [], what="damage")


@requirement(11, "C2")
async def equal_content_is_two_events(subject: Subject) -> None:
    """The same record appended twice without a key is two events."""
    store = await subject.open()
    await subject.begin(store, "s1")
    first = subject.record("again")
    second = subject.record("again")
    for record in (first, second):
        await store.append("s1", [record])
    expect_equal(await texts(store, "s1"), ["begin", "again", "again"], what="the log")


@requirement(12, "C2", "A24")
async def a_large_batch_is_one_append(subject: Subject) -> None:
    """A batch of 1 000 records is appended whole and in order."""
    store = await subject.open()
    await subject.begin(store, "s1")
    batch: list[Record] = [subject.record(str(n)) for n in range(1000)]
    expect_equal(await store.append("s1", batch), Appended("s1", 2, 1001), what="the outcome")
    expect_equal(await texts(store, "s1"), ["begin", *(str(n) for n in range(1000))], what="the log")


@requirement(13, "A21", "B38")
async def sessions_do_not_mix(subject: Subject) -> None:
    """What is appended to one session is in no other, also where ids look alike or are a prefix of each other."""
    store = await subject.open()
    ids = ["a", "a-b", "a_b", "ab", "a0", "a-", "_", "-", "0", "x" * 64]
    for session_id in ids:
        await subject.begin(store, session_id)
    for turn in range(3):
        for session_id in ids:
            await subject.say(store, session_id, text=f"{session_id}{turn}")
    for session_id in ids:
        expected = ["begin", *(f"{session_id}{turn}" for turn in range(3))]
        expect_equal(await texts(store, session_id), expected, what=f"the log of {session_id}")
