"""`Session`: one history, as a program works with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kipu.context.history import doc_messages, get_history
from kipu.context.item import Item
from kipu.context.policy import WindowPolicy
from kipu.context.rendering import Rendering
from kipu.errors import BlobNotFoundError, ConflictError, InputError
from kipu.events.boundary import (
    EventPinnedEvent,
    MetadataChangedEvent,
    StatusChangedEvent,
)
from kipu.events.event import SessionEvent
from kipu.manager.access import Verb
from kipu.manager.head_limits import check_settings
from kipu.manager.history import LiveHistory
from kipu.manager.holding import require_not_held
from kipu.manager.journal import Journal
from kipu.manager.loader import PAGE, item_of
from kipu.manager.lock import SessionLock
from kipu.manager.redacting import redact_blob
from kipu.manager.rewinding import rewind_session
from kipu.manager.session_access import SessionAccess
from kipu.manager.turn import Turn
from kipu.ports.head import Head
from kipu.ports.principal import Principal
from kipu.ports.store import Appended, StoredEvent
from kipu.session.branch import visible
from kipu.session.lifecycle import ACTIVE, TRASHED, check_transition

if TYPE_CHECKING:
    from kipu.manager.manager import SessionManager


class Session(SessionAccess):
    """One session: its log, its window and its settings. Get it from a `SessionManager`; there is one object per id (A45).

    Every method that reads or writes takes the `principal` who asks; without one it is the manager's own (C19).
    """

    def __init__(self, manager: SessionManager, history: LiveHistory) -> None:
        self._manager = manager
        self._store = manager.store
        self._history = history
        self._followers = 0
        self.session_id: str = history.row["session_id"]
        self.lock = SessionLock(self._store, self.session_id, owner=manager.owner, ttl_s=manager.lease_ttl_s)
        self._journal = Journal(self._store, history, writer=manager.writer, lock=self.lock)

    # ---- what it is ------------------------------------------------------------------------------------------------

    @property
    def head(self) -> Head:
        """Return the session's row as far as this process knows it."""
        return self._history.head

    @property
    def key(self) -> str | None:
        """Return the session key that led here first (A22)."""
        return self._history.row.get("key")

    @property
    def created_at(self) -> datetime:
        """Return when it was created, in UTC (A22)."""
        row = self._history.row
        # Where the record that said it is damaged, the oldest time that is known.
        return datetime.fromisoformat(row.get("created_at") or row["last_event_at"])

    @property
    def updated_at(self) -> datetime:
        """Return when its newest event happened, in UTC (A22)."""
        return datetime.fromisoformat(self._history.row["last_event_at"])

    @property
    def status(self) -> str:
        """Return active, expired, archived or trashed (A54)."""
        return str(self._history.row.get("status", ACTIVE))

    @property
    def title(self) -> str:
        """Return its title, or the start of its first message."""
        return self.head.display_title

    @property
    def last_consolidated(self) -> int:
        """Return the seq up to which memory has taken the history in: a structural boundary, not a time (A34)."""
        return int(self._history.row.get("consolidated_seq", 0))

    @property
    def metadata(self) -> dict[str, Any]:
        """Return a copy of the settings, with created_at, last_event_at and total_events (B30). Change them by `set_metadata`."""
        row = self._history.row
        facts = {
            "created_at": row.get("created_at"),
            "last_event_at": row.get("last_event_at"),
            "total_events": row.get("event_count", 0),
        }
        return {**facts, **row.get("metadata", {})}

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Return the messages of the events in memory (at least the window's), as role/content objects (A22, A23)."""
        return doc_messages(visible([item.event for item in self._history.items]))

    @property
    def in_use(self) -> bool:
        """Return True while somebody holds its lock, waits for it, appends, or follows it."""
        return self.lock.in_use or self._followers > 0 or self._journal.in_use

    # ---- writing ---------------------------------------------------------------------------------------------------

    async def add_event(
        self,
        event: SessionEvent,
        *,
        principal: Principal | None = None,
        expected_seq: int | None = None,
        idempotency_key: str | None = None,
    ) -> SessionEvent:
        """Store one event durably, then let memory and window see it (B31); return it as stored.

        When storing fails, memory is as it was. A repeated `idempotency_key` returns the event that was stored first.
        Raises: InvalidEventError, SessionNotFoundError, LeaseRequiredError, LeaseLostError, ConflictError, StoreError.
        """
        caller = await self._permit_events([event], principal)
        _, stored = await self._journal.append(
            [event], principal=caller.id, expected_seq=expected_seq, idempotency_key=idempotency_key
        )
        return stored[0]

    async def add_events(
        self,
        events: Sequence[SessionEvent],
        *,
        principal: Principal | None = None,
        expected_seq: int | None = None,
        idempotency_key: str | None = None,
        token: int | None = None,
    ) -> list[SessionEvent]:
        """Store a batch, all or nothing (C2), and return it as stored.

        Without a `token`, and without holding the lock, what needs a lease is stored only while nobody has it.
        """
        if not events:
            return []
        _, stored = await self.append(
            events, principal=principal, expected_seq=expected_seq, idempotency_key=idempotency_key, token=token
        )
        return stored

    async def append(
        self,
        events: Sequence[SessionEvent],
        *,
        principal: Principal | None = None,
        expected_seq: int | None = None,
        idempotency_key: str | None = None,
        token: int | None = None,
        verb: Verb | None = None,
    ) -> tuple[Appended, list[SessionEvent]]:
        """Store a batch as `add_events` does, and return where it stands too, and whether it stood there before (C4).

        With a `verb` the batch is taken for that: for a program that made it itself, such as a message and what its policy
        puts beside it. Without one, each event says by its type what is asked.
        """
        if verb is None:
            caller = await self._permit_events(events, principal)
        else:
            caller = await self.permit(verb, principal)
        return await self._journal.append(
            events,
            principal=caller.id,
            expected_seq=expected_seq,
            idempotency_key=idempotency_key,
            token=token,
        )

    @property
    def redacts(self) -> bool:
        """Return True where secrets are taken out of what is written here."""
        return self._manager.writer.redactor is not None

    def redacted(self, value: Any, *, path: str) -> tuple[Any, list[dict[str, Any]]]:
        """Return a tool's value without secrets, and the notes on it; for what goes into a blob before its event (C21)."""
        return self._manager.writer.redacted(value, path=path)

    def redacted_blob(self, data: bytes) -> bytes:
        """Return what is to be put into a blob without secrets, where it is text (C21)."""
        redactor = self._manager.writer.redactor
        return data if redactor is None else redact_blob(redactor, data)

    async def set_metadata(
        self, *, unset: Sequence[str] = (), principal: Principal | None = None, **values: Any
    ) -> None:
        """Change settings durably: `title`, `tags`, `pinned`, and any name of your own (B1, B37).

        Raises: InputError (a title or tag of more than 200 characters, or settings of more than 64 kB together).
        """
        caller = await self.permit(Verb.CONFIGURE, principal)
        check_settings(values, caller=caller, before=self.head.metadata, unset=unset)
        await self.add_event(MetadataChangedEvent(set=values, unset=list(unset)), principal=principal)

    async def set_status(self, status: str, *, reason: str | None = None, principal: Principal | None = None) -> bool:
        """Move along the lifecycle; return False when it stands there already. Raises: TransitionError, SessionHeldError."""
        await self.permit(Verb.CONFIGURE, principal)
        if not await self._may_become(status):
            return False
        event = StatusChangedEvent.model_validate({"status": status, "reason": reason})
        async with self.holding():
            # Asked again: it was moved or held, maybe, while the lock was waited for.
            while await self._may_become(status):
                with suppress(ConflictError):
                    await self.add_event(event, principal=principal, expected_seq=self._history.last_seq)
                    return True
        return False

    async def _may_become(self, status: str) -> bool:
        await self.refresh()
        if status == TRASHED:
            require_not_held(self.head)
        return check_transition(self.session_id, self.status, after=status)

    async def pin(self, *seqs: int, on: bool = True, principal: Principal | None = None) -> None:
        """Keep these events' exchanges in the window, or no longer (B36)."""
        caller = await self.permit(Verb.CONFIGURE, principal)
        last = self._history.last_seq
        known = await self._history.reader.at([seq for seq in seqs if type(seq) is int and seq <= last])
        missing = [seq for seq in seqs if type(seq) is not int or seq not in known]
        if missing:
            raise InputError(reason=f"session {self.session_id} has no event {missing[0]!r}")
        await self.add_event(EventPinnedEvent(seqs=list(seqs), on=on, by=caller.id), principal=principal)

    # ---- turns -----------------------------------------------------------------------------------------------------

    def turn(
        self,
        *,
        consumes: Sequence[int] | None = None,
        take: int | None = None,
        policy: str = "followup",
        wait_s: float | None = None,
        principal: Principal | None = None,
    ) -> Turn:
        """Return a turn to be entered with `async with` (A39, C3).

        It consumes the messages that wait: all, the oldest `take`, or those that `consumes` names. Entering waits for the
        session at most `wait_s`. Entering raises: SessionBusyError, ConflictError (a named message is not waiting any more).
        """
        self._allow(Verb.APPEND, principal)
        return Turn(
            self,
            turn_id=self._manager.mint("turn"),
            consumes=None if consumes is None else list(consumes),
            take=take,
            policy=policy,
            wait_s=wait_s,
            principal=principal,
        )

    def resumed_turn(self, *, wait_s: float | None = None, principal: Principal | None = None) -> Turn:
        """Return the open turn to be entered with `async with`: one that was parked, or whose process died (C14).

        Entering raises: SessionBusyError, ConflictError (no turn is open).
        """
        self._allow(Verb.APPEND, principal)
        return Turn(
            self, turn_id="", consumes=None, take=None, policy="", wait_s=wait_s, principal=principal, resumes=True
        )

    def holding(self, *, wait_s: float | None = None) -> _Holding:
        """Return a block that holds the session's lock, entered again by its own holder.

        Entering waits for whoever has it, at most `wait_s`. Raises: SessionBusyError.
        """
        return _Holding(self.lock, wait_s)

    # ---- reading ---------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Take in what other processes have appended."""
        await self._journal.refresh()

    async def get_context_for_llm(
        self,
        target: str = "openai_chat",
        *,
        provider: str | None = None,
        model: str | None = None,
        principal: Principal | None = None,
    ) -> list[dict[str, Any]]:
        """Return a copy of the messages that the model may see, for `target` (B34, A29-A33).

        Targets: openai_chat, openai_responses, anthropic, gemini, neutral. Where the system prompt is not a message
        (all but openai_chat and neutral), see `render`.
        """
        rendering = await self.render(target, provider=provider, model=model, principal=principal)
        return rendering.messages

    async def render(
        self,
        target: str = "openai_chat",
        *,
        provider: str | None = None,
        model: str | None = None,
        shared: bool = False,
        principal: Principal | None = None,
    ) -> Rendering:
        """Return the window with the adjustments it took (C8); `shared` messages are not copied, and only to be read."""
        await self.permit(Verb.READ, principal)
        if not (self.lock.mine and self._history.settled):
            await self.refresh()
        window = self._history.window
        # The neutral form names blobs and shows none of their bytes.
        media = {} if target == "neutral" else await self._readable(window.media(), principal)
        return window.messages(target, provider=provider, model=model, media=media, shared=shared)

    async def _readable(self, digests: Sequence[str], principal: Principal | None) -> dict[str, bytes]:
        """Return the blobs that are there: one that is lost is shown as text, and bricks no session (C16)."""
        found: dict[str, bytes] = {}
        for digest in digests:
            with suppress(BlobNotFoundError):
                found[digest] = await self.blob(digest, principal=principal)
        return found

    async def get_history(self, max_messages: int = 500, *, principal: Principal | None = None) -> list[dict[str, Any]]:
        """Return the newest messages after `last_consolidated` by the plain algorithm (A29-A33)."""
        await self.permit(Verb.READ, principal)
        await self.refresh()
        if max_messages <= 0:
            return []
        newest: list[SessionEvent] = []
        until, counted = self._history.last_seq, 0
        while until > self.last_consolidated:
            page = await self._history.reader.backwards(until=until, after=self.last_consolidated)
            if not page:
                break
            newest.extend(item.event for item in page)
            until = page[-1].seq - 1
            if len(newest) >= 2 * counted:  # counted at each doubling only, so that the whole stays linear
                counted = len(newest)
                if len(doc_messages(visible(newest[::-1]))) > max_messages:
                    break
        return get_history(doc_messages(visible(newest[::-1])), 0, max_messages=max_messages)

    async def get_full_history(self, *, principal: Principal | None = None) -> list[SessionEvent]:
        """Return every event, undone ones included, oldest first (B35). For long sessions use `events`."""
        return [event async for event in self.events(principal=principal)]

    async def events(
        self, *, after: int = 0, until: int | None = None, principal: Principal | None = None
    ) -> AsyncIterator[SessionEvent]:
        """Yield events with after < seq <= until, page by page."""
        await self.refresh()
        while True:
            await self.permit(Verb.READ, principal)  # page by page: it may be taken back meanwhile
            page = await self._history.reader.forwards(after=after, until=until)
            for item in page:
                yield item.event
            if len(page) < PAGE:
                return
            after = page[-1].seq

    async def records(self, *, principal: Principal | None = None) -> AsyncIterator[StoredEvent]:
        """Yield every event as the store has it, its body unread, the shared events of a fork first (C11)."""
        await self.refresh()
        after = 0
        while True:
            await self.permit(Verb.READ, principal)
            page = await self._history.reader.stored(after=after)
            if not page:
                return
            for stored in page:
                yield stored
            after = page[-1].seq

    async def get_recent_events(self, n: int = 10, *, principal: Principal | None = None) -> list[SessionEvent]:
        """Return the last `n` events, oldest first, without reading the others (B6, B35)."""
        await self.permit(Verb.READ, principal)
        await self.refresh()
        if n <= 0:
            return []
        newest: list[Item] = []
        until = self._history.last_seq
        while len(newest) < n and until > 0:
            page = await self._history.reader.backwards(until=until, limit=min(PAGE, n - len(newest)))
            if not page:
                break
            newest.extend(page)
            until = page[-1].seq - 1
        return [item.event for item in reversed(newest)]

    async def follow(self, *, after: int = 0, principal: Principal | None = None) -> AsyncIterator[SessionEvent]:
        """Yield events with seq > `after` and then every new one, from any process; skip none."""
        await self.permit(Verb.READ, principal)
        self._followers += 1
        try:
            base_seq = self.head.base_seq
            if after < base_seq:
                async for event in self.events(after=after, until=base_seq, principal=principal):
                    yield event
            async for stored in self._store.follow(self.session_id, after=max(after, base_seq)):
                # What takes the right back is an event too: whoever had it ends here at once.
                await self.permit(Verb.READ, principal)
                yield item_of(stored).event
        finally:
            self._followers -= 1

    async def blob(self, digest: str, *, principal: Principal | None = None) -> bytes:
        """Return the whole of a big value, here or in the session this one was forked from. Raises: BlobNotFoundError."""
        await self.permit(Verb.READ, principal)
        # Half a character stands in no digest, and no database takes it as text.
        for span in reversed(self._history.reader.spans if digest.isascii() else ()):
            try:
                return await self._store.get_blob(span.session_id, digest)
            except BlobNotFoundError:
                continue
        raise BlobNotFoundError(store=self._store.describe().url, session_id=self.session_id, digest=digest)

    @property
    def policy(self) -> WindowPolicy:
        """Return how its window is cut."""
        return self._history.policy

    async def set_policy(self, policy: WindowPolicy) -> None:
        """Cut the window otherwise from now on, as for another model (C28)."""
        await self._journal.set_policy(policy)

    # ---- branches --------------------------------------------------------------------------------------------------

    async def fork(
        self, seq: int | None = None, *, title: str | None = None, principal: Principal | None = None
    ) -> Session:
        """Return a new session that shares this one's events up to `seq` (default: all) without copying them (C11)."""
        caller = principal or self._manager.principal
        return await self._manager.fork_session(self, seq=seq, title=title, principal=caller)

    async def rewind(
        self, to_seq: int | None = None, *, turns: int = 1, principal: Principal | None = None
    ) -> SessionEvent:
        """Move the tip back to a turn boundary: to `to_seq`, or before the last `turns` user messages. The log keeps all."""
        await self.permit(Verb.REWIND, principal)
        return await rewind_session(self, to_seq=to_seq, turns=turns, principal=principal)

    # ---- the manager's side ----------------------------------------------------------------------------------------

    @property
    def history(self) -> LiveHistory:
        """Return the projections held in memory."""
        return self._history

    async def save(self) -> None:
        """Store what only memory holds: a window jump that no append has recorded yet (A47)."""
        if self._history.unrecorded_jump is not None:
            await self._journal.save()


class _Holding:
    def __init__(self, lock: SessionLock, wait_s: float | None) -> None:
        self._lock = lock
        self._wait_s = wait_s
        self._entered = False

    async def __aenter__(self) -> SessionLock:
        if not self._lock.mine:
            await self._lock.acquire(wait_s=self._wait_s)
            self._entered = True
        return self._lock

    async def __aexit__(self, *_error: object) -> None:
        if self._entered:
            await self._lock.release()
