"""Requirements 110 to 124: the index behind the log."""

from __future__ import annotations

from typing import Any

from kipu.errors import InvalidQueryError
from kipu.ports.store import EventStore, Hit, IndexEntry, Phrase, SearchQuery, SessionQuery
from kipu.testing.conformance.expectation import expect, expect_equal, expect_error
from kipu.testing.conformance.requirement import requirement
from kipu.testing.conformance.subject import Subject

NEEDS = ("search",)


async def found(store: EventStore, *phrases: Phrase | str, **conditions: Any) -> list[tuple[str, int]]:
    """Return where one page of a search leads; a text is a phrase of its words."""
    wanted = tuple(Phrase(tuple(phrase.split())) if isinstance(phrase, str) else phrase for phrase in phrases)
    return [(hit.session_id, hit.seq) for hit in (await store.search(SearchQuery(wanted, **conditions))).items]


async def tell(subject: Subject, store: EventStore, *texts: str, session_id: str = "s1") -> None:
    """Append a message for each text, with its words as terms in the index."""
    entries = []
    for text in texts:
        seq = (await subject.say(store, session_id, text=text)).last_seq
        entries.append(IndexEntry(session_id, seq, tuple(text.split())))
    await store.index(entries, indexed={session_id: entries[-1].seq})


@requirement(110, "B60", needs=NEEDS)
async def terms_lead_to_their_events(subject: Subject) -> None:
    """A search finds exactly the events whose terms hold every phrase in order; the reversed phrase finds nothing."""
    store = await subject.open()
    await subject.begin(store, "s1")
    await tell(subject, store, "red green blue", "green red", "blue green blue red", "redgreen")
    expect_equal(await found(store, "red"), [("s1", 4), ("s1", 3), ("s1", 2)], what="one word")
    expect_equal(await found(store, "red green"), [("s1", 2)], what="two words in order")
    expect_equal(await found(store, "green blue"), [("s1", 4), ("s1", 2)], what="two other words in order")
    expect_equal(
        await found(store, "blue", "green red"), [], what="two phrases, one of which nothing holds beside the other"
    )
    expect_equal(await found(store, "blue", "red"), [("s1", 4), ("s1", 2)], what="two phrases in any order")
    expect_equal(await found(store, "red blue green"), [], what="three words in another order")
    expect_equal(await found(store, "gree"), [], what="half a word")


@requirement(111, "B60", needs=NEEDS)
async def a_prefix_goes_on(subject: Subject) -> None:
    """With `prefix` the last term of a phrase may go on, and only the last."""
    store = await subject.open()
    await subject.begin(store, "s1")
    await tell(subject, store, "store stores", "stone storm", "restore")
    sto = Phrase(("sto",), prefix=True)
    expect_equal(await found(store, sto), [("s1", 3), ("s1", 2)], what="a prefix")
    expect_equal(await found(store, Phrase(("store", "sto"), prefix=True)), [("s1", 2)], what="a phrase with a prefix")
    expect_equal(await found(store, Phrase(("sto", "storm"), prefix=True)), [], what="a prefix before the last term")


@requirement(112, "B60", needs=NEEDS)
async def odd_terms_are_plain_text(subject: Subject) -> None:
    """Terms are opaque: operators, quotes, stars, Chinese pairs, hashes and long ones are found as they are, and nothing else is."""
    store = await subject.open()
    await subject.begin(store, "s1")
    odd = [
        "AND",
        "OR",
        "NOT",
        "NEAR",
        "悬空",
        "空引",
        "itgc",
        "é",
        "日",
        "c0ffee" * 10,
        "x" * 300,
        "q1",
        "1",
        "под",
        "ß",
    ]
    for term in odd:
        seq = (await subject.say(store, "s1", text=term)).last_seq
        await store.index([IndexEntry("s1", seq, ("before", term, "after"))], indexed={"s1": seq})
    for number, term in enumerate(odd, 2):
        expect_equal(await found(store, Phrase((term,))), [("s1", number)], what=f"the term {term[:20]!r}")
        phrase = Phrase(("before", term, "after"))
        expect_equal(await found(store, phrase), [("s1", number)], what=f"the phrase around {term[:20]!r}")
    for term in ('"', "*", "'", "a OR b", "c:", "-x", "^", "(", "空悬"):
        expect_equal(await found(store, Phrase((term,))), [], what=f"the term {term!r} that nothing holds")


@requirement(113, "B60", needs=NEEDS)
async def search_pages_hold_every_hit_once(subject: Subject) -> None:
    """Hits come newest first, page after page each once, and within a session by falling seq."""
    store = await subject.open()
    for session_id in ("s1", "s2", "s3"):
        await subject.begin(store, session_id)
    expected = []
    for number in range(21):
        session_id = f"s{number % 3 + 1}"
        await tell(subject, store, f"word number{number}", session_id=session_id)
        expected.append((session_id, number // 3 + 2))
        subject.clock.advance(1)
    for limit in (1, 4, 21, 50):
        hits: list[tuple[str, int]] = []
        cursor: str | None = None
        while True:
            page = await store.search(SearchQuery((Phrase(("word",)),), limit=limit, cursor=cursor))
            expect(len(page.items) <= limit, f"a page of at most {limit}")
            hits += [(hit.session_id, hit.seq) for hit in page.items]
            cursor = page.cursor
            if cursor is None:
                break
        expect_equal(hits, expected[::-1], what=f"the hits by pages of {limit}")


@requirement(114, "B60", "A20", needs=NEEDS)
async def search_keeps_to_its_conditions(subject: Subject) -> None:
    """Session, tenant, owner, status and whom it is visible to narrow a search, by what the head says now."""
    store = await subject.open()
    await subject.begin(store, "a", tenant="t1", owner="o1")
    await subject.begin(store, "b", tenant="t1", owner="o2", status="archived", members={"o3": "viewer", "o4": "admin"})
    await subject.begin(store, "c", tenant="t2", owner="o1")
    for session_id in ("a", "b", "c"):
        await tell(subject, store, "word", session_id=session_id)
    cases: list[tuple[dict[str, Any], set[str]]] = [
        ({}, {"a", "b", "c"}),
        ({"session_id": "b"}, {"b"}),
        ({"session_id": "ghost"}, set()),
        ({"tenant": "t1"}, {"a", "b"}),
        ({"owner": "o1"}, {"a", "c"}),
        ({"tenant": "t1", "owner": "o1"}, {"a"}),
        ({"visible_to": "o1"}, {"a", "c"}),
        ({"visible_to": "o3"}, {"b"}),
        ({"visible_to": "o3", "tenant": "t2"}, set()),
        ({"visible_to": "o4", "owner": "o2"}, {"b"}),
        ({"visible_to": "o"}, set()),
        ({"statuses": frozenset({"archived"})}, {"b"}),
        ({"statuses": frozenset({"active"})}, {"a", "c"}),
        ({"statuses": frozenset()}, set()),
    ]
    for conditions, expected in cases:
        expect_equal({hit[0] for hit in await found(store, "word", **conditions)}, expected, what=f"{conditions}")


@requirement(115, "B50", needs=NEEDS)
async def indexing_twice_is_harmless(subject: Subject) -> None:
    """Entries taken in again, alone or with others, give each hit once."""
    store = await subject.open()
    await subject.begin(store, "s1")
    await tell(subject, store, "word one", "word two")
    again = [IndexEntry("s1", 2, ("word", "one")), IndexEntry("s1", 3, ("word", "two"))]
    await store.index(again, indexed={"s1": 3})
    await store.index(again + again, indexed={"s1": 3})
    expect_equal(await found(store, "word"), [("s1", 3), ("s1", 2)], what="the hits")
    await subject.say(store, "s1", text="another")
    await store.index([IndexEntry("s1", 4, ("another",)), *again], indexed={"s1": 4})
    expect_equal(await found(store, "word"), [("s1", 3), ("s1", 2)], what="the hits behind another event")


@requirement(116, "B50", needs=NEEDS)
async def the_index_says_how_far_it_is(subject: Subject) -> None:
    """`index` moves `indexed_seq`, never back, and `unindexed` lists exactly the sessions whose log is ahead of it."""
    store = await subject.open()
    await subject.begin(store, "s1")
    await subject.begin(store, "s2")
    await tell(subject, store, "word")
    listed = (await store.list(SessionQuery(unindexed=True))).items
    expect_equal([head.session_id for head in listed], ["s2"], what="the sessions behind")
    head = await store.head("s1")
    expect_equal(head and head.indexed_seq, 2, what="indexed_seq")
    await store.index([], indexed={"s1": 1})
    head = await store.head("s1")
    expect_equal(head and head.indexed_seq, 2, what="indexed_seq after what came late")
    await store.index([], indexed={"s2": 1})
    expect_equal(
        (await store.list(SessionQuery(unindexed=True))).items, (), what="the sessions behind after catching up"
    )
    await subject.say(store, "s1", text="more")
    listed = (await store.list(SessionQuery(unindexed=True))).items
    expect_equal([each.session_id for each in listed], ["s1"], what="the sessions behind after an append")


@requirement(117, "B50", needs=NEEDS)
async def a_dropped_index_is_built_anew(subject: Subject) -> None:
    """After `drop_index` nothing is found and everything is behind; indexing again finds all again."""
    store = await subject.open()
    await subject.begin(store, "s1")
    await tell(subject, store, "word")
    await store.drop_index()
    expect_equal(await found(store, "word"), [], what="hits after dropping")
    head = await store.head("s1")
    expect_equal(head and (head.indexed_seq, head.last_seq), (0, 2), what="the head after dropping")
    await store.index([IndexEntry("s1", 2, ("word",))], indexed={"s1": 2})
    expect_equal(await found(store, "word"), [("s1", 2)], what="hits after building anew")


@requirement(118, "B60", needs=NEEDS)
async def only_what_was_indexed_is_found(subject: Subject) -> None:
    """The log itself is not searched, and entries of unknown sessions make no session."""
    store = await subject.open()
    await subject.begin(store, "s1")
    await subject.say(store, "s1", text="word")
    expect_equal(await found(store, "word"), [], what="a word that was not indexed")
    await store.index([IndexEntry("ghost", 1, ("word",))], indexed={"ghost": 1})
    expect_equal(await store.head("ghost"), None, what="the head of an unknown session")
    expect_equal(await found(store, "word"), [], what="hits of an unknown session")


@requirement(119, "B60", needs=NEEDS)
async def a_search_for_nothing_is_refused(subject: Subject) -> None:
    """A search without phrases, with an empty phrase, or with a foreign cursor is InvalidQueryError."""
    store = await subject.open()
    with expect_error(InvalidQueryError, what="no phrases"):
        await store.search(SearchQuery(()))
    with expect_error(InvalidQueryError, what="an empty phrase"):
        await store.search(SearchQuery((Phrase(("a",)), Phrase(()))))
    with expect_error(InvalidQueryError, what="a foreign cursor"):
        await store.search(SearchQuery((Phrase(("a",)),), cursor="nonsense"))


@requirement(120, "B50", needs=("search", "persistent"))
async def the_index_survives_reopening(subject: Subject) -> None:
    """What was indexed is found after the store was closed and opened, without indexing again."""
    store = await subject.open()
    await subject.begin(store, "s1")
    await tell(subject, store, "one word", "two word")
    store = await subject.reopen()
    expect_equal(await found(store, "word"), [("s1", 3), ("s1", 2)], what="the hits")
    expect_equal((await store.search(SearchQuery((Phrase(("one",)),)))).items, (Hit("s1", 2),), what="one hit")
    head = await store.head("s1")
    expect_equal(head and head.indexed_seq, 3, what="indexed_seq")
