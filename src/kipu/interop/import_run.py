"""One import: which record goes where, and the account of all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kipu.errors import InvalidEventError, InvalidSessionIdError
from kipu.events.boundary import DamagedEvent, ForkPoint, SessionInitEvent
from kipu.events.ids import check_session_id
from kipu.events.normalise import normalise
from kipu.interop.event_line import is_digest
from kipu.interop.import_target import ImportTarget, beginning_changes
from kipu.interop.incoming_event import EventMaker, Incoming, referred, with_blobs
from kipu.interop.line_parser import Piece, pieces_of
from kipu.interop.quarantine import Quarantine
from kipu.interop.report import ImportedSession, ImportProblem, ImportReport
from kipu.interop.source_line import SourceFile, SourceLine
from kipu.manager.access import Verb, may
from kipu.manager.manager import SessionManager
from kipu.ports.principal import Principal

PROBLEMS_KEPT = 100
MAX_GAP = 10_000
BUFFERED_BYTES = 32 << 20
_MOST_WAITING = 1_000


@dataclass(slots=True)
class _Source:
    """One session of the source."""

    source_id: str
    maker: EventMaker
    target: ImportTarget | None = None
    numbered: bool = False  # its lines have a seq, which other events refer to: it is kept
    records: int = 0
    waiting: list[tuple[int, Piece]] = field(default_factory=list)  # text lines that may stand for a missing number


class ImportRun:
    """Take the lines of a source one after another."""

    def __init__(
        self,
        manager: SessionManager,
        source: SourceFile,
        *,
        principal: Principal,
        as_new: bool,
        quarantine: Quarantine,
        blobs: Path,
    ) -> None:
        self._manager = manager
        self._source = source
        self._principal = principal
        self._as_new = as_new
        self._quarantine = quarantine
        self._blobs = blobs
        self._sessions: dict[str, _Source] = {}
        self._last: _Source | None = None
        self._records = self._imported = self._raw = 0
        self._problems: list[ImportProblem] = []

    async def take(self, line: SourceLine) -> None:
        """Take one physical line."""
        if line.data is None:
            self._records += 1
            self._set_aside(line.offset, line.length, reason="it is longer than what is taken into memory")
            return
        for piece in pieces_of(line.data):
            self._records += 1
            await self._take_piece(piece, line.offset + piece.offset)
        if sum(source.target.buffered for source in self._sessions.values() if source.target) > BUFFERED_BYTES:
            for source in self._sessions.values():
                if source.target:
                    await source.target.flush()

    async def _take_piece(self, piece: Piece, offset: int) -> None:
        if piece.fields is None:
            await self._keep_text(self._last, piece, offset)
            return
        source = self._session_of(piece.fields)
        self._last = source
        try:
            await self._take_event(source, piece, offset=offset)
        except InvalidEventError as error:
            bad = piece._replace(reason=str(error.data["reason"]))
            await self._keep_text(source, bad, offset)

    def _session_of(self, fields: Mapping[str, Any]) -> _Source:
        given = fields.get("session_id")
        source_id = given if isinstance(given, str) and given else f"file:{self._source.digest}"
        if source_id not in self._sessions:
            maker = EventMaker(self._manager.writer, source_id=source_id, first_time=self._source.modified)
            self._sessions[source_id] = _Source(source_id, maker)
        return self._sessions[source_id]

    # ---- events ----------------------------------------------------------------------------------------------------

    async def _take_event(self, source: _Source, piece: Piece, *, offset: int) -> None:
        fields = piece.fields or {}
        seq = _seq(fields)
        if source.target is None:
            incoming = source.maker.event(fields, place=seq or 1)
            if isinstance(incoming.event, SessionInitEvent):
                await self._begin(source, seq, init=incoming)
                self._imported += 1
                source.records += 1
                return
            await self._begin(source, seq)
        target = _begun(source)
        at = seq if seq is not None and source.numbered else target.next_seq
        incoming = source.maker.event(fields, place=at)
        if at < target.next_seq:
            if await target.has(at, incoming.record.event_id):
                self._imported += 1
            else:
                self._set_aside(offset, piece.length, reason=f"another event has its number {at}")
            return
        if isinstance(incoming.event, SessionInitEvent):
            incoming = self._inner_beginning(source, incoming, at)
        if not await self._reach(source, at):
            self._set_aside(offset, piece.length, reason=f"its number {at} is far beyond {target.next_seq}")
            return
        await target.put(self._with_blobs(incoming))
        self._imported += 1
        source.records += 1

    async def _begin(self, source: _Source, seq: int | None, *, init: Incoming | None = None) -> None:
        """Choose where the session goes, and put its beginning there: the source's, or one of our own."""
        fork = init.event.forked_from if init and isinstance(init.event, SessionInitEvent) else None
        if fork is not None and seq is not None and seq != fork.seq + 1:
            fork = None
        parent = await self._parent(fork) if fork else None
        source.numbered = seq is not None and (init is not None or seq > 1)
        base_seq = fork.seq if fork else max(0, (seq or 1) - (1 if init else 2))
        target = ImportTarget(
            self._manager, principal=self._principal, source_id=source.source_id, base_seq=base_seq, as_new=self._as_new
        )
        origin = self._origin(source)
        if init is None:
            begin = SessionInitEvent(owner=self._principal.id, tenant=self._principal.tenant, origin=origin)
            first = source.maker.made(begin, place=base_seq + 1)
        else:
            forked_from = {"session_id": parent, "seq": base_seq} if parent else None
            before = init.event.model_dump(exclude_none=True)
            changes = beginning_changes(self._principal, origin=origin, before=before, forked_from=forked_from)
            first = source.maker.beginning(init, changes=changes, base_seq=base_seq)
        await target.begin()
        await target.put(self._with_blobs(first))
        source.target = target

    def _inner_beginning(self, source: _Source, incoming: Incoming, at: int) -> Incoming:
        """Return the beginning of a fork that stands alone, behind what it took over (EV-19)."""
        before = incoming.event.model_dump(exclude_none=True)
        fork = before.get("forked_from")
        if not source.numbered or fork is None or fork["seq"] != at - 1:
            raise InvalidEventError(event_type="session_init", reason="the session has begun already")
        origin = self._origin(source)
        changes = beginning_changes(self._principal, origin=origin, before=before, forked_from=fork)
        return source.maker.beginning(incoming, changes=changes, base_seq=at - 1)

    def _origin(self, source: _Source) -> dict[str, Any]:
        name, source_id = normalise([self._source.path.name, source.source_id])[0]
        return {"kind": "import", "source": name, "digest": self._source.digest, "session_id": source_id}

    async def _parent(self, fork: ForkPoint) -> str | None:
        """Return the id of the session that a fork goes on from: one of this source, or one that the principal may read.

        One that ends before the fork begins is not it: what it says later would be the fork's past, whoever may read it then.
        """
        known = self._sessions.get(fork.session_id)
        if known is not None and known.target is not None:
            await known.target.flush()
            return known.target.session_id
        try:
            head = await self._manager.store.head(check_session_id(fork.session_id))
        except InvalidSessionIdError:
            return None
        readable = head is not None and head.last_seq >= fork.seq and may(self._principal, Verb.READ, head=head)
        return fork.session_id if readable and not self._as_new else None

    async def _reach(self, source: _Source, seq: int) -> bool:
        """Fill the numbers before `seq`, first with lines that could not be read, then with `damaged` events."""
        target = _begun(source)
        if seq - target.next_seq > MAX_GAP:
            return False
        waiting, source.waiting = source.waiting, []
        for offset, piece in waiting:
            if target.next_seq < seq:
                await self._put_note(source, piece, offset)
            else:
                self._set_aside(offset, piece.length, reason=piece.reason)
        while target.next_seq < seq:
            lost = DamagedEvent(reason="gap", detail={"source_digest": self._source.digest})
            await target.put(source.maker.made(lost, place=target.next_seq))
        return True

    def _with_blobs(self, incoming: Incoming) -> Incoming:
        found: dict[str, bytes] = {}
        for digest in referred(incoming):
            data = _blob_file(self._blobs / digest)
            if data is not None and hashlib.sha256(data).hexdigest() == digest:
                found[digest] = data
        return with_blobs(incoming, found, redactor=self._manager.redactor)

    # ---- what is no event ------------------------------------------------------------------------------------------

    async def _keep_text(self, source: _Source | None, piece: Piece, offset: int) -> None:
        """Keep a line's text as a note where it stands; where it has no place, or is no text, keep its bytes apart."""
        if piece.text is None or source is None:
            self._set_aside(offset, piece.length, reason=piece.reason)
            return
        seq = _seq(piece.fields or {})
        if source.target is None:
            await self._begin(source, seq)
        target = _begun(source)
        fits = (
            seq is not None and seq >= target.next_seq and await self._reach(source, seq) if source.numbered else True
        )
        if fits:
            await self._put_note(source, piece, offset)
        elif seq is None and len(source.waiting) < _MOST_WAITING:
            source.waiting.append((offset, piece._replace(fields=None)))
        else:
            self._set_aside(offset, piece.length, reason=piece.reason)

    async def _put_note(self, source: _Source, piece: Piece, offset: int) -> None:
        target = _begun(source)
        text = piece.text or ""
        note = source.maker.note(text, reason=piece.reason, offset=offset, place=target.next_seq)
        await target.put(note)
        self._raw += 1
        source.records += 1
        self._remember(offset, piece.length, kind="raw", reason=piece.reason)

    def _set_aside(self, offset: int, length: int, *, reason: str) -> None:
        self._quarantine.add(offset, length, reason=reason)
        self._remember(offset, length, kind="quarantined", reason=reason)

    def _remember(self, offset: int, length: int, *, kind: str, reason: str) -> None:
        if len(self._problems) < PROBLEMS_KEPT:
            self._problems.append(ImportProblem(offset, length, kind, reason))

    # ---- the end ---------------------------------------------------------------------------------------------------

    async def finish(self) -> ImportReport:
        """Append what is left and return the account."""
        sessions: list[ImportedSession] = []
        for source_id, source in self._sessions.items():
            if source.target is None:
                continue
            waiting, source.waiting = source.waiting, []
            for offset, piece in waiting:
                await self._put_note(source, piece, offset)
            await source.target.finish()
            sessions.append(ImportedSession(source.target.session_id, source_id, source.records, source.target.added))
        return ImportReport(
            source=str(self._source.path),
            digest=self._source.digest,
            records=self._records,
            imported=self._imported,
            raw=self._raw,
            quarantined=self._quarantine.count,
            added=sum(session.added for session in sessions),
            sessions=tuple(sessions),
            problems=tuple(self._problems),
            quarantine=self._quarantine.finish(),
        )

    async def release(self) -> None:
        """Let go of every session, also when the import failed."""
        for source in self._sessions.values():
            if source.target is not None:
                await source.target.release()


def _seq(fields: Mapping[str, Any]) -> int | None:
    seq = fields.get("seq")
    return seq if isinstance(seq, int) and not isinstance(seq, bool) and 0 < seq < 1 << 53 else None


def _blob_file(path: Path) -> bytes | None:
    """Return what a file named by a digest holds, if there is one."""
    return path.read_bytes() if is_digest(path.name) and path.is_file() else None


def _begun(source: _Source) -> ImportTarget:
    if source.target is None:
        raise AssertionError("a session is begun before anything is put into it")
    return source.target
