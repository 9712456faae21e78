"""Requirements 85 to 99: lists of heads, filtered and paged."""

from __future__ import annotations

from typing import Any

from kipu.errors import InvalidQueryError
from kipu.ports.head import HeadPatch
from kipu.ports.store import EventStore, SessionQuery
from kipu.testing.conformance.expectation import expect, expect_equal, expect_error
from kipu.testing.conformance.requirement import requirement
from kipu.testing.conformance.subject import Subject


async def ids_of(store: EventStore, **conditions: Any) -> list[str]:
    """Return the ids of one page."""
    return [head.session_id for head in (await store.list(SessionQuery(**conditions))).items]


async def all_pages(store: EventStore, **conditions: Any) -> list[str]:
    """Return the ids of all pages."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.list(SessionQuery(cursor=cursor, **conditions))
        found += [head.session_id for head in page.items]
        cursor = page.cursor
        if cursor is None:
            return found
        expect(page.items, "a page with a cursor must hold something")


async def begin_some(subject: Subject, store: EventStore, *, count: int, same_time: int = 1) -> list[str]:
    """Begin `count` sessions, each `same_time` of them at one time; return the ids by time, then id."""
    ids = [f"s{number:04}" for number in range(count)]
    for number, session_id in enumerate(ids):
        await subject.begin(store, session_id, tags=["even" if number % 2 == 0 else "odd"])
        if number % same_time == same_time - 1:
            subject.clock.advance(1)
    return ids


_ROWS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tenant": {"tenant": "t1"},
    "owner": {"owner": "o1", "tenant": "t1"},
    "archived": {"status": "archived"},
    "tagged": {"tags": ["a", "b"]},
    "tagged-a": {"tags": ["a"]},
    "meta": {"metadata": {"topic": "x", "n": 1, "on": True, "deep": {"k": "v"}}},
    "meta-2": {"metadata": {"topic": "x", "n": 2, "on": False}},
    "meta-odd": {"metadata": {"deep": '{"k":"v"}', "n": 1 << 63, "on": [True, {"k": 1}]}},
    "keyed": {"key": "cli:1"},
    "keyed-2": {"key": "cli:12"},
    "keyed-odd": {"key": "cli_%:1"},
    "keyed-case": {"key": "CLI:1"},
    "forked": {"forked_from": "plain", "base_seq": 3},
    "pinned": {"pinned": True},
    "open": {"open_turn": "turn_1", "parked": True},
    "shared": {"owner": "o2", "tenant": "t1", "members": {"o1": "viewer", "o3": "admin"}},
}

_FILTERS: list[tuple[dict[str, Any], set[str]]] = [
    ({"tenant": "t1"}, {"tenant", "owner", "shared"}),
    ({"visible_to": "o1"}, {"owner", "shared"}),
    ({"visible_to": "o3"}, {"shared"}),
    ({"visible_to": "o3", "statuses": frozenset({"archived"})}, set()),
    ({"visible_to": "o1", "owner": "o2", "tenant": "t1"}, {"shared"}),
    ({"visible_to": "o1", "tenant": "t2"}, set()),
    ({"visible_to": "o"}, set()),
    ({"tenant": "t1", "owner": "o1"}, {"owner"}),
    ({"tenant": "t2"}, set()),
    ({"statuses": frozenset({"archived"})}, {"archived"}),
    ({"statuses": frozenset()}, set()),
    ({"tags": frozenset({"a"})}, {"tagged", "tagged-a"}),
    ({"tags": frozenset({"a", "b"})}, {"tagged"}),
    ({"tags": frozenset({"a", "c"})}, set()),
    ({"metadata": {"topic": "x"}}, {"meta", "meta-2"}),
    ({"metadata": {"topic": "x", "n": 1}}, {"meta"}),
    ({"metadata": {"on": False}}, {"meta-2"}),
    ({"metadata": {"on": True}}, {"meta"}),
    ({"metadata": {"n": "1"}}, set()),
    ({"metadata": {"missing": "x"}}, set()),
    ({"metadata": {"deep": {"k": "v"}}}, {"meta"}),
    ({"metadata": {"deep": '{"k":"v"}'}}, {"meta-odd"}),
    ({"metadata": {"n": 1 << 63}}, {"meta-odd"}),
    ({"metadata": {"on": [True, {"k": 1}]}}, {"meta-odd"}),
    ({"metadata": {"on": [True]}}, set()),
    ({"metadata": {"on": [1, {"k": 1}]}}, set()),
    ({"metadata": {"on": [True, {"k": True}]}}, set()),
    ({"key": "cli:1"}, {"keyed"}),
    ({"key_prefix": "cli:1"}, {"keyed", "keyed-2"}),
    ({"key_prefix": "cli_"}, {"keyed-odd"}),
    ({"key_prefix": "cli_%"}, {"keyed-odd"}),
    ({"key_prefix": "%"}, set()),
    ({"forked_from": "plain"}, {"forked"}),
    ({"open_turn": True}, {"open"}),
    ({"pinned": True}, {"pinned"}),
    ({"pinned": True, "key": "cli:1"}, set()),
]


@requirement(85, "B26", "B37")
async def every_filter_holds(subject: Subject) -> None:
    """Each condition of a query, and every combination of them, gives exactly the heads for which all hold; `_` and `%` are plain."""
    store = await subject.open()
    for session_id, fields in _ROWS.items():
        await subject.begin(store, session_id, **fields)
    for conditions, expected in _FILTERS:
        expect_equal(set(await ids_of(store, **conditions)), expected, what=f"{conditions}")
    expect_equal(set(await ids_of(store)), set(_ROWS), what="no condition")
    expect_equal(set(await ids_of(store, open_turn=False)), set(_ROWS) - {"open"}, what="no open turn")
    expect_equal(set(await ids_of(store, pinned=False)), set(_ROWS) - {"pinned"}, what="not pinned")
    expect_equal(set(await ids_of(store, statuses=frozenset({"active", "archived"}))), set(_ROWS), what="two statuses")


@requirement(86, "B26", "B26")
async def times_bound_a_list(subject: Subject) -> None:
    """Bounds on creation and activity keep what lies between them."""
    store = await subject.open()
    start = subject.clock
    marks = []
    for number in range(4):
        marks.append(start.iso(-0.5))
        await subject.begin(store, f"s{number}")
        start.advance(1)
    await subject.say(store, "s0", head=HeadPatch(max={"last_activity_at": start.iso()}))
    expect_equal(set(await ids_of(store, created_after=marks[2])), {"s2", "s3"}, what="created_after")
    expect_equal(set(await ids_of(store, created_before=marks[2])), {"s0", "s1"}, what="created_before")
    both = await ids_of(store, created_after=marks[1], created_before=marks[3])
    expect_equal(set(both), {"s1", "s2"}, what="created between")
    expect_equal(set(await ids_of(store, active_after=marks[3])), {"s3", "s0"}, what="active_after")
    expect_equal(set(await ids_of(store, active_before=marks[2])), {"s1"}, what="active_before")


@requirement(87, "B26", "B50")
async def a_list_has_its_order(subject: Subject) -> None:
    """Heads come by last activity or by creation, newest first or last, whatever the order of their ids or events."""
    store = await subject.open()
    for session_id in ("m", "a", "z"):
        await subject.begin(store, session_id)
        subject.clock.advance(1)
    await subject.say(store, "a", head=HeadPatch(max={"last_activity_at": subject.clock.iso()}))
    subject.clock.advance(1)
    await subject.say(store, "m")
    expect_equal(await ids_of(store), ["a", "z", "m"], what="by activity, newest first")
    expect_equal(await ids_of(store, descending=False), ["m", "z", "a"], what="by activity, oldest first")
    expect_equal(await ids_of(store, order="created_at"), ["z", "a", "m"], what="by creation, newest first")
    expect_equal(
        await ids_of(store, order="created_at", descending=False), ["m", "a", "z"], what="by creation, oldest first"
    )


@requirement(88, "B26")
async def pages_hold_every_head_once(subject: Subject) -> None:
    """Page after page gives every head once, also where many have the same time, in every order and size; the last has no cursor."""
    store = await subject.open()
    ids = await begin_some(subject, store, count=23, same_time=6)
    for order in ("last_activity_at", "created_at"):
        for descending in (True, False):
            whole = await ids_of(store, order=order, descending=descending)
            expect_equal(sorted(whole), ids, what="one big page")
            for limit in (1, 2, 5, 23, 24):
                found = await all_pages(store, order=order, descending=descending, limit=limit)
                expect_equal(found, whole, what=f"{order} descending={descending} limit={limit}")
    expect_equal(sorted(await all_pages(store, tags=frozenset({"odd"}), limit=3)), ids[1::2], what="filtered pages")


@requirement(89, "B26", "A74")
async def pages_stay_right_while_sessions_change(subject: Subject) -> None:
    """While sessions are begun, used and changed between two pages, none that stays is skipped or given twice."""
    store = await subject.open()
    ids = await begin_some(subject, store, count=30)
    touched = {"s0003", "s0017", "s0028"}
    found: list[str] = []
    cursor: str | None = None
    step = 0
    while True:
        page = await store.list(SessionQuery(limit=4, cursor=cursor))
        found += [head.session_id for head in page.items]
        cursor = page.cursor
        if cursor is None:
            break
        step += 1
        subject.clock.advance(1)
        await subject.begin(store, f"new{step}")
        for session_id in touched:
            await subject.say(store, session_id, head=HeadPatch(max={"last_activity_at": subject.clock.iso()}))
    steady = [session_id for session_id in ids if session_id not in touched]
    expect_equal(sorted(set(steady) & set(found)), steady, what="the sessions that did not change")
    expect_equal(len(found), len(set(found)), what="ids given, against different ids given")


@requirement(90, "B26")
async def a_foreign_cursor_is_refused(subject: Subject) -> None:
    """A cursor that this store did not make is InvalidQueryError, never a first page."""
    store = await subject.open()
    await begin_some(subject, store, count=3)
    for cursor in ("nonsense", "", "%", "eyJhIjoxfQ", "é"):
        with expect_error(InvalidQueryError, what=f"the cursor {cursor!r}"):
            await store.list(SessionQuery(cursor=cursor, limit=1))


@requirement(91, "B26")
async def an_empty_store_lists_nothing(subject: Subject) -> None:
    """A list of an empty store is an empty page without a cursor."""
    store = await subject.open()
    page = await store.list(SessionQuery())
    expect_equal((page.items, page.cursor), ((), None), what="the page")


@requirement(92, "B26", "A50", needs=("persistent",))
async def a_list_survives_reopening(subject: Subject) -> None:
    """The list and its pages after reopening are those before it, in the same order."""
    store = await subject.open()
    await begin_some(subject, store, count=12, same_time=5)
    before = await all_pages(store, limit=5)
    store = await subject.reopen()
    expect_equal(await all_pages(store, limit=5), before, what="the list")


@requirement(93, "C19")
async def what_is_shared_is_listed_with_what_is_owned(subject: Subject) -> None:
    """What an id owns and what it is a member of come as one list, page after page, in each order, as it stands now."""
    store = await subject.open()
    for number in range(21):
        owned = {"owner": "me"} if number % 3 == 0 else {"owner": "other"}
        members = {"members": {"me": "viewer", "them": "admin"}} if number % 3 == 1 else {}
        await subject.begin(store, f"s{number:02}", **owned, **members)
        if number % 2:
            subject.clock.advance(1)
    mine = [f"s{number:02}" for number in range(21) if number % 3 != 2]
    for order in ("created_at", "last_activity_at"):
        for limit in (1, 4, 100):
            pages = await all_pages(store, visible_to="me", limit=limit, order=order, descending=False)
            expect_equal(pages, mine, what=f"{limit} by {order}")
    subject.clock.advance(1)
    await subject.say(store, "s01", head=HeadPatch(max={"last_activity_at": subject.clock.iso()}))
    expect_equal((await all_pages(store, visible_to="me", limit=2))[0], "s01", what="the one used last")
    await subject.say(store, "s04", head=HeadPatch(merge={"members": {"me": None}}))
    left = await all_pages(store, visible_to="me", limit=4, order="created_at", descending=False)
    expect_equal(left, [each for each in mine if each != "s04"], what="what is left when one was taken back")
    expect("s04" in await all_pages(store, visible_to="them", limit=3), "another member still has it")
