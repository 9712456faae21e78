"""The log read line by line: what exists, what is damaged, where its end is, and the head that its patches make."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

from kipu.ports.head import EMPTY_PATCH, HeadPatch, JsonObject, apply_patch
from kipu.ports.store import Damage
from kipu.stores.jsonl.line import BOM, Bound, Line, pieces
from kipu.stores.jsonl.segment import Raw, SegmentReader, segment_name

if TYPE_CHECKING:
    from kipu.stores.jsonl.floor import Floor

OFFSETS_KEPT = 8


class KeyPlace(NamedTuple):
    """An idempotency key and the batch that carries it."""

    key: str
    first_seq: int
    last_seq: int
    timestamp: str


class Place(NamedTuple):
    """Where a line stands."""

    segment: int
    offset: int
    size: int  # without its end


class LogScan:
    """Take in a session's physical lines in file order, from the beginning, from the log's floor or from a known place on.

    A line exists when its end and its checksum hold and nothing with its seq stands before it. A damaged one hides only
    itself. What does not stand in order is read in order of `seq`, and reported.
    """

    def __init__(self, session_id: str, *, row: JsonObject | None = None, floor: Floor | None = None) -> None:
        self.session_id = session_id
        since_start = row is None
        if floor is not None:
            row = floor.row
        self.row: JsonObject = dict(row) if row else {"session_id": session_id}
        self.last_seq: int = self.row.get("last_seq", 0)
        self.seqs = array("Q")
        self.places: list[Place] = []
        self.keys: list[KeyPlace] = list(floor.keys) if floor is not None else []
        self.bounds: list[tuple[Bound, int]] = []
        self.damages: list[Damage] = []
        self.disordered = False
        self.lines_seen = 0
        self.end = (0, 0)  # segment and offset behind the last whole batch or damaged line
        self._since_start = since_start
        self._jumped = False
        # The own seqs begin behind it; None where reading did not begin at the beginning, or that is not known yet.
        self._base_seq: int | None = self.last_seq if floor is not None else None
        self._known: set[int] | None = None
        self._open: list[tuple[int, Line, Place]] = []

    @property
    def healthy(self) -> bool:
        """Return True when the lines can be found by halving: all there, all in order."""
        return not self.damages and not self.disordered

    def take(self, segment: int, raw: Raw) -> None:
        """Take in one ended line."""
        self.lines_seen += 1
        data = raw.data
        if not data or data == BOM:
            self.end = (segment, raw.offset + len(data) + 1) if not self._open else self.end
            self.disordered = True
            return
        found = pieces(data)
        for piece in found:
            place = Place(segment, raw.offset + piece.start, len(piece.raw))
            if piece.line is None:
                self._reject(place, reason="checksum" if piece.raw.startswith(b"{") else "json")
            elif piece.line.meta.get("session_id") != self.session_id:
                self._reject(place, reason="foreign", seq=piece.line.seq)
            else:
                self._accept(piece.line, place)
        self.disordered = self.disordered or len(found) > 1 or data.startswith(BOM)
        if not self._open:
            self.end = (segment, raw.offset + len(data) + 1)

    def _reject(self, place: Place, *, reason: str, seq: int | None = None) -> None:
        self._flush_open()
        where = f"{self.session_id}/{segment_name(place.segment)}"
        self.damages.append(Damage(self.session_id, reason, where, place.offset, place.size, seq))

    def _accept(self, line: Line, place: Place) -> None:
        index, _ = line.place
        if index == 1:
            self._flush_open()
        self._open.append((line.seq, line, place))
        if index == line.place[1]:
            self._close(line)

    def _flush_open(self) -> None:
        """Keep the lines of a batch whose last line is damaged: they exist, its patch is lost."""
        if self._open:
            self._close(None)

    def _close(self, last: Line | None) -> None:
        batch, self._open = self._open, []
        first_seq = batch[-1][0] - last.place[1] + 1 if last else batch[0][0]
        patch = self._patch(last, batch[-1][2])
        if not self.seqs and self._since_start and not self.last_seq:
            self.last_seq = patch.set.get("base_seq", batch[0][0] - 1 if self.damages else 0)
            self._base_seq = self.last_seq
        kept = [entry for entry in batch if self._orders(entry[0], entry[2])]
        if not kept:
            return
        before = self.last_seq
        self.last_seq = max(before, kept[-1][0])
        for seq, _, place in kept:
            self.seqs.append(seq)
            self.places.append(place)
        times = [line.meta["timestamp"] for _, line, _ in kept]
        tokens = sum(line.meta.get("n", 0) for _, line, _ in kept)
        self.row = apply_patch(self.row, patch, first_seq=first_seq, timestamps=times, tokens=tokens)
        self.row["last_seq"] = self.last_seq
        if last is not None:
            self._note(last, first_seq)

    def _orders(self, seq: int, place: Place) -> bool:
        """Return False for a seq that is there already; report one that stands too late."""
        where = f"{self.session_id}/{segment_name(place.segment)}"
        before = max(self.last_seq, self.seqs[-1] if self.seqs else 0)
        if seq > before:
            self._jumped = self._jumped or seq > before + 1
            self.last_seq = seq
            return True
        self.disordered = True
        if self._known is None:
            self._known = set(self.seqs)
        twice = seq in self._known or not self._since_start
        self._known.add(seq)
        reason = "duplicate" if twice else "order"
        self.damages.append(Damage(self.session_id, reason, where, place.offset, place.size, seq))
        return not twice

    def _patch(self, last: Line | None, place: Place) -> HeadPatch:
        data: Any = last.meta.get("head") if last else None
        if not data:
            return EMPTY_PATCH
        try:
            return HeadPatch.from_json(data)
        except TypeError:
            where = f"{self.session_id}/{segment_name(place.segment)}"
            detail = "a patch of a newer version"
            self.damages.append(Damage(self.session_id, "json", where, place.offset, place.size, detail=detail))
            return EMPTY_PATCH

    def _note(self, last: Line, first_seq: int) -> None:
        key = last.meta.get("retry")
        if isinstance(key, str):
            self.keys.append(KeyPlace(key, first_seq, last.seq, last.meta["timestamp"]))
        bound = last.meta.get("bind")
        if isinstance(bound, list) and len(bound) == 3:
            self.bounds.append((Bound(*bound), last.seq))

    def end_segment(self, segment: int, size: int) -> None:
        """Say that a segment ends that is not the last: what has no end there will never get one."""
        if self.end[0] == segment and not self._open and self.end[1] < size:
            self._reject(Place(segment, self.end[1], size - self.end[1]), reason="torn")

    def finish(self, segment: int) -> None:
        """Say that the log ends here. What stands behind `end` and is no whole batch is its torn tail.

        A batch whose last line is missing is torn with it, but only where nothing ended stands behind it.
        """
        self._open.clear()
        if self.end[0] != segment:
            self.end = (segment, 0)
        if self._jumped:
            self._report_gaps()

    def _report_gaps(self) -> None:
        before = self._base_seq
        for seq, place in self.sorted_places():
            if before is not None and seq > before + 1:
                where = f"{self.session_id}/{segment_name(place.segment)}"
                detail = f"{seq - before - 1} missing before {seq}"
                self.damages.append(Damage(self.session_id, "gap", where, place.offset, 0, before + 1, detail))
            before = seq

    def sorted_places(self) -> list[tuple[int, Place]]:
        """Return every line that exists in order of seq, the first of each."""
        first: dict[int, Place] = {}
        for seq, place in zip(self.seqs, self.places, strict=True):
            first.setdefault(seq, place)
        return sorted(first.items())


def scan_segment(scan: LogScan, reader: SegmentReader, *, segment: int, start: int = 0) -> int:
    """Feed a segment's ended lines to `scan`; return the size that was looked at."""
    size = reader.size()
    for raw in reader.forwards(start, size):
        scan.take(segment, raw)
    return size
