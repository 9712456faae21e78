"""Copy sessions from one store to another, verified event by event; killed and started again, it goes on (C22)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace

from kipu.errors import (
    ConcurrencyError,
    CopyMismatchError,
    DataKeyMissingError,
    KipuError,
    SessionBusyError,
    SessionErasedError,
    SessionExistsError,
    SessionNotFoundError,
    StoreCorruptError,
    StoreUnavailableError,
)
from kipu.manager.begun import begun, has_begun
from kipu.manager.session_copy import SessionCopy
from kipu.ports.head import Head
from kipu.ports.store import EventStore, SessionQuery, Tombstone

# What stops one session and not the others. A store that cannot be reached or is full stops them all.
ABOUT_ONE = (
    CopyMismatchError,
    SessionErasedError,
    SessionExistsError,
    SessionBusyError,
    ConcurrencyError,
    DataKeyMissingError,
    StoreCorruptError,
)


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """How far a copy has come. Events that the target has already count as done."""

    sessions_done: int
    sessions_total: int
    events_done: int
    events_total: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """A session that was not copied, or not wholly, and why. What the target had of it stands as it was."""

    session_id: str
    code: str  # of the error, such as "copy_mismatch", "session_erased", "store_corrupt"
    reason: str


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What a copy did."""

    sessions: int = 0  # sessions that are the same in both stores now
    unchanged: int = 0  # of these: sessions where nothing had to be added
    events: int = 0  # events added
    blobs: int = 0  # blobs added
    bindings: int = 0  # keys that lead to copied sessions now and did not before
    erased: int = 0  # ids that were erased in the source and are taken in the target now
    lost: int = 0  # records that the source has lost, for which the target has `damaged` events
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()  # missing blobs, keys left where the target had them, parents that are gone


async def copy_store(
    source: EventStore,
    target: EventStore,
    *,
    owner: str,
    progress: Callable[[CopyProgress], None] | None = None,
    sessions: Sequence[str] | None = None,
    verify: bool = True,
) -> CopyReport:
    """Make the target's sessions the same as the source's: events, heads, keys and blobs. The source is only read.

    Run again, it goes on where it was stopped and adds what is new. `sessions` limits it to these and the ones they were
    forked from. A session that the target has with other events is left alone: the others are copied, then it raises.
    With `verify`, what was written is read back and compared, and so is what the target had before.

    Raises:
        CopyMismatchError: a session differs; `report` among its data says what was done.
        SessionNotFoundError: one of `sessions` is not in the source.
    """
    copier = _Copier(source, target, owner=owner, progress=progress, verify=verify)
    if progress is not None:
        await copier.count(sessions)
    async for head in heads_of(source, sessions):
        await copier.copy_with_parents(head)
    if sessions is None:
        await copier.bury()
    if copier.mismatch is not None:
        data = {name: value for name, value in copier.mismatch.data.items() if name != "report"}
        raise CopyMismatchError(**data, report=copier.report)
    return copier.report


async def heads_of(store: EventStore, sessions: Sequence[str] | None = None) -> AsyncIterator[Head]:
    """Yield the heads to copy, those created first first: most parents before their forks, and none of what never began."""
    if sessions is not None:
        for session_id in sessions:
            head = await begun(store, session_id)
            if head is None:
                raise SessionNotFoundError(session_id=session_id)
            yield head
        return
    query = SessionQuery(order="created_at", descending=False, limit=500)
    while True:
        page = await store.list(query)
        for head in page.items:
            if await has_begun(store, head):
                yield head
        if page.cursor is None:
            return
        query = replace(query, cursor=page.cursor)


async def tombstones_of(store: EventStore) -> AsyncIterator[list[Tombstone]]:
    """Yield every id that was erased, page by page."""
    after = ""
    while page := await store.tombstones(after=after):
        yield page
        after = page[-1].session_id


class _Copier:
    def __init__(
        self,
        source: EventStore,
        target: EventStore,
        *,
        owner: str,
        progress: Callable[[CopyProgress], None] | None,
        verify: bool,
    ) -> None:
        self._source = source
        self._target = target
        self._owner = owner
        self._tell = progress
        self._verify = verify
        self._done: set[str] = set()
        self._progress = CopyProgress(0, 0, 0, 0)
        self.report = CopyReport()
        self.mismatch: CopyMismatchError | None = None

    async def count(self, sessions: Sequence[str] | None) -> None:
        """Find out how much there is to do."""
        number = events = 0
        async for head in heads_of(self._source, sessions):
            number += 1
            events += head.last_seq - head.base_seq
        self._progress = CopyProgress(0, number, 0, events)

    async def copy_with_parents(self, head: Head) -> None:
        """Copy a session after the ones it was forked from: without them it cannot be read."""
        line = [head]
        while (parent_id := line[-1].forked_from) is not None and parent_id not in self._done:
            parent = await self._source.head(parent_id)
            if parent is None:
                self._note(f"session {line[-1].session_id}: its parent {parent_id} is gone from the source")
                break
            line.append(parent)
        for session in reversed(line):
            if session.session_id not in self._done:
                self._done.add(session.session_id)
                await self._copy(session)

    async def bury(self) -> None:
        """Let the ids that were erased in the source be taken in the target; sessions of its own there stay."""
        known = {each.session_id async for page in tombstones_of(self._target) for each in page}
        async for page in tombstones_of(self._source):
            new = [each for each in page if each.session_id not in known]
            for each in list(new):
                if await self._target.head(each.session_id) is not None:
                    new.remove(each)
                    self._note(
                        f"session {each.session_id} was erased in the source and is in the target; erase it there"
                    )
            if new:
                await self._target.bury(new)
                self.report = replace(self.report, erased=self.report.erased + len(new))

    async def _copy(self, head: Head) -> None:
        work = SessionCopy(
            self._source, self._target, head=head, owner=self._owner, verify=self._verify, moved=self._moved
        )
        try:
            await work.run()
        except ABOUT_ONE as error:
            self._skip(head.session_id, error)
        except StoreUnavailableError as error:
            if head.status != "unreadable":
                raise
            self._skip(head.session_id, error)
        else:
            report = self.report
            self.report = replace(report, sessions=report.sessions + 1, unchanged=report.unchanged + (not work.changed))
        report = self.report
        self.report = replace(
            report,
            events=report.events + work.events,
            blobs=report.blobs + work.blobs,
            bindings=report.bindings + work.bindings,
            lost=report.lost + work.lost,
            notes=(*report.notes, *work.notes),
        )
        self._progress = replace(self._progress, sessions_done=self._progress.sessions_done + 1)
        self._moved(0)

    def _skip(self, session_id: str, error: KipuError) -> None:
        if isinstance(error, CopyMismatchError) and self.mismatch is None:
            self.mismatch = error
        skipped = Skipped(session_id, error.code, str(error))
        self.report = replace(self.report, skipped=(*self.report.skipped, skipped))

    def _note(self, text: str) -> None:
        self.report = replace(self.report, notes=(*self.report.notes, text))

    def _moved(self, events: int) -> None:
        done = self._progress
        done = replace(done, events_done=done.events_done + events)
        # What was forked or written since the counting makes the whole bigger, not the share more than all.
        self._progress = replace(
            done,
            sessions_total=max(done.sessions_total, done.sessions_done),
            events_total=max(done.events_total, done.events_done),
        )
        if self._tell is not None:
            self._tell(self._progress)
