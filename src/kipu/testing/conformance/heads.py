"""Requirements 75 to 84: the head is what the patches say, and nothing else."""

from __future__ import annotations

import dataclasses
from typing import Any

from kipu.ports.head import Head, HeadPatch, head_from_json
from kipu.ports.store import EventStore, SessionQuery
from kipu.testing.conformance.expectation import expect, expect_equal
from kipu.testing.conformance.requirement import requirement
from kipu.testing.conformance.subject import HeadModel, Subject


def without_lease(head: Head | None) -> Any:
    """Return the head with nothing in its lease fields, which no patch moves."""
    return head and dataclasses.replace(head, lease_owner=None, lease_token=0, lease_until=None)


def telling_patches(subject: Subject) -> list[HeadPatch]:
    """Return patches that use every operation, on fields of every kind."""
    now = subject.clock.iso()
    return [
        subject.first_patch(
            tenant="t",
            owner="o",
            key="cli:1",
            tags=["a", "é"],
            metadata={"topic": "x", "n": 1},
            workspace={"path": "/w"},
        ),
        HeadPatch(
            default={"title": "a title", "first_text": "日本"}, add={"token_count": 10}, insert_at={"waiting": [0, 1]}
        ),
        HeadPatch(
            default={"title": "too late"}, max={"last_activity_at": now, "compaction_seq": 7}, at={"rewind_seq": 1}
        ),
        HeadPatch(
            merge={"metadata": {"topic": None, "model": "m", "deep": {"a": [1, None]}}}, insert={"pins": [3, 2, 3]}
        ),
        HeadPatch(
            min={"window_seq": 0}, max={"compaction_seq": 3}, discard={"waiting": [2]}, insert_at={"waiting": [0]}
        ),
        HeadPatch(set={"open_turn": "t1", "parked": True, "not_before": now, "pinned": True}, at={"open_turn_seq": 0}),
        HeadPatch(previews=[(0, "user_message", "one"), (1, "agent_message", "two")]),
        HeadPatch(previews=[(0, "user_message", "three\u2028\u0000"), (1, "note", "four")], set={"tags": []}),
        HeadPatch(set={"status": "archived", "origin": {"tool": "x"}, "stop": "t1", "title": None}),
    ]


async def append_each(subject: Subject, store: EventStore, *, session_id: str) -> HeadModel:
    """Append two records with each telling patch and return the independent account."""
    model = HeadModel(session_id)
    for number, patch in enumerate(telling_patches(subject)):
        subject.clock.advance(1 if number != 4 else -3600)
        kind = "user_message" if number else "session_init"
        records = [subject.record(event_type=kind, tokens=number), subject.record(tokens=100)]
        outcome = await store.append(session_id, records, head=patch)
        model.append(records, patch=patch, first_seq=outcome.first_seq)
    return model


@requirement(75, "B50", "B30", "C2")
async def the_head_is_what_the_patches_say(subject: Subject) -> None:
    """After appends with every operation the head equals the one computed apart from patches, times, tokens and counts."""
    store = await subject.open()
    model = await append_each(subject, store, session_id="s1")
    expect_equal(without_lease(await store.head("s1")), head_from_json(model.row), what="the head")


@requirement(76, "B50", "B2", needs=("persistent",))
async def the_head_survives_reopening(subject: Subject) -> None:
    """The head after reopening is the head before, field by field."""
    store = await subject.open()
    model = await append_each(subject, store, session_id="s1")
    store = await subject.reopen()
    expect_equal(without_lease(await store.head("s1")), head_from_json(model.row), what="the head")


@requirement(77, "B50")
async def a_list_shows_the_same_heads(subject: Subject) -> None:
    """The heads in a list are those that `head` gives, leases included."""
    store = await subject.open()
    for number in range(5):
        await subject.begin(store, f"s{number}", tags=[str(number)])
    await append_each(subject, store, session_id="full")
    await subject.claim(store, "s1")
    listed = (await store.list(SessionQuery())).items
    expect_equal(len(listed), 6, what="heads in the list")
    for head in listed:
        expect_equal(head, await store.head(head.session_id), what="the head in the list")


@requirement(78, "C1")
async def last_event_at_is_the_newest_time_seen(subject: Subject) -> None:
    """Timestamps that go backwards do not move `last_event_at` back, and order nothing."""
    store = await subject.open()
    await subject.begin(store, "s1")
    newest = subject.clock.iso()
    subject.clock.advance(-5000)
    await subject.say(store, "s1", text="earlier by the clock")
    head = await store.head("s1")
    expect_equal(head and (head.last_event_at, head.last_seq), (newest, 2), what="last_event_at and last_seq")


@requirement(79, "C18", "B9")
async def names_of_a_newer_version_do_no_harm(subject: Subject) -> None:
    """A patch that sets a head field this version does not know is accepted, and the known fields stay right."""
    store = await subject.open()
    await subject.begin(store, "s1", title="t")
    await subject.say(store, "s1", head=HeadPatch(set={"field_of_tomorrow": {"a": 1}}))
    await subject.say(store, "s1", head=HeadPatch(set={"title": "u"}))
    head = await store.head("s1")
    expect(head and (head.title, head.last_seq) == ("u", 3), f"the known fields, got {head}")
