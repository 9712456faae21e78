"""The suite itself: it catches stores that break one thing, runs without pytest, and says what it found (C25)."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from kipu.errors import InvalidQueryError, SessionNotFoundError
from kipu.ports.head import EMPTY_PATCH, Head, HeadPatch
from kipu.ports.store import (
    MAX_PAGE,
    Appended,
    Binding,
    EventStore,
    Hit,
    IndexEntry,
    Lease,
    Page,
    Record,
    SearchQuery,
    SessionQuery,
    StoredEvent,
)
from kipu.ports.store import (
    Outcome as KeyOutcome,
)
from kipu.stores.memory import MemoryStore
from kipu.testing.conformance import (
    Capabilities,
    Finding,
    FunctionPlace,
    Outcome,
    Place,
    all_requirements,
    following,
    markdown_table,
    run,
)
from kipu.testing.stateful import machine_for

IN_MEMORY = Capabilities(persistent=False, shared=False, multi_process=False, files=False, reason="it is in memory")


class NoFencing(MemoryStore):
    """Takes any token."""

    async def append(self, session_id: str, records: Sequence[Record], **options: Any) -> Appended:
        """Append without looking at the token."""
        session = self._sessions.get(session_id)
        if options.get("token") is not None and session is not None:
            options["token"] = session.row.get("lease_token", 0)
        return await super().append(session_id, records, **options)


class NoExpectedSeq(MemoryStore):
    """Ignores what the caller saw."""

    async def append(self, session_id: str, records: Sequence[Record], **options: Any) -> Appended:
        """Append without looking at expected_seq."""
        return await super().append(session_id, records, **{**options, "expected_seq": None})


class NoIdempotency(MemoryStore):
    """Forgets keys."""

    async def append(self, session_id: str, records: Sequence[Record], **options: Any) -> Appended:
        """Append without looking at the key."""
        return await super().append(session_id, records, **{**options, "idempotency_key": None})


class KeyPerSession(MemoryStore):
    """Knows a retry only in the same session."""

    async def append(self, session_id: str, records: Sequence[Record], **options: Any) -> Appended:
        """Append under a key that names the session."""
        key = options.get("idempotency_key")
        options["idempotency_key"] = f"{session_id}/{key}" if key is not None else None
        return await super().append(session_id, records, **options)


class Deduplicates(MemoryStore):
    """Takes equal content for a retry."""

    async def append(self, session_id: str, records: Sequence[Record], **options: Any) -> Appended:
        """Append under a key made of the content, where none is given."""
        key = options.get("idempotency_key") or repr([(r.body, r.event_type) for r in records]) + session_id
        return await super().append(session_id, records, **{**options, "idempotency_key": key})


class HalfBatches(MemoryStore):
    """Writes a batch record by record, so that a cancellation cuts it."""

    async def append(self, session_id: str, records: Sequence[Record], **options: Any) -> Appended:
        """Append one after the other."""
        first: Appended | None = None
        for record in records:
            outcome = await super().append(session_id, [record], **options)
            options = {}
            first = first or outcome
            await asyncio.sleep(0)
        assert first is not None
        return first._replace(last_seq=first.first_seq + len(records) - 1)


class TellsTooLate(MemoryStore):
    """Has appended, and then lets a cancellation through."""

    async def append(self, session_id: str, records: Sequence[Record], **options: Any) -> Appended:
        """Append, then wait."""
        outcome = await super().append(session_id, records, **options)
        await asyncio.sleep(0)
        return outcome


class SwallowsCancellation(MemoryStore):
    """Has appended, and keeps a cancellation to itself."""

    async def append(self, session_id: str, records: Sequence[Record], **options: Any) -> Appended:
        """Append, then wait and forget that somebody wanted to stop."""
        outcome = await super().append(session_id, records, **options)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        return outcome


class NoLeaseNeeded(MemoryStore):
    """Lets everybody append turn events."""

    async def append(self, session_id: str, records: Sequence[Record], **options: Any) -> Appended:
        """Append with the newest token where none is given."""
        session = self._sessions.get(session_id)
        if options.get("token") is None and session is not None:
            options["token"] = session.row.get("lease_token", 0)
        return await super().append(session_id, records, **options)


class EmptyForUnknown(MemoryStore):
    """Takes an unknown session for an empty one."""

    async def read(self, session_id: str, **options: Any) -> list[StoredEvent]:
        """Read, and say nothing where there is nothing."""
        try:
            return await super().read(session_id, **options)
        except SessionNotFoundError:
            return []


class ForwardsOnly(MemoryStore):
    """Gives the first ones for the last."""

    async def read(self, session_id: str, *, backwards: bool = False, **options: Any) -> list[StoredEvent]:
        """Read the first ones and turn them round."""
        events = await super().read(session_id, **options)
        return events[::-1] if backwards else events


class LooseBodies(MemoryStore):
    """Looks into bodies."""

    async def append(self, session_id: str, records: Sequence[Record], **options: Any) -> Appended:
        """Append what came out of a decoder and an encoder."""
        import orjson

        try:
            tidy = [record._replace(body=orjson.dumps(orjson.loads(record.body))) for record in records]
        except ValueError:
            tidy = list(records)
        return await super().append(session_id, tidy, **options)


class NoPatch(MemoryStore):
    """Forgets one operation of a patch."""

    async def append(
        self, session_id: str, records: Sequence[Record], *, head: HeadPatch = EMPTY_PATCH, **options: Any
    ) -> Appended:
        """Append without the patch's `max`."""
        return await super().append(session_id, records, head=head._replace(max={}), **options)


class BindsLate(MemoryStore):
    """Binds after the append, not in it."""

    async def append(
        self, session_id: str, records: Sequence[Record], *, bind: Binding | None = None, **options: Any
    ) -> Appended:
        """Append, then bind."""
        outcome = await super().append(session_id, records, **options)
        if bind is not None:
            await self.bind(bind.key, session_id, expected=bind.expected)
        return outcome


class BindsAnyway(MemoryStore):
    """Moves keys whatever the caller saw."""

    async def bind(self, key: str, session_id: str, *, expected: str | None = None) -> None:
        """Bind."""
        await super().bind(key, session_id, expected=await self.resolve(key))


class FoldsKeys(MemoryStore):
    """Takes keys that differ in case for the same."""

    async def bind(self, key: str, session_id: str, *, expected: str | None = None) -> None:
        """Bind the folded key."""
        await super().bind(key.lower(), session_id, expected=expected)

    async def resolve(self, key: str) -> str | None:
        """Resolve the folded key."""
        return await super().resolve(key.lower())


class StealsLeases(MemoryStore):
    """Gives a lease to whoever asks."""

    async def claim(self, session_id: str, *, owner: str, ttl_s: float) -> Lease | None:
        """Claim after letting the holder go."""
        session = self._sessions.get(session_id)
        if session is not None:
            session.row = {**session.row, "lease_owner": None}
        return await super().claim(session_id, owner=owner, ttl_s=ttl_s)


class ForgetsTokens(MemoryStore):
    """Starts tokens anew after a release."""

    async def release(self, lease: Lease, *, expected_seq: int | None = None) -> bool:
        """Release and forget."""
        done = await super().release(lease, expected_seq=expected_seq)
        session = self._sessions.get(lease.session_id)
        if done and session is not None and session.row.get("lease_owner") is None:
            session.row = {**session.row, "lease_token": 0}
        return done


class ReleasesAnyway(MemoryStore):
    """Gives the lease back though something arrived."""

    async def release(self, lease: Lease, *, expected_seq: int | None = None) -> bool:
        """Release without looking."""
        return await super().release(lease)


class OffsetPages(MemoryStore):
    """Pages by counting, so that changes between pages shift them."""

    async def list(self, query: SessionQuery) -> Page[Head]:
        """List from an offset."""
        start = int(query.cursor) if query.cursor and query.cursor.isdigit() else 0
        if query.cursor and not query.cursor.isdigit():
            return await super().list(query)
        whole = await super().list(replace(query, cursor=None, limit=MAX_PAGE))
        items = whole.items[start : start + query.limit]
        more = start + query.limit < len(whole.items)
        return Page(items, str(start + query.limit) if more else None)


class FirstPageForAnyCursor(MemoryStore):
    """Takes a foreign cursor for none."""

    async def list(self, query: SessionQuery) -> Page[Head]:
        """List from the start if the cursor makes no sense."""
        try:
            return await super().list(query)
        except InvalidQueryError:
            return await super().list(replace(query, cursor=None))


class RunsHeldSessions(MemoryStore):
    """Offers sessions that somebody holds."""

    async def runnable(self, *, now: str, limit: int) -> list[Head]:
        """Return whatever is due."""
        heads = (await self.list(SessionQuery(limit=MAX_PAGE))).items
        return [head for head in heads if head.due_at is not None and head.due_at <= now][:limit]


class WordsInAnyOrder(MemoryStore):
    """Takes phrases for sets of words."""

    async def index(self, entries: Sequence[IndexEntry], **options: Any) -> None:
        """Index words sorted."""
        await super().index([replace(entry, terms=tuple(sorted(entry.terms))) for entry in entries], **options)


class SearchesOldestFirst(MemoryStore):
    """Gives hits in the wrong order."""

    async def search(self, query: SearchQuery) -> Page[Hit]:
        """Search and turn the page round."""
        page = await super().search(query)
        return Page(page.items[::-1], page.cursor)


class SkippingFollow(MemoryStore):
    """Reads what is there, then waits for what comes: what is committed between is skipped."""

    async def _skipping(
        self, session_id: str | None, after: int, types: AbstractSet[str] | None
    ) -> AsyncIterator[StoredEvent]:
        last = after
        async for event in super().follow(session_id, after=after, types=types):
            if event.seq > last + 1 and event.seq % 7 == 0 and session_id is not None:
                continue
            if event.seq % 50 == 49:
                last = event.seq
                continue
            last = event.seq
            yield event

    def follow(
        self, session_id: str | None = None, *, after: int = 0, types: AbstractSet[str] | None = None
    ) -> AsyncIterator[StoredEvent]:
        """Follow with holes."""
        return self._skipping(session_id, after, types)


class ErasesTheHeadOnly(MemoryStore):
    """Leaves keys behind."""

    async def erase(self, session_id: str, *, lease: Lease) -> Any:
        """Erase and put the keys back."""
        bindings = dict(self._bindings)
        receipt = await super().erase(session_id, lease=lease)
        self._bindings = bindings
        return receipt


class ReusesIds(MemoryStore):
    """Forgets that an id was erased."""

    async def erase(self, session_id: str, *, lease: Lease) -> Any:
        """Erase without a tombstone."""
        receipt = await super().erase(session_id, lease=lease)
        self._erased.clear()
        return receipt


class SharesBlobs(MemoryStore):
    """Gives a blob to every session."""

    async def get_blob(self, session_id: str, digest: str) -> bytes:
        """Look everywhere."""
        for session in self._sessions.values():
            if digest in session.blobs:
                return session.blobs[digest]
        return await super().get_blob(session_id, digest)


class TellsEveryOutcome(MemoryStore):
    """Forgets that keys end."""

    async def outcomes(self, session_id: str) -> list[KeyOutcome]:
        """Return what was ever appended under a key."""
        return [
            KeyOutcome(k, o.first_seq, o.last_seq) for k, (o, _) in self._outcomes.items() if o.session_id == session_id
        ]


class TellsFirstPlaces(MemoryStore):
    """Takes every batch for one event."""

    async def outcomes(self, session_id: str) -> list[KeyOutcome]:
        """Return the first event of each batch."""
        return [outcome._replace(last_seq=outcome.first_seq) for outcome in await super().outcomes(session_id)]


class TellsMovedKeys(MemoryStore):
    """Keeps the keys that a session has lost to another."""

    async def keys(self, session_id: str) -> list[str]:
        """Return keys that ever led here."""
        mine = self.__dict__.setdefault("ever", {}).setdefault(session_id, set())
        mine.update(await super().keys(session_id))
        return sorted(mine)

    async def bind(self, key: str, session_id: str, *, expected: str | None = None) -> None:
        """Bind, and look."""
        await super().bind(key, session_id, expected=expected)
        await self.keys(session_id)


BROKEN: dict[type[MemoryStore], int] = {
    NoFencing: 33,
    NoExpectedSeq: 7,
    NoIdempotency: 20,
    KeyPerSession: 21,
    Deduplicates: 11,
    HalfBatches: 170,
    TellsTooLate: 171,
    SwallowsCancellation: 173,
    NoLeaseNeeded: 34,
    EmptyForUnknown: 63,
    ForwardsOnly: 60,
    LooseBodies: 9,
    NoPatch: 75,
    BindsLate: 53,
    BindsAnyway: 51,
    FoldsKeys: 54,
    StealsLeases: 30,
    ForgetsTokens: 31,
    ReleasesAnyway: 40,
    OffsetPages: 89,
    FirstPageForAnyCursor: 90,
    RunsHeldSessions: 101,
    WordsInAnyOrder: 110,
    SearchesOldestFirst: 113,
    SkippingFollow: 131,
    ErasesTheHeadOnly: 155,
    ReusesIds: 156,
    SharesBlobs: 148,
    TellsFirstPlaces: 220,
    TellsEveryOutcome: 222,
    TellsMovedKeys: 223,
}

# What the state machine can see too (it does not cancel, follow, or look at bodies and orders of pages).
SEEN_BY_THE_MACHINE = [
    NoFencing, NoExpectedSeq, NoIdempotency, NoLeaseNeeded, EmptyForUnknown, ForwardsOnly, NoPatch, BindsLate, BindsAnyway,
    StealsLeases, ForgetsTokens, ReleasesAnyway, RunsHeldSessions, ErasesTheHeadOnly, ReusesIds,
    TellsFirstPlaces, TellsMovedKeys,
]  # fmt: skip


def maker_of(kind: type[MemoryStore]) -> Callable[[Path], Place]:
    """Return a maker of places that hold such a store."""
    return lambda _: FunctionPlace(kind.open, IN_MEMORY)


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
async def test_suite_catches_a_store_that_breaks_one_thing(
    kind: type[MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that breaks one sentence of the contract fails the requirement that says it (C25, A70)."""
    monkeypatch.setattr(following, "WAIT_S", 1.0)
    wanted = [each for each in all_requirements() if each.number == BROKEN[kind]]
    report = await run(maker_of(kind), requirements=wanted)
    assert [finding.outcome for finding in report.findings] == [Outcome.FAILED], report.to_text()
    assert report.findings[0].detail


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.long] if at % 5 else []) for at, kind in enumerate(SEEN_BY_THE_MACHINE)],
    ids=lambda kind: kind.__name__,
)
def test_machine_catches_a_store_that_breaks_one_thing(kind: type[MemoryStore]) -> None:
    """The state machine finds the same defects without being told where to look (C25)."""
    calm = settings(
        max_examples=500, stateful_step_count=30, database=None, deadline=None, derandomize=True, report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck), phases=[phase for phase in settings().phases if phase.name != "shrink"],
    )  # fmt: skip
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - hypothesis wraps what it finds in many ways
        run_state_machine_as_test(machine_for(maker_of(kind)), settings=calm)
    assert not isinstance(caught.value, KeyboardInterrupt | SystemExit)


async def test_suite_runs_without_pytest_and_reports_a_matrix() -> None:
    """`run` gives one finding per requirement, with reasons where one does not apply, as text and as plain data (C25)."""
    seen: list[Finding] = []
    report = await run("memory://", each=seen.append)
    assert report.conforms, report.to_text()
    assert list(report.findings) == seen
    assert [finding.requirement for finding in seen] == list(all_requirements())
    assert report.counts()["not supported"] > 0
    assert all(finding.detail for finding in seen if finding.outcome is Outcome.NOT_SUPPORTED)
    rows = report.to_json()["findings"]
    assert isinstance(rows, list)
    assert rows[0]["id"] == "ST-1"
    assert "ST-1 " in report.to_text()


def test_suite_needs_no_pytest_to_run() -> None:
    """Importing the suite loads neither pytest nor hypothesis (C25)."""
    program = "import sys, kipu.testing.conformance; print({'pytest', 'hypothesis', '_pytest'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_requirements_have_numbers_sentences_and_promises() -> None:
    """Every requirement has a number of its own, a sentence, and the promises it stands for (C25)."""
    requirements = all_requirements()
    assert len({each.number for each in requirements}) == len(requirements)
    assert all(each.sentence.endswith(".") and each.promises for each in requirements)
    assert markdown_table().count("\n") == len(requirements) + 1


def test_store_classes_meet_the_protocol() -> None:
    """A store is an `EventStore` to the type checker (C25, B54)."""

    def takes(kind: type[EventStore]) -> type[EventStore]:
        return kind

    assert takes(MemoryStore) is MemoryStore
