"""All that is a person's as one archive: sessions as JSON lines, Markdown and HTML, blobs, memory, and what they said elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import orjson

from kipu.errors import AccessDeniedError, BlobNotFoundError, KipuError
from kipu.interop.event_line import blob_digests, body_of, event_line
from kipu.interop.export_file import PendingFile
from kipu.interop.export_html import export_html
from kipu.interop.export_jsonl import export_jsonl
from kipu.interop.export_markdown import export_markdown
from kipu.interop.person_archive import (
    ELSEWHERE,
    EVENTS,
    HTML,
    MARKDOWN,
    MEMORY,
    README,
    ArchiveWriter,
    session_path,
)
from kipu.manager.access import owner_of
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.head import Head
from kipu.ports.memory import FactQuery, MemoryStore
from kipu.ports.principal import LOCAL_ID, Principal
from kipu.ports.store import EventStore, SessionQuery

_PAGE = 500
_README = """\
All that Kipu kept of one person. `manifest.json` lists every file with its size and SHA-256.

sessions/<id>/events.jsonl     every event, one JSON object a line (this is what `kipu import` reads)
sessions/<id>/transcript.md    the same to read, as Markdown
sessions/<id>/transcript.html  the same to read in a browser; the page runs nothing and loads nothing
sessions/<id>/blobs/<sha256>   big results, images and files, named by their SHA-256
memory.jsonl                   what was remembered about them, with where it was learned
said-elsewhere.jsonl           their own messages in sessions of other people

`kipu import THIS-FILE` brings sessions and memory back.
"""


@dataclass(frozen=True, slots=True)
class PersonExport:
    """What an export wrote. `unreadable` are sessions that are not in it, with the code of what was in the way.

    To administrators and the local user these are also those of which nobody can say whose they are, and others' sessions in which
    the person may have said something.
    """

    file: Path
    bytes: int
    sessions: int
    events: int
    blobs: int
    facts: int
    elsewhere: int
    unreadable: dict[str, str]


async def export_person(
    manager: SessionManager,
    person: Principal,
    *,
    to: Path,
    memory: MemoryStore | None = None,
    progress: Callable[[int, int], None] | None = None,
    principal: Principal | None = None,
) -> PersonExport:
    """Write everything a person owns to one file, which is there whole or not at all (A51, B58).

    Raises: AccessDeniedError: only they themselves and administrators of their tenant may. StoreError, OSError.
    """
    caller = principal or manager.principal
    if caller.tenant != person.tenant or not (caller.is_admin or caller.id == person.id):
        reason = "only they themselves and administrators of their tenant may"
        raise AccessDeniedError(
            principal=caller.id, verb="export the data of", session_id=f"{person.id} (a person)", reason=reason
        )
    pending = PendingFile(to, follow=True)
    try:
        moment = datetime.fromtimestamp(manager.now_us() / 1_000_000, tz=UTC)
        writer = ArchiveWriter(cast("Any", _Appending(pending)), date_time=_zip_time(moment))
        work = _Export(manager, person, writer=writer, memory=memory)
        await work.run(progress)
        if caller.is_admin or caller.is_local:  # to others no session exists that is not theirs
            await work.note_unreadable(None if caller.id == LOCAL_ID else person.tenant)
        writer.finish({"exported_at": moment.isoformat(), **work.summary()})
        size = pending.finish()
    finally:
        pending.drop()
    return PersonExport(
        to, size, len(work.sessions), work.events, work.blobs, work.facts, work.elsewhere, work.unreadable
    )


class _Appending:
    """A pending file as ZIP writers know files that cannot be sought in."""

    def __init__(self, pending: PendingFile) -> None:
        self._pending = pending

    def write(self, data: bytes) -> int:
        """Add bytes."""
        self._pending.write(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Do nothing: it is flushed when it is finished."""


class _Export:
    def __init__(
        self, manager: SessionManager, person: Principal, *, writer: ArchiveWriter, memory: MemoryStore | None
    ) -> None:
        self._manager = manager
        self._person = person
        self._writer = writer
        self._memory = memory
        self.sessions: list[dict[str, Any]] = []
        self.unreadable: dict[str, str] = {}
        self._elsewhere_unreadable: dict[str, str] = {}
        self.events = self.blobs = self.facts = self.elsewhere = 0

    async def run(self, progress: Callable[[int, int], None] | None) -> None:
        """Write every entry but the manifest."""
        self._writer.put(README, _README.encode())
        heads = await self._owned()
        for number, head in enumerate(heads, 1):
            await self._session(head)
            if progress is not None:
                progress(number, len(heads))
        await self._remembered()
        await self._said_elsewhere({head.session_id for head in heads})

    def summary(self) -> dict[str, Any]:
        """Return what the manifest says beside the files."""
        return {
            "person": {"id": self._person.id, "tenant": self._person.tenant},
            "sessions": self.sessions,
            "facts": self.facts,
            "said_elsewhere": self.elsewhere,
            "unreadable": self.unreadable,
        }

    async def note_unreadable(self, tenant: str | None) -> None:
        """Note what cannot be read though it may be the person's: sessions of whom nobody can say, and what others' hold of them."""
        self.unreadable = {**self._elsewhere_unreadable, **self.unreadable}
        query = SessionQuery(tenant=tenant, statuses=frozenset({"unreadable"}), limit=_PAGE)
        async for head in _heads(self._manager.store, query):
            try:
                await self._manager.store.head(head.session_id)
            except KipuError as error:
                self.unreadable.setdefault(head.session_id, error.code)

    async def _owned(self) -> list[Head]:
        """Return the person's heads, those created first first: parents before their forks."""
        # Where the record that named an owner is lost, a session is this machine's own user's.
        owners = (self._person.id, "") if self._person.is_local else (self._person.id,)
        queries = [
            SessionQuery(tenant=self._person.tenant, owner=owner, order="created_at", descending=False, limit=_PAGE)
            for owner in owners
        ]
        found = [head for query in queries async for head in _heads(self._manager.store, query)]
        return [head for head in found if head.status != "unreadable" or head.owner]

    async def _session(self, head: Head) -> None:
        session_id = head.session_id
        try:
            session = await self._manager.open(session_id, principal=owner_of(head))
            owner = owner_of(head)
            events = await self._lines(session, owner)
            await self._stream(session_path(session_id, MARKDOWN), export_markdown(session, principal=owner))
            await self._stream(session_path(session_id, HTML), export_html(session, principal=owner))
        except KipuError as error:
            self.unreadable[session_id] = error.code
            return
        self.events += events
        self.sessions.append(
            {
                "session_id": session_id,
                "title": head.display_title,
                "status": head.status,
                "created_at": head.created_at,
                "forked_from": head.forked_from,
                "events": events,
                "is_kipus_own": (head.key or "").startswith("kipu:"),
            }
        )

    async def _lines(self, session: Session, owner: Principal) -> int:
        count, wanted = 0, dict[str, None]()
        with self._writer.entry(session_path(session.session_id, EVENTS)) as entry:
            async for line in export_jsonl(session, principal=owner):
                entry.write(line)
                count += 1
                wanted.update(dict.fromkeys(blob_digests(body_of(line) or {})))
        for digest in wanted:
            with suppress(BlobNotFoundError):  # the reference in the event still says what it was
                self._writer.put(
                    session_path(session.session_id, f"blobs/{digest}"), await session.blob(digest, principal=owner)
                )
                self.blobs += 1
        return count

    async def _stream(self, name: str, chunks: AsyncIterator[bytes]) -> None:
        with self._writer.entry(name) as entry:
            async for chunk in chunks:
                entry.write(chunk)

    async def _remembered(self) -> None:
        if self._memory is None:
            return
        query = FactQuery(tenant=self._person.tenant, owner=self._person.id, statuses=None, limit=_PAGE)
        with self._writer.entry(MEMORY) as entry:
            while True:
                page = await self._memory.facts(query)
                for fact in page.items:
                    entry.write(orjson.dumps(fact, default=list) + b"\n")
                    self.facts += 1
                if page.cursor is None:
                    return
                query = replace(query, cursor=page.cursor)

    async def _said_elsewhere(self, own: set[str]) -> None:
        """Write the person's own messages in sessions of others: they are theirs, and the answers are not."""
        store = self._manager.store
        with self._writer.entry(ELSEWHERE) as entry:
            async for head in _heads(store, SessionQuery(tenant=self._person.tenant, limit=_PAGE)):
                if head.session_id in own or not head.owner:
                    continue
                after = head.base_seq
                try:
                    while page := await store.read(head.session_id, after=after):
                        after = page[-1].seq
                        for stored in page:
                            if self._is_theirs(stored.record.event_type, stored.record.principal, stored.record.body):
                                entry.write(event_line(stored))
                                self.elsewhere += 1
                except KipuError as error:
                    self._elsewhere_unreadable[head.session_id] = error.code

    def _is_theirs(self, event_type: str, principal: str | None, body: bytes) -> bool:
        if event_type != "user_message":
            return False
        return principal == self._person.id or (body_of(body) or {}).get("sender_id") == self._person.id


async def _heads(store: EventStore, query: SessionQuery) -> AsyncIterator[Head]:
    while True:
        page = await store.list(query)
        for head in page.items:
            yield head
        if page.cursor is None:
            return
        query = replace(query, cursor=page.cursor)


def _zip_time(moment: datetime) -> tuple[int, int, int, int, int, int]:
    return (max(1980, moment.year), moment.month, moment.day, moment.hour, moment.minute, moment.second)
