"""Requirements 180 to 194: many writers, one order."""

from __future__ import annotations

import asyncio
from collections import Counter

from kipu.errors import ConflictError
from kipu.ports.head import HeadPatch, head_from_json
from kipu.ports.store import EventStore
from kipu.testing.conformance.expectation import expect, expect_equal
from kipu.testing.conformance.heads import without_lease
from kipu.testing.conformance.jobs import append_many, take_turns
from kipu.testing.conformance.requirement import requirement
from kipu.testing.conformance.second_process import Ended, run_in_processes
from kipu.testing.conformance.subject import HeadModel, Subject, text_of, whole_log


async def expect_whole(store: EventStore, session_id: str, *, told: list[tuple[int, str]]) -> None:
    """Say that the log has no gap, that every acknowledged event is at the seq that was told, and that nothing else is there."""
    events = await whole_log(store, session_id)
    expect_equal([event.seq for event in events], list(range(1, len(events) + 1)), what=f"the numbers of {session_id}")
    placed = [(event.seq, text_of(event)) for event in events[1:]]
    expect_equal(placed, sorted(told), what=f"the events of {session_id} and the seqs their writers were told")


def expect_own_order(events: list[str]) -> None:
    """Say that each writer's events stand in the order in which it wrote them."""
    seen: Counter[str] = Counter()
    for text in events:
        name, _, number = text.partition(".")
        expect_equal(int(number), seen[name], what=f"the next event of writer {name}")
        seen[name] += 1


@requirement(180, "C1", "A74")
async def many_writers_make_one_order(subject: Subject) -> None:
    """N tasks that append to one session at once lose nothing, leave no gap, and each keeps its own order."""
    store = await subject.open()
    await subject.begin(store, "s1")
    told: list[tuple[int, str]] = []

    async def write(name: int) -> None:
        for number in range(25):
            text = f"{name}.{number}"
            told.append(((await subject.say(store, "s1", text=text)).first_seq, text))

    await asyncio.gather(*(write(name) for name in range(16)))
    await expect_whole(store, "s1", told=told)
    expect_own_order([text_of(event) for event in (await whole_log(store, "s1"))[1:]])


@requirement(181, "A40", "A65", "B3")
async def many_sessions_at_once_do_not_mix(subject: Subject) -> None:
    """Appends to many sessions at once each land in their own, whole and in order, with heads that agree."""
    store = await subject.open()
    ids = [f"s{number}" for number in range(40)]
    await asyncio.gather(*(subject.begin(store, session_id) for session_id in ids))
    told: dict[str, list[tuple[int, str]]] = {session_id: [] for session_id in ids}

    async def write(session_id: str) -> None:
        for number in range(10):
            text = f"{session_id}.{number}"
            told[session_id].append(((await subject.say(store, session_id, text=text)).first_seq, text))

    await asyncio.gather(*(write(session_id) for session_id in ids))
    for session_id in ids:
        await expect_whole(store, session_id, told=told[session_id])
        head = await store.head(session_id)
        expect_equal(head and (head.last_seq, head.event_count), (11, 11), what=f"the counts of {session_id}")


@requirement(182, "C2", "A52")
async def one_refusal_among_many_is_its_own(subject: Subject) -> None:
    """Of appends made at once, those to be refused are refused, and the others stand, whatever their order."""
    store = await subject.open()
    await subject.begin(store, "s1")
    await subject.begin(store, "s2")
    calls = []
    for number in range(30):
        wrong = number % 3 == 1
        calls.append(
            subject.say(store, "s1" if number % 2 else "s2", text=str(number), expected_seq=999 if wrong else None)
        )
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    refused = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, ConflictError)]
    expect_equal(refused, [number for number in range(30) if number % 3 == 1], what="those that were refused")
    kept = [text_of(event) for each in ("s1", "s2") for event in (await whole_log(store, each))[1:]]
    expect_equal(sorted(kept, key=int), [str(n) for n in range(30) if n % 3 != 1], what="those that stand")


@requirement(183, "C1", "C15")
async def one_of_many_deciders_wins(subject: Subject) -> None:
    """Of many appends at once with the same expected_seq exactly one stands, round after round."""
    store = await subject.open()
    await subject.begin(store, "s1")
    for round_number in range(1, 11):
        calls = [subject.say(store, "s1", text=f"{n}", expected_seq=round_number) for n in range(8)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        lost = sum(isinstance(outcome, ConflictError) for outcome in outcomes)
        expect_equal(lost, 7, what=f"refusals in round {round_number}: {outcomes}")
    expect_equal(len(await whole_log(store, "s1")), 11, what="events in the log")


@requirement(184, "B50", "C1")
async def the_head_counts_every_writer(subject: Subject) -> None:
    """After many writers at once the head equals the patches applied in the order of the seqs."""
    store = await subject.open()
    await subject.begin(store, "s1")
    began = (await whole_log(store, "s1"))[0].record
    patches: dict[int, tuple[HeadPatch, list[str]]] = {}

    async def write(name: int) -> None:
        for number in range(10):
            patch = HeadPatch(
                max={"window_seq": name * number},
                insert_at={"waiting": [0]},
                merge={"metadata": {f"m{name}": number}},
                previews=[(1, "note", f"{name}.{number}")],
            )
            records = [subject.record(f"{name}.{number}.{n}", tokens=name) for n in range(2)]
            outcome = await store.append("s1", records, head=patch)
            patches[outcome.first_seq] = (patch, [record.event_id for record in records])

    await asyncio.gather(*(write(name) for name in range(6)))
    model = HeadModel("s1")
    model.append([began], patch=subject.first_patch(), first_seq=1)
    events = {event.record.event_id: event.record for event in await whole_log(store, "s1")}
    for first_seq, (patch, ids) in sorted(patches.items()):
        model.append([events[event_id] for event_id in ids], patch=patch, first_seq=first_seq)
    expect_equal(without_lease(await store.head("s1")), head_from_json(model.row), what="the head")


@requirement(185, "C1", "A74", "C16", needs=("shared",))
async def two_stores_make_one_order(subject: Subject) -> None:
    """Writers through two store objects at one place lose nothing and leave no gap."""
    one, two = await subject.open(), await subject.open()
    await subject.begin(one, "s1")
    told: list[tuple[int, str]] = []

    async def write(store: EventStore, name: int) -> None:
        for number in range(20):
            text = f"{name}.{number}"
            told.append(((await subject.say(store, "s1", text=text)).first_seq, text))

    await asyncio.gather(*(write(store, n) for n, store in enumerate([one, two, one, two])))
    await expect_whole(one, "s1", told=told)
    await expect_whole(two, "s1", told=told)


def all_told(endings: list[Ended]) -> list[tuple[str, int, str]]:
    """Return every acknowledgement of processes that must have ended well."""
    for each in endings:
        expect_equal(each.code, 0, what=f"the exit code of a writer, which said: {each.errors}")
    return [(session_id, seq, text) for each in endings for session_id, seq, text in each.told]


async def contend(subject: Subject, *, processes: int, count: int, sessions: int) -> None:
    """Let processes append at once and check every session from outside."""
    store = await subject.open()
    ids = [f"s{number}" for number in range(sessions)]
    for session_id in ids:
        await subject.begin(store, session_id)
    arguments = [{"name": str(n), "session_ids": ids, "count": count} for n in range(processes)]
    told = all_told(await run_in_processes(append_many, subject.place, arguments=arguments))
    expect_equal(len(told), processes * count, what="acknowledgements")
    for session_id in ids:
        await expect_whole(store, session_id, told=[(seq, text) for each, seq, text in told if each == session_id])
    expect_equal(await store.verify(), [], what="damage")


@requirement(186, "C1", "C16", "A74", needs=("multi_process",))
async def processes_make_one_order(subject: Subject) -> None:
    """Processes that append to one session at once lose nothing, leave no gap, and damage nothing."""
    await contend(subject, processes=3, count=40, sessions=1)


@requirement(187, "C1", "C16", "B3", needs=("multi_process",))
async def processes_share_many_sessions(subject: Subject) -> None:
    """Processes that append to many sessions at once lose nothing, leave no gap, and mix nothing."""
    await contend(subject, processes=3, count=40, sessions=10)


@requirement(188, "C3", "A39", needs=("multi_process",))
async def processes_take_turns(subject: Subject) -> None:
    """Turns of several processes on one session, each under its lease, do not interleave, and no token is given twice."""
    store = await subject.open()
    await subject.begin(store, "s1")
    arguments = [{"name": str(n), "turns": 8} for n in range(3)]
    endings = await run_in_processes(take_turns, subject.place, arguments=arguments)
    for each in endings:
        expect_equal(each.code, 0, what=f"the exit code of a worker, which said: {each.errors}")
    tokens = [token for each in endings for token in each.told]
    expect_equal(len(set(tokens)), 24, what="different tokens of 24 turns")
    events = [text_of(event) for event in (await whole_log(store, "s1"))[1:]]
    expect_equal(len(events), 72, what="events of 24 turns")
    turns = [events[at : at + 3] for at in range(0, 72, 3)]
    for turn in turns:
        names = {text.rpartition(".")[0] for text in turn}
        expect(len(names) == 1 and [text[-1] for text in turn] == ["0", "1", "2"], f"a turn was cut into: {turn}")
