"""One session's log: its segments, their torn tails, and the bytes that are appended to them."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kipu.errors import SessionNotFoundError
from kipu.ports.head import JsonObject
from kipu.ports.store import Damage
from kipu.stores.jsonl.entry import LogEntry
from kipu.stores.jsonl.floor import NUMBER as FLOOR
from kipu.stores.jsonl.floor import Floor, read_floor
from kipu.stores.jsonl.layout import refuse_when_away
from kipu.stores.jsonl.line import holds, seq_of
from kipu.stores.jsonl.lock import FileLock
from kipu.stores.jsonl.medium import PRIVATE_FILE, make_folder, remove_file, sync_folder, write_all
from kipu.stores.jsonl.quarantine import keep_aside
from kipu.stores.jsonl.scan import OFFSETS_KEPT, KeyPlace, LogScan, Place, scan_segment
from kipu.stores.jsonl.segment import SegmentReader, segment_name, segment_number
from kipu.stores.jsonl.unsynced import Unsynced

ERASING = "erasing"  # in a session's folder while it is being erased
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
_ONE_LINE_BYTES = 1 << 13  # what the last line usually fits into
Offsets = deque[tuple[int, int]]


class LogView(NamedTuple):
    """A log at one moment, replaced as a whole, so that readers need no lock."""

    segments: tuple[int, ...]
    size: int  # of the last segment, up to the end of its last whole batch
    inode: int
    row: JsonObject
    healthy: bool
    table: list[tuple[int, Place]] | None = None  # every line, where halving cannot find them

    @property
    def segment(self) -> int:
        """Return the number of the last segment, 0 where there is none."""
        return self.segments[-1] if self.segments else 0

    @property
    def last_seq(self) -> int:
        """Return the last seq."""
        seq: int = self.row.get("last_seq", 0)
        return seq


class SessionLog:
    """Append to one session's segments and know where they end. Whoever changes it holds `lock`."""

    def __init__(self, root: str, session_id: str, *, folder: str | None = None) -> None:
        self.session_id = session_id
        self._root = root
        self.folder = folder or os.path.join(root, session_id)
        self.lock = FileLock(os.path.join(self.folder, "lock"))
        self.view: LogView | None = None
        self.floor: Floor | None = None  # as it was when the log was last looked at
        self.given_seq = 0  # numbers up to here were given to events, whatever lines are left of them
        self.found_keys: list[KeyPlace] = []  # of lines that others wrote, for the index
        self.scan: LogScan | None = None  # the last scan that was not trivial, for bindings
        self.foreign = False  # others' lines were read that this process has not put on the medium
        self.unsynced = 0
        self._acknowledged: Unsynced | None = None  # what of that was promised to somebody
        self._is_doubtful = False  # a sync failed: what a later one says of it would mean nothing
        self.offsets: Offsets = deque(maxlen=OFFSETS_KEPT)
        self._fd = -1
        self._next = ""
        self._path = ""
        self._clean = False  # the segment was just seen to end where the view says
        self._cut: int | None = None  # what stands behind here was refused, and could not be cut off yet

    # -- knowing ---------------------------------------------------------------------------------------------------------

    def path(self, segment: int) -> str:
        """Return the path of a segment."""
        return os.path.join(self.folder, segment_name(segment))

    @property
    def known(self) -> LogView:
        """Return the view of a log that was refreshed under the lock."""
        if self.view is None:
            raise SessionNotFoundError(session_id=self.session_id)
        return self.view

    def is_current(self) -> bool:
        """Return True when nobody has changed the log since it was looked at last. Two cheap questions to the system."""
        view = self.view
        if view is None:
            return False
        if not view.segments:
            return not os.access(self.path(1), os.F_OK) and os.path.isdir(self.folder)
        try:
            now = os.stat(self._path)
        except FileNotFoundError:
            return False
        same = now.st_ino == view.inode and view.size in {now.st_size, self._cut}
        return same and not os.access(self._next, os.F_OK)

    def is_current_locked(self) -> bool:
        """Return what `is_current` does, cheaper, for whoever holds the lock."""
        view = self.view
        if view is None or self._fd < 0 or self._cut is not None:
            return self.is_current()
        now = os.fstat(self._fd)
        self._clean = now.st_size == view.size and now.st_nlink > 0
        return self._clean and not os.access(self._next, os.F_OK)

    def refresh(self, hint: LogEntry | None = None) -> LogView:
        """Take in what other processes appended. The caller holds the lock, shared at least.

        Raises:
            SessionNotFoundError: the session was erased, or never was.
        """
        if self.view is not None and self.is_current_locked():
            return self.view
        self._clean = False
        if self.is_being_erased():
            raise SessionNotFoundError(session_id=self.session_id)
        segments = self._segments()
        view = self._from_hint(segments, hint) if self.view is None and hint is not None else self._grown(segments)
        self._set(view or self._scan_all(segments))
        return self.known

    def is_being_erased(self) -> bool:
        """Return True when an erasure of the session began."""
        return os.path.exists(os.path.join(self.folder, ERASING))

    def rescan(self) -> LogView:
        """Read every line anew: something did not stand where it should."""
        view = self._scan_all(self._segments())
        self._set(view)
        return view

    def _segments(self) -> tuple[int, ...]:
        try:
            names = os.listdir(self.folder)
        except (FileNotFoundError, NotADirectoryError):
            if self._root:  # the events that a fork took over stand within its folder
                refuse_when_away(self._root)
            raise SessionNotFoundError(session_id=self.session_id) from None
        self.floor = read_floor(self.folder)
        first = self.floor.segment if self.floor is not None else 0
        return tuple(sorted(n for name in names if (n := segment_number(name)) is not None and n >= first))

    def _is_of_floor(self, row: JsonObject) -> bool:
        """Return whether a head row was computed from the floor that the log now has."""
        return bool(row.get(FLOOR, 0) == (self.floor.number if self.floor is not None else 0))

    def _set(self, view: LogView) -> None:
        if self._fd >= 0 and (self.view is None or view.inode != self.view.inode):
            self.close_handle()
        self.view = view
        self._path = self.path(view.segment)
        self._next = self.path(view.segment + 1)

    def _grown(self, segments: tuple[int, ...]) -> LogView | None:
        view = self.view
        if view is None or not view.healthy or not view.segments or not self._is_of_floor(view.row):
            return None
        return self._from(view.segment, view.size, view.inode, view.row, segments)

    def _from_hint(self, segments: tuple[int, ...], hint: LogEntry) -> LogView | None:
        if hint.segment not in segments or not self._is_of_floor(hint.row):
            return None
        now = os.stat(self.path(hint.segment))
        if hint.segment == segments[-1] and now.st_size == hint.size and now.st_mtime_ns != hint.mtime_ns:
            return None
        self.offsets.clear()
        self.offsets.extend(hint.offsets)
        if hint.segment == segments[-1] and (now.st_size, now.st_ino) == (hint.size, hint.inode):
            if not self._ends_with(hint.segment, hint.size, hint.row):
                return None
            return LogView(segments, hint.size, hint.inode, hint.row, hint.healthy)
        if not hint.healthy:
            return None
        return self._from(hint.segment, hint.size, hint.inode, hint.row, segments)

    def _from(self, segment: int, size: int, inode: int, row: JsonObject, segments: tuple[int, ...]) -> LogView | None:
        """Return the view that reading on from a known end gives, or None when that end is not as it was."""
        if segment not in segments or not self._ends_with(segment, size, row):
            return None
        if os.stat(self.path(segment)).st_ino != inode:
            return None
        scan = LogScan(self.session_id, row=row)
        view = self._scan(scan, segments[segments.index(segment) :], start=size, all_segments=segments)
        return view if scan.healthy else None

    def _ends_with(self, segment: int, size: int, row: JsonObject) -> bool:
        if size == 0:  # above a floor the log may end with a segment that nothing was written to yet
            return not row.get("last_seq") or FLOOR in row
        with SegmentReader(self.path(segment)) as reader:
            if reader.size() < size or reader.bytes_at(size - 1, 1) != b"\n":
                return False
            last = next(reader.backwards(0, size, block_bytes=_ONE_LINE_BYTES), None)
        return last is not None and holds(last.data) and seq_of(last.data) == row.get("last_seq")

    def _scan_all(self, segments: tuple[int, ...]) -> LogView:
        self.offsets.clear()
        scan = LogScan(self.session_id, floor=self.floor)
        view = self._scan(scan, segments, start=0, all_segments=segments)
        if view.last_seq >= self.given_seq:
            return view
        return view._replace(row={**view.row, "last_seq": self.given_seq}, healthy=False, table=scan.sorted_places())

    def _scan(self, scan: LogScan, numbers: Sequence[int], *, start: int, all_segments: tuple[int, ...]) -> LogView:
        inode = 0
        if numbers:
            scan.end = (numbers[0], start)  # where nothing whole follows, the log ends where it ended before
        for number in numbers:
            with SegmentReader(self.path(number)) as reader:
                size = scan_segment(scan, reader, segment=number, start=start)
                inode = os.stat(self.path(number)).st_ino
            start = 0
            if number != numbers[-1]:
                scan.end_segment(number, size)
        if numbers:
            scan.finish(numbers[-1])
        self.offsets.extend(
            (seq, place.offset)
            for seq, place in zip(scan.seqs[-OFFSETS_KEPT:], scan.places[-OFFSETS_KEPT:], strict=True)
            if place.segment == numbers[-1]
        )
        self.scan = scan
        self.found_keys.extend(scan.keys)
        self.foreign = self.foreign or bool(scan.seqs)
        table = None if scan.healthy else scan.sorted_places()
        return LogView(all_segments, scan.end[1], inode, scan.row, scan.healthy, table)

    def entry(self) -> LogEntry:
        """Return what the index should remember. The caller holds the lock."""
        view = self.known
        mtime_ns = 0
        if view.segments:
            mtime_ns = os.fstat(self._fd).st_mtime_ns if self._fd >= 0 else os.stat(self._path).st_mtime_ns
        offsets = tuple(self.offsets)
        return LogEntry(self.session_id, view.segment, view.size, mtime_ns, view.inode, view.healthy, offsets, view.row)

    def damages(self) -> list[Damage]:
        """Return what a full scan finds, its torn tail included. The caller holds the lock."""
        segments = self._segments()
        scan = LogScan(self.session_id, floor=self.floor)
        view = self._scan(scan, segments, start=0, all_segments=segments)
        found = list(scan.damages)
        if scan.last_seq < self.given_seq:
            where = f"{self.session_id}/{segment_name(view.segment or 1)}"
            detail = f"{self.given_seq - scan.last_seq} missing at the end"
            found.append(Damage(self.session_id, "gap", where, view.size, 0, scan.last_seq + 1, detail))
        if segments:
            size = os.stat(self.path(segments[-1])).st_size
            if size > view.size:
                where = f"{self.session_id}/{segment_name(segments[-1])}"
                found.append(Damage(self.session_id, "torn", where, view.size, size - view.size))
        return found

    # -- changing --------------------------------------------------------------------------------------------------------

    def create(self, *, sync: bool) -> None:
        """Make the folder, its name durable."""
        if make_folder(self.folder) and sync:
            sync_folder(os.path.dirname(self.folder))

    def prepare(self, *, at: Callable[[], str], segment_bytes: int, sync: bool) -> None:
        """Make the end of the last segment one that can be appended to. The caller holds the lock and has refreshed.

        A torn tail goes to quarantine first, so that the next line does not glue to it. While the medium does not take what was
        acknowledged before, nothing more is.
        """
        view = self.known
        if self._acknowledged is not None and not self._is_plain_sync_enough(self._acknowledged):
            self.sync_written()
        clean, self._clean = self._clean, False
        if view.segments and not clean:
            self.ensure_handle()
            size = os.fstat(self._fd).st_size
            if self._cut is not None:
                os.ftruncate(self._fd, self._cut)
                size, self._cut = self._cut, None
            if size > view.size:
                self._move_tail(view.size, size, at=at(), sync=sync)
        if not view.segments or view.size >= segment_bytes:
            self._begin_segment(view, sync=sync)

    def begin_segment(self) -> None:
        """Go on in a new segment, durably. The caller holds the lock and has prepared."""
        self._begin_segment(self.known, sync=True)

    def look_anew(self) -> LogView:
        """Read the log whatever is known of it. The caller holds the lock; others read by the old view until there is a new one."""
        self.close_handle()
        try:
            return self.rescan()
        except BaseException:
            self.view = None
            raise

    def ensure_handle(self) -> None:
        """Open the last segment for writing unless it is open."""
        if self._fd < 0:
            self._fd = os.open(self._path, _APPEND)

    def remove_untouched(self) -> bool:
        """Remove the folder where it holds no byte of anybody, only a lock and empty segments; return whether it did."""
        names = set(os.listdir(self.folder)) - {"lock"}
        paths = [os.path.join(self.folder, name) for name in names]
        if any(segment_number(name) is None for name in names) or any(os.stat(path).st_size for path in paths):
            return False
        for path in (*paths, self.lock.path):
            remove_file(path)
        os.rmdir(self.folder)
        return True

    def _move_tail(self, start: int, end: int, *, at: str, sync: bool) -> None:
        name = segment_name(self.known.segment)
        with SegmentReader(self._path) as reader:
            data = reader.bytes_at(start, end - start)
        keep_aside(self.folder, name, offset=start, data=data, reason="torn", at=at, sync=sync)
        os.ftruncate(self._fd, start)
        if sync:
            os.fsync(self._fd)

    def _begin_segment(self, view: LogView, *, sync: bool) -> None:
        if self._acknowledged is not None:
            self.sync_written()  # no later event may be on the medium without the earlier ones
        number = view.segment + 1
        fd = os.open(self.path(number), _APPEND | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
        try:
            if sync:
                os.fsync(fd)
                sync_folder(self.folder)
            inode = os.fstat(fd).st_ino
        except BaseException:
            os.close(fd)
            raise
        self.close_handle()
        self.offsets.clear()
        self._set(view._replace(segments=(*view.segments, number), size=0, inode=inode))
        self._fd = fd

    def write(self, data: bytes) -> None:
        """Hand `data` to the system, or leave the file as it was. The caller holds the lock and has prepared."""
        try:
            write_all(self._fd, data)
        except BaseException:
            self.cut_back()
            raise

    def begin_sync(self, written: int) -> None:
        """Tell the system that what was just written will be synced, so that files are on their way side by side: a mere hint."""
        if hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError):
                os.posix_fadvise(self._fd, self.known.size, written, os.POSIX_FADV_DONTNEED)

    def sync(self) -> None:
        """Put everything written on the medium. A failure ends the handle: what a later sync says would mean nothing."""
        try:
            if self._is_doubtful and self._acknowledged is not None:
                self._acknowledged.write_again()
            os.fdatasync(self._fd)
        except BaseException:
            self._is_doubtful = True
            self.cut_back()
            self.close_handle()
            if self._cut is None:
                self.view = None
            raise
        self.foreign = False
        self._settle()

    def sync_written(self) -> None:
        """Put what a buffering store has written on the medium. Does not take back what was acknowledged.

        Raises: OSError, after which it is to be done again; BlockingIOError where somebody holds the lock that takes.
        """
        waiting = self._acknowledged
        if waiting is None:
            return  # what a commit has written and not kept yet is that one's to sync
        if self.lock.is_mine or self._is_plain_sync_enough(waiting):
            self._sync_acknowledged(waiting)
        else:
            with self.lock.held(wait_s=0):
                self._sync_acknowledged(waiting)

    def _sync_acknowledged(self, waiting: Unsynced) -> None:
        try:
            if self._is_plain_sync_enough(waiting):
                os.fdatasync(self._fd)
            else:
                waiting.write_again()
        except BaseException:
            self._is_doubtful = True
            self.close_handle()
            self.view = None
            raise
        if self._acknowledged is waiting:  # a commit in another thread may have added to it meanwhile
            self._settle()

    def _is_plain_sync_enough(self, waiting: Unsynced) -> bool:
        return self._fd >= 0 and waiting.path == self._path and not self._is_doubtful

    def _settle(self) -> None:
        self.unsynced, self._acknowledged, self._is_doubtful = 0, None, False

    def cut_back(self) -> None:
        """Remove what was written and not kept, now or, where that fails, before the next append."""
        if self._acknowledged is None:
            self.unsynced = 0
        try:
            os.ftruncate(self._fd, self.known.size)
        except OSError:
            self._cut = self.known.size

    def keep(self, row: JsonObject, *, written: int, places: Sequence[Place], first_seq: int) -> None:
        """Make what was written part of the log; `places` are those of the new lines."""
        view = self.known
        new = list(enumerate(places, first_seq))
        self.offsets.extend((seq, place.offset) for seq, place in new[-OFFSETS_KEPT:])
        if view.table is not None:
            view.table.extend(new)
        end = view.size + written
        self.view = view._replace(size=end, row=row)
        if self.unsynced:
            start = view.size if self._acknowledged is None else self._acknowledged.start
            self._acknowledged = Unsynced(self._path, view.inode, start, end)

    def close_handle(self) -> None:
        """Close the segment that is written."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with contextlib.suppress(OSError):
                os.close(fd)

    def close(self) -> None:
        """Close every file."""
        self.close_handle()
        self.lock.close()
