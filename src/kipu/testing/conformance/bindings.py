"""Requirements 50 to 59: where keys lead."""

from __future__ import annotations

import asyncio

from kipu.errors import ConflictError, SessionNotFoundError
from kipu.ports.store import Binding
from kipu.testing.conformance.expectation import expect_equal, expect_error
from kipu.testing.conformance.requirement import requirement
from kipu.testing.conformance.subject import Subject, texts, unchanged


@requirement(50, "A13", "A20")
async def a_key_leads_where_it_was_bound(subject: Subject) -> None:
    """`resolve` gives the id a key was bound to, and None for a key that was not bound."""
    store = await subject.open()
    await subject.begin(store, "s1")
    expect_equal(await store.resolve("cli:1"), None, what="an unbound key")
    await store.bind("cli:1", "s1")
    expect_equal(await store.resolve("cli:1"), "s1", what="the bound key")


@requirement(51, "A74", "A39")
async def binding_is_compare_and_set(subject: Subject) -> None:
    """`bind` moves a key only from where the caller saw it; otherwise it is ConflictError and the key stays."""
    store = await subject.open()
    await subject.begin(store, "s1")
    await subject.begin(store, "s2")
    with expect_error(ConflictError, what="an unbound key expected elsewhere"):
        await store.bind("k:1", "s1", expected="s2")
    expect_equal(await store.resolve("k:1"), None, what="the key after the first refusal")
    await store.bind("k:1", "s1")
    for expected in (None, "s2", "nothing"):
        with expect_error(ConflictError, what=f"expected={expected} where s1 is"):
            await store.bind("k:1", "s2", expected=expected)
        expect_equal(await store.resolve("k:1"), "s1", what="the key after a refusal")
    await store.bind("k:1", "s2", expected="s1")
    expect_equal(await store.resolve("k:1"), "s2", what="the key after the move")


@requirement(52, "A50", "B24")
async def a_key_never_leads_to_nothing(subject: Subject) -> None:
    """`bind` to a session that does not exist is SessionNotFoundError, and the key stays unbound."""
    store = await subject.open()
    with expect_error(SessionNotFoundError, what="binding to nothing"):
        await store.bind("k:1", "ghost")
    expect_equal(await store.resolve("k:1"), None, what="the key")


@requirement(53, "C2", "A13")
async def an_append_and_its_binding_are_one(subject: Subject) -> None:
    """An append with `bind` does both, or where the key is not as expected neither; a new session is then not made."""
    store = await subject.open()
    await store.append(
        "s1", [subject.record(event_type="session_init")], head=subject.first_patch(), bind=Binding("k:1")
    )
    expect_equal(await store.resolve("k:1"), "s1", what="the key of the new session")
    init = [subject.record(event_type="session_init")]
    with expect_error(ConflictError, what="a beginning whose key is taken"):
        await store.append("s2", init, head=subject.first_patch(), bind=Binding("k:1"))
    expect_equal(await store.head("s2"), None, what="the session that was refused")
    await store.append("s2", init, head=subject.first_patch(), bind=Binding("k:1", expected="s1"))
    expect_equal(await store.resolve("k:1"), "s2", what="the key after the move")
    async with unchanged(store, "s1"):
        with expect_error(ConflictError, what="a late append that moves the key back"):
            await subject.say(store, "s1", bind=Binding("k:1", expected="s1"))
    expect_equal(await texts(store, "s1"), ["hello"], what="the log of the old session")


@requirement(54, "A21", "A15")
async def distinct_keys_never_meet(subject: Subject) -> None:
    """Keys that differ in separators, case, Unicode form, spaces or length lead to their own sessions."""
    store = await subject.open()
    keys = [
        "a:b",
        "a_b",
        "a/b",
        "a:B",
        "A:b",
        "a:b ",
        "a:é",
        "a:e\u0301",
        "a:%3A",
        "a:%3a",
        "a::b",
        "a:b:",
        "日:本",
        "日:本 ",
    ]
    keys += [
        "a:" + "x" * 500,
        "a:" + "x" * 501,
        "a:\u2028",
        "a:\u2029",
        "a:'",
        'a:"',
        "a:\\",
        "a:\\\\",
        "a:b\u0000",
        "a:%",
        "a:_",
    ]
    for number, key in enumerate(keys):
        await subject.begin(store, f"s{number}")
        await store.bind(key, f"s{number}")
    found = [await store.resolve(key) for key in keys]
    expect_equal(found, [f"s{number}" for number in range(len(keys))], what="where the keys lead")


@requirement(55, "A13", "B2", needs=("persistent",))
async def bindings_survive_reopening(subject: Subject) -> None:
    """Bindings, moved ones and those made by appends are there after the store was closed and opened."""
    store = await subject.open()
    await subject.begin(store, "s1")
    await store.append(
        "s2", [subject.record(event_type="session_init")], head=subject.first_patch(), bind=Binding("k:2")
    )
    await store.bind("k:1", "s1")
    await store.bind("k:3", "s1")
    await store.bind("k:3", "s2", expected="s1")
    store = await subject.reopen()
    expect_equal(
        [await store.resolve(key) for key in ("k:1", "k:2", "k:3")], ["s1", "s2", "s2"], what="where the keys lead"
    )


@requirement(56, "A74", "A37")
async def one_of_many_binds_wins(subject: Subject) -> None:
    """Of many that bind one free key at once exactly one succeeds, and the others get ConflictError."""
    store = await subject.open()
    for number in range(10):
        await subject.begin(store, f"s{number}")
    outcomes = await asyncio.gather(*(store.bind("k:1", f"s{n}") for n in range(10)), return_exceptions=True)
    lost = [outcome for outcome in outcomes if isinstance(outcome, ConflictError)]
    expect_equal((len(lost), outcomes.count(None)), (9, 1), what=f"refusals and successes in {outcomes}")
    expect_equal(await store.resolve("k:1"), f"s{outcomes.index(None)}", what="where the key leads")


@requirement(57, "A13", needs=("shared",))
async def bindings_hold_between_stores(subject: Subject) -> None:
    """A binding made through one store object is seen, and defended, by another at the same place."""
    one, two = await subject.open(), await subject.open()
    await subject.begin(one, "s1")
    await subject.begin(one, "s2")
    await one.bind("k:1", "s1")
    expect_equal(await two.resolve("k:1"), "s1", what="the key through the other store")
    with expect_error(ConflictError, what="the other store's bind"):
        await two.bind("k:1", "s2")
    await two.bind("k:1", "s2", expected="s1")
    expect_equal(await one.resolve("k:1"), "s2", what="the key through the first store")
