"""Search: bring the index up to the logs, ask it, and show what was found in its words."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import orjson

from kipu.context.item import Item
from kipu.errors import (
    InvalidQueryError,
    SearchUnavailableError,
    StoreFullError,
    StoreReadOnlyError,
)
from kipu.events.ids import check_session_id
from kipu.events.registry import EVENT_CLASSES
from kipu.manager.access import Verb, may
from kipu.manager.loader import item_of
from kipu.manager.unreadable import UNREADABLE
from kipu.ports.head import Head
from kipu.ports.principal import Principal
from kipu.ports.store import EventStore, IndexEntry, Page, SearchQuery, SessionQuery, StoredEvent
from kipu.session.terms import event_text, phrases_of, terms_of

_log = logging.getLogger(__name__)
BATCH_EVENTS = 500
SNIPPET_CHARACTERS = 160
_ONE_TEXT = {"user_message": "content", "agent_message": "content", "tool_result": "result"}
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One event that was found: where, what kind, when, and a line of its text around the first word."""

    session_id: str
    seq: int
    event_type: str
    timestamp: str
    title: str
    snippet: str


class Searcher:
    """Search one store. The index is a projection behind the log: it is caught up first, so that nothing is missed."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._said_behind = False

    async def catch_up(self, *, progress: Progress | None = None) -> int:
        """Index every event that is not indexed yet and return how many there were."""
        if not self._store.describe().search:
            raise SearchUnavailableError(store=self._store.describe().url)
        done, cursor = 0, None
        while True:
            # By cursor and not from the start again: a session that is not indexed for now must not be met for ever.
            page = await self._store.list(SessionQuery(unindexed=True, limit=200, order="created_at", cursor=cursor))
            for head in page.items:
                try:
                    done += await self._index_session(head, progress, done)
                except StoreFullError:
                    raise
                except UNREADABLE as error:  # one session that cannot be read keeps nobody from searching the rest
                    _log.warning("what session %s says is not found: %s", head.session_id, error)
            cursor = page.cursor
            if cursor is None:
                return done

    async def _catch_up_if_possible(self) -> None:
        """Catch up, or say once that this store takes in no terms now: what is indexed can be searched all the same."""
        try:
            await self.catch_up()
        except (StoreReadOnlyError, StoreFullError) as error:
            if not self._said_behind:
                _log.warning("the search index is not up to date, newer events are not found: %s", error)
            self._said_behind = True
        else:
            self._said_behind = False

    async def _index_session(self, head: Head, progress: Progress | None, done: int) -> int:
        after, count = max(head.indexed_seq, head.base_seq), 0
        while True:
            stored = await self._store.read(head.session_id, after=after, limit=BATCH_EVENTS)
            if not stored:
                # Damaged events at the end cannot be read: without this the session would stay behind for ever.
                await self._store.index([], indexed={head.session_id: max(after, head.last_seq)})
                return count
            entries = [
                IndexEntry(head.session_id, event.seq, terms)
                for event in stored
                if (terms := terms_of(_searchable(event)))
            ]
            after = stored[-1].seq
            await self._store.index(entries, indexed={head.session_id: after})
            count += len(stored)
            if progress is not None:
                progress(done + count)
            if after >= head.last_seq:
                return count

    async def search(
        self, text: str, *, principal: Principal, session_id: str | None, limit: int, cursor: str | None
    ) -> Page[SearchHit]:
        """Return what the principal's sessions hold of `text`, newest first.

        Raises:
            InvalidQueryError: there is no letter or digit in it. InvalidSessionIdError: `session_id` cannot be one.
        """
        if session_id is not None:
            check_session_id(session_id)
        phrases = phrases_of(text)
        if not phrases:
            raise InvalidQueryError(reason="there is nothing to search for: give at least one letter or digit")
        await self._catch_up_if_possible()
        query = SearchQuery(phrases, tenant=principal.tenant, session_id=session_id, limit=limit, cursor=cursor)
        if not principal.is_admin:
            query = replace(query, visible_to=principal.id)
        page = await self._store.search(query)
        heads: dict[str, Head | None] = {}
        hits = []
        for found in page.items:
            if found.session_id not in heads:
                heads[found.session_id] = await self._head(found.session_id)
            head = heads[found.session_id]
            if head is None or not may(principal, Verb.READ, head=head):
                continue
            try:
                stored = await self._store.read(found.session_id, after=found.seq - 1, until=found.seq, limit=1)
            except UNREADABLE as error:
                hits.append(SearchHit(head.session_id, found.seq, "", "", head.display_title, f"({error})"))
                continue
            if stored:
                hits.append(_hit(head, item_of(stored[0]), phrases[0].terms[0]))
        return Page(tuple(hits), page.cursor)

    async def _head(self, session_id: str) -> Head | None:
        try:
            return await self._store.head(session_id)
        except UNREADABLE as error:
            _log.warning("what session %s says is not shown: %s", session_id, error)
            return None


def _searchable(stored: StoredEvent) -> str:
    """Return what of a stored event can be searched for. Of most it is one text, and the rest need not be checked for it."""
    record = stored.record
    name = _ONE_TEXT.get(record.event_type)
    if name is not None and record.v == EVENT_CLASSES[record.event_type].VERSION:
        try:
            fields = orjson.loads(record.body)
        except orjson.JSONDecodeError:
            fields = None
        if type(fields) is dict and type(text := fields.get(name)) is str and not fields.get("error_info"):
            return text
    return event_text(item_of(stored).event)


def _hit(head: Head, item: Item, term: str) -> SearchHit:
    text = " ".join(event_text(item.event).split())
    at = max(0, text.casefold().find(term))
    start = max(0, at - SNIPPET_CHARACTERS // 3)
    snippet = text[start : start + SNIPPET_CHARACTERS]
    snippet = ("…" if start else "") + snippet + ("…" if start + SNIPPET_CHARACTERS < len(text) else "")
    event = item.event
    moment = event.timestamp.isoformat() if event.timestamp else ""
    return SearchHit(head.session_id, item.seq, event.event_type, moment, head.display_title, snippet)
