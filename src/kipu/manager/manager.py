"""`SessionManager`: create, find, open and end sessions of one store, for principals."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from kipu.context.policy import WindowPolicy
from kipu.context.tokens import EstimateCounter
from kipu.errors import (
    ConflictError,
    InvalidEventError,
    KipuError,
    SessionErasedError,
    SessionExistsError,
    SessionNotFoundError,
)
from kipu.events import ids
from kipu.events.boundary import KeyBoundEvent, SessionInitEvent
from kipu.events.conversation import UserMessageEvent
from kipu.events.event import SessionEvent
from kipu.manager.access import Verb, is_member_at_most, may, verb_of
from kipu.manager.cache import SessionCache
from kipu.manager.criteria import query_of
from kipu.manager.denials import Denials
from kipu.manager.erasing.ending import Ending
from kipu.manager.erasing.eraser import Eraser, Progress, Surroundings
from kipu.manager.erasing.receipt import Receipt
from kipu.manager.forking import beginning_of_fork
from kipu.manager.head_limits import check_settings, check_title
from kipu.manager.history import LiveHistory
from kipu.manager.holding import Hold, hold_session, release_session
from kipu.manager.key_text import free_key, key_text
from kipu.manager.leaving import expire, session_to_leave
from kipu.manager.listing import all_heads, list_heads
from kipu.manager.lock import DEFAULT_TTL_S, SessionLock
from kipu.manager.protocol import BaseSessionManager
from kipu.manager.searching import Searcher, SearchHit
from kipu.manager.session import Session
from kipu.manager.writer import EventWriter
from kipu.ports.clock import Clock, Entropy
from kipu.ports.head import Head
from kipu.ports.principal import Principal
from kipu.ports.store import Appended, Binding, EventStore, Page, SessionQuery
from kipu.ports.tokens import TokenCounter
from kipu.session.key import SessionKey, arrival_key
from kipu.session.patch import patch_for
from kipu.stores.times import iso_from_us

if TYPE_CHECKING:
    from kipu.manager.redacting import RedactorSource
    from kipu.security.redaction.redactor import Redactor

logger = logging.getLogger(__name__)

# The class below has a method `list`; within it the built-in one is named by these.
Ids: TypeAlias = list[str]
Receipts: TypeAlias = list[Receipt]


class SessionManager(BaseSessionManager):
    """Work with the sessions of one store.

    `principal` is who asks where a call names nobody. `max_sessions` bounds how many live objects are kept; those in use stay
    beyond it. A `redactor`, or what makes one when it is first needed, takes secrets out of all that is written. Use it as
    `async with`, or call `close`.
    """

    def __init__(
        self,
        store: EventStore,
        *,
        clock: Clock,
        entropy: Entropy,
        owner: str,
        principal: Principal | None = None,
        policy: WindowPolicy | None = None,
        counter: TokenCounter | None = None,
        max_sessions: int = 256,
        lease_ttl_s: float = DEFAULT_TTL_S,
        redactor: RedactorSource = None,
        surroundings: Surroundings | None = None,
    ) -> None:
        self.store = store
        self.principal = principal or Principal.local()
        self.owner = owner
        self.policy = policy or WindowPolicy()
        self.lease_ttl_s = lease_ttl_s
        self._clock = clock
        self._entropy = entropy
        counter = counter or EstimateCounter()
        self.writer = EventWriter(store, clock=clock, entropy=entropy, counter=counter, redactor=redactor)
        self._cache: SessionCache[Session] = SessionCache(max_sessions)
        self._searcher = Searcher(store)
        self.denials = Denials(store, self.writer, now_us=clock.now_us)
        eraser = Eraser(
            store,
            writer=self.writer,
            clock=clock,
            entropy=entropy,
            owner=owner,
            forget=self._cache.drop,
            surroundings=surroundings or Surroundings(),
        )
        self.finished: Receipts = []
        self._ending = Ending(store, eraser, denials=self.denials)

    @property
    def redactor(self) -> Redactor | None:
        """Return what takes secrets out of all that is written, None where nothing does."""
        return self.writer.redactor

    # ---- creating --------------------------------------------------------------------------------------------------

    async def create_session(
        self,
        session_id: str | None = None,
        initial_context: Mapping[str, Any] | None = None,
        *,
        key: str | SessionKey | None = None,
        title: str | None = None,
        principal: Principal | None = None,
    ) -> str:
        """Create a session and return its id, a fresh one if none is given (B20); `initial_context` becomes metadata (B22).

        If the id exists, the existing session is loaded, with a warning, and nothing is overwritten (B21).
        Raises: InvalidSessionIdError, SessionErasedError, SessionNotFoundError (it exists, and is somebody else's),
        InputError (a title of more than 200 characters, or settings of more than 64 kB).
        """
        caller = principal or self.principal
        session_id = ids.check_session_id(session_id) if session_id is not None else self.mint("sess")
        check_title(title)
        check_settings(initial_context or {}, caller=caller, before={})
        text = None if key is None else free_key(key, caller)
        init = SessionInitEvent(
            key=text, owner=caller.id, tenant=caller.tenant, title=title, metadata=dict(initial_context or {})
        )
        try:
            await self._begin(session_id, init, bind=None if text is None else Binding(text))
        except SessionExistsError:
            await self.open(session_id, principal=caller)
            logger.warning("session %s exists already; it was loaded, and nothing was overwritten", session_id)
        return session_id

    async def _begin(self, session_id: str, init: SessionInitEvent, *, bind: Binding | None = None) -> None:
        prepared = await self.writer.prepare(session_id, init, principal=init.owner)
        await self.store.append(session_id, [prepared.record], head=patch_for([prepared.event]), bind=bind)

    async def get_or_create(
        self,
        key: str | SessionKey,
        *,
        initial_context: Mapping[str, Any] | None = None,
        principal: Principal | None = None,
        verb: Verb = Verb.READ,
    ) -> Session:
        """Return the session that `key` leads to, created and bound in one transaction if there is none (A6, A13, A46).

        Raises: SessionNotFoundError, AccessDeniedError: it is somebody else's, and not for `verb`.
        """
        caller = principal or self.principal
        text = key_text(key, caller)
        while True:
            bound = await self.store.resolve(text)
            if bound is not None:
                return await self.open(bound, principal=caller, verb=verb)
            try:
                created = await self.create_session(None, initial_context, key=key, principal=caller)
                return await self.open(created, principal=caller)
            except ConflictError:  # another process bound the key meanwhile: its session is the one
                continue

    async def new_session(self, key: str | SessionKey, *, principal: Principal | None = None) -> Session:
        """Give `key` a fresh session; the one before stays listable and resumable, as expired (`/new`).

        One that cannot be read is left untouched, with a warning. Raises: StoreError, to whoever is not this machine's one user.
        """
        caller = principal or self.principal
        text = free_key(key, caller)
        before = await self.store.resolve(text)
        old = None if before is None else await session_to_leave(self, before, key=text, principal=caller)
        session_id = self.mint("sess")
        init = SessionInitEvent(key=text, owner=caller.id, tenant=caller.tenant)
        await self._begin(session_id, init, bind=Binding(text, before))
        if old is not None:
            await expire(old, principal=caller)
        return await self.open(session_id, principal=caller)

    async def bind_key(self, key: str | SessionKey, session_id: str, *, principal: Principal | None = None) -> None:
        """Let `key` lead to this session from now on; the binding and its record in the log are one transaction.

        Raises: SessionNotFoundError, ConflictError (somebody bound the key meanwhile).
        """
        caller = principal or self.principal
        text = free_key(key, caller)
        session = await self.open(session_id, principal=caller, verb=Verb.CONFIGURE)
        before = await self.store.resolve(text)
        if before is not None and before != session_id:
            await session_to_leave(self, before, key=text, principal=caller)
        if before == session_id and session.key == text:
            return
        bound = KeyBoundEvent(key=text, previous_session_id=before)
        prepared = await self.writer.prepare(session_id, bound, principal=caller.id)
        await self.store.append(
            session_id, [prepared.record], head=patch_for([prepared.event]), bind=Binding(text, before)
        )
        await session.refresh()

    async def add_alias(
        self, alias: str | SessionKey, key: str | SessionKey, *, principal: Principal | None = None
    ) -> None:
        """Let `alias` lead where `key` leads, so that no history is orphaned when keys are made otherwise (A21)."""
        caller = principal or self.principal
        session_id = await self.store.resolve(key_text(key, caller))
        if session_id is None:
            raise SessionNotFoundError(session_id=str(key))
        await self.open(session_id, principal=caller, verb=Verb.CONFIGURE)
        text = free_key(alias, caller)
        await self.store.bind(text, session_id)

    async def fork_session(
        self, parent: Session, *, seq: int | None, title: str | None, principal: Principal
    ) -> Session:
        """Return a new session that shares `parent`'s events up to `seq`. Use `Session.fork`."""
        await parent.permit(Verb.FORK, principal)
        init = await beginning_of_fork(parent, seq=seq, title=title, principal=principal)
        session_id = self.mint("sess")
        await self._begin(session_id, init)
        if await self._ending.is_going(parent.session_id):  # it was not seen by who looked for forks
            await self._ending.take_back(session_id)
            raise SessionErasedError(session_id=parent.session_id)
        return await self.open(session_id, principal=principal)

    # ---- finding ---------------------------------------------------------------------------------------------------

    async def get_session(self, session_id: str, *, principal: Principal | None = None) -> Session | None:
        """Return the session: from memory, else from the store; None, logged, if there is none for this principal (B23, B56)."""
        try:
            return await self.open(session_id, principal=principal)
        except SessionNotFoundError:
            logger.warning("there is no session %s for this principal", session_id)
            return None

    async def open(self, session_id: str, *, principal: Principal | None = None, verb: Verb = Verb.READ) -> Session:
        """Return the session, where the principal may do `verb` with it; whatever they do with it asks again.

        Raises: SessionNotFoundError (also for somebody else's), AccessDeniedError, StoreError when it cannot be read.
        """
        caller = principal or self.principal
        ids.check_session_id(session_id)
        session = self._cache.get(session_id)
        if session is None:
            found = await self.store.head(session_id)
            head = await self.denials.require(caller, verb, head=found, session_id=session_id)
            history = await LiveHistory.open(self.store, head, policy=self.policy)
            session = self._cache.get(session_id)  # another task may have opened it while this one read
            if session is None:
                session = Session(self, history)
                self._cache.put(session_id, session)
        await session.permit(verb, caller)
        if is_member_at_most(caller, session.head):
            await session.refresh()  # with whom it is shared may have changed elsewhere
        await self._cache.shrink(on_failure=_keep_unsaved)
        return session

    async def resolve(self, key: str | SessionKey, *, principal: Principal | None = None) -> str | None:
        """Return the id that `key` leads to, if it is this principal's."""
        caller = principal or self.principal
        session_id = await self.store.resolve(key_text(key, caller))
        if session_id is None:
            return None
        head = await self.store.head(session_id)
        return session_id if head is not None and may(caller, Verb.READ, head=head) else None

    async def list(self, query: SessionQuery | None = None, *, principal: Principal | None = None) -> Page[Head]:
        """Return a page of the principal's sessions, most recently active first (B26); trash is only listed when asked for."""
        return await list_heads(self.store, query or SessionQuery(), principal=principal or self.principal)

    async def heads(
        self, query: SessionQuery | None = None, *, principal: Principal | None = None
    ) -> AsyncIterator[Head]:
        """Yield every head that matches, page by page."""
        query = query or SessionQuery(limit=500)
        async for head in all_heads(self.store, query, principal=principal or self.principal):
            yield head

    async def list_sessions(
        self, filter_criteria: Mapping[str, Any] | None = None, *, principal: Principal | None = None
    ) -> Ids:
        """Return the ids that match: created_before/after, active_before/after, status, owner, tags, key, metadata (B26)."""
        return [head.session_id async for head in self.heads(query_of(filter_criteria or {}), principal=principal)]

    async def search(
        self,
        text: str,
        *,
        session_id: str | None = None,
        limit: int = 20,
        cursor: str | None = None,
        principal: Principal | None = None,
    ) -> Page[SearchHit]:
        """Return events that contain the words, newest first, with snippets. What was acknowledged is found."""
        return await self._searcher.search(
            text, principal=principal or self.principal, session_id=session_id, limit=limit, cursor=cursor
        )

    async def catch_up_index(self, *, progress: Any = None) -> int:
        """Index what is not indexed yet and return how many events that were."""
        return await self._searcher.catch_up(progress=progress)

    # ---- writing ---------------------------------------------------------------------------------------------------

    async def save_event(
        self, session_id: str, event: SessionEvent, *, principal: Principal | None = None
    ) -> SessionEvent:
        """Store an event durably (B24). Raises: SessionNotFoundError, and whatever the store cannot do (B25)."""
        session = await self.open(session_id, principal=principal, verb=verb_of(event))
        return await session.add_event(event, principal=principal)

    async def receive(
        self,
        key: str | SessionKey,
        message: UserMessageEvent,
        *,
        revision: str = "",
        principal: Principal | None = None,
    ) -> Appended:
        """Put a message into the mailbox of the session that `key` leads to; durable when this returns (C5).

        The same message delivered again (same tenant, channel, account, source message id, revision) is not stored again,
        also when the key leads to another session by now (C4).
        Raises: InvalidEventError (an empty source message id, which tells no message from another), and what `get_or_create` does.
        """
        caller = principal or self.principal
        if message.source_message_id is not None and not message.source_message_id.strip():
            reason = "its source_message_id is empty; give none where the source names no messages"
            raise InvalidEventError(event_type=message.event_type, reason=reason)
        session = await self.get_or_create(key, principal=caller, verb=Verb.SEND)
        message = message.model_copy(update={"queued": True})
        parsed = SessionKey.parse(key)
        arrival = None
        if message.source_message_id is not None:
            channel = message.channel or parsed.channel
            arrival = arrival_key(
                tenant=caller.tenant,
                channel=channel,
                account=parsed.account or "",
                source_message_id=message.source_message_id,
                revision=revision,
            )
        appended, _ = await session.append([message], principal=caller, idempotency_key=arrival)
        return appended

    async def acquire(self, key: str | SessionKey, *, principal: Principal | None = None) -> SessionLock:
        """Return the lock of the session that `key` leads to: the same one while anybody holds or waits for it (A37)."""
        session = await self.get_or_create(key, principal=principal, verb=Verb.APPEND)
        return session.lock

    # ---- ending ----------------------------------------------------------------------------------------------------

    async def delete_session(
        self,
        session_id: str,
        *,
        cascade: bool = False,
        detach: bool = False,
        wait_s: float = 5.0,
        principal: Principal | None = None,
    ) -> bool:
        """Erase the session from memory and everywhere (B27); False if there is none for this principal. See `erase_session`."""
        try:
            await self.erase_session(session_id, cascade=cascade, detach=detach, wait_s=wait_s, principal=principal)
        except SessionNotFoundError as error:
            if error.data["session_id"] != session_id:  # a fork that is not for this principal
                raise
            return False
        return True

    async def erase_session(
        self,
        session_id: str,
        *,
        cascade: bool = False,
        detach: bool = False,
        wait_s: float = 5.0,
        prove: bool = False,
        progress: Progress | None = None,
        principal: Principal | None = None,
    ) -> Receipt:
        """Erase the session, its key first, then every place it is in, and return the receipt (C20).

        Forks go too with `cascade`, or with `detach` take over what they share and stay (C11). With `prove`, bytes of it are
        searched for in all files afterwards. Killed in the middle, it is ended by whoever opens the store next.
        Raises: SessionNotFoundError, AccessDeniedError, SessionHeldError, SessionForkedError, SessionBusyError, StoreError.
        """
        return await self._ending.erase_session(
            session_id,
            caller=principal or self.principal,
            cascade=cascade,
            detach=detach,
            wait_s=wait_s,
            prove=prove,
            progress=progress,
        )

    async def erase_person(
        self,
        person: Principal,
        *,
        cascade: bool = False,
        detach: bool = False,
        wait_s: float = 5.0,
        prove: bool = False,
        progress: Progress | None = None,
        principal: Principal | None = None,
    ) -> Receipt:
        """Erase all that a person owns: sessions, memory, keys, grants. Sessions under legal hold stand, and are named (B58).

        What they said in others' sessions stands there and is counted. Raises: AccessDeniedError (only they themselves and
        administrators may), SessionForkedError, SessionBusyError, StoreError.
        """
        return await self._ending.erase_person(
            person,
            caller=principal or self.principal,
            cascade=cascade,
            detach=detach,
            wait_s=wait_s,
            prove=prove,
            progress=progress,
        )

    async def receipts(
        self, *, session_id: str | None = None, person: Principal | None = None, principal: Principal | None = None
    ) -> Receipts:
        """Return the receipts of erasures that the principal may see, oldest first."""
        return await self._ending.receipts(caller=principal or self.principal, session_id=session_id, person=person)

    async def finish_erasures(self) -> Receipts:
        """Finish the erasures that a kill cut off, and return their receipts. `open_manager` does it; `finished` has them then."""
        self.finished = await self._ending.finish()
        return self.finished

    async def hold_session(self, session_id: str, *, reason: str, principal: Principal | None = None) -> Hold:
        """Put a legal hold on the session: until it is released nothing and nobody erases it, or puts it into the trash."""
        caller = principal or self.principal
        session = await self.open(session_id, principal=caller, verb=Verb.HOLD)
        return await hold_session(session, reason=reason, at=iso_from_us(self.now_us()), principal=caller)

    async def release_session(self, session_id: str, *, principal: Principal | None = None) -> bool:
        """Take a legal hold back; False where there was none."""
        caller = principal or self.principal
        return await release_session(await self.open(session_id, principal=caller, verb=Verb.HOLD), principal=caller)

    async def close(self) -> None:
        """Save every live session and close the store, also where one cannot be saved: it may be erased, or the disk full."""
        try:
            await self.denials.close()
            for session in self._cache:
                try:
                    await session.save()
                except KipuError as error:
                    logger.warning("the window of session %s was not saved: %s", session.session_id, error)
        finally:
            await self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ---- small things ----------------------------------------------------------------------------------------------

    def now_us(self) -> int:
        """Return the time as this manager's clock tells it, in microseconds since 1970."""
        return self._clock.now_us()

    def mint(self, prefix: str) -> str:
        """Return a new id that sorts by time, such as `sess_…` or `turn_…`."""
        return ids.prefixed_id(prefix, self._clock.now_us() // 1000, random=self._entropy.random_bytes(10))


def _keep_unsaved(session: Session, error: KipuError) -> None:
    logger.warning("session %s stays in memory, since it could not be saved: %s", session.session_id, error)
