"""Pages of one session's events, found by halving, from the end, or by a table where the log is damaged."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from kipu.errors import StoreCorruptError
from kipu.ports.store import StoredEvent
from kipu.stores.jsonl.line import parse, seq_of
from kipu.stores.jsonl.log import LogView, SessionLog
from kipu.stores.jsonl.scan import Place
from kipu.stores.jsonl.segment import Raw, SegmentReader


class PageReader:
    """Read pages of a view. Remembers the beginnings of segments and where the last page ended."""

    def __init__(self, log: SessionLog) -> None:
        self._log = log
        self._first: dict[int, int] = {}
        self._left_off: tuple[int, int, int] = (0, 0, 0)  # seq, segment, offset

    def page(self, view: LogView, *, after: int, until: int, limit: int, backwards: bool) -> list[StoredEvent]:
        """Return at most `limit` events with after < seq <= until.

        Raises:
            StoreCorruptError: a line is not where a whole log has it, and the view has no table of all lines.
        """
        until = min(until, view.last_seq)
        if until <= after or not view.segments:
            return []
        if view.table is not None:
            return self._by_table(view.table, after=after, until=until, limit=limit, backwards=backwards)
        if not view.healthy:
            raise self._out_of_order()
        if backwards:
            return self._newest(view, after=after, until=until, limit=limit)
        return self._oldest(view, after=after, until=until, limit=limit)

    def _oldest(self, view: LogView, *, after: int, until: int, limit: int) -> list[StoredEvent]:
        events: list[StoredEvent] = []
        expected = max(after, _floor(view)) + 1
        until = min(until, expected + limit - 1)
        if until < expected:
            return []
        segment, offset = self._find(view, expected)
        for number in view.segments[view.segments.index(segment) :]:
            with SegmentReader(self._log.path(number)) as reader:
                for raw in reader.forwards(offset, self._end(view, number, reader)):
                    events.append(self._event(raw, expected))
                    self._left_off = (expected + 1, number, raw.offset + len(raw.data) + 1)
                    expected += 1
                    if expected > until:
                        return events
            offset = 0
        raise self._out_of_order()

    def _newest(self, view: LogView, *, after: int, until: int, limit: int) -> list[StoredEvent]:
        events: list[StoredEvent] = []
        after = max(after, _floor(view), until - limit)
        expected = until
        if expected <= after:
            return []
        for raw in self._backwards(view, until):
            events.append(self._event(raw, expected))
            expected -= 1
            if expected <= after:
                return events
        raise self._out_of_order()

    def _backwards(self, view: LogView, until: int) -> Iterator[Raw]:
        if until >= view.last_seq:
            segment, end = view.segment, view.size
        else:
            segment, end = self._find(view, until + 1)
        for number in reversed(view.segments[: view.segments.index(segment) + 1]):
            with SegmentReader(self._log.path(number)) as reader:
                limit = end if number == segment else self._end(view, number, reader)
                yield from reader.backwards(0, limit)

    def _event(self, raw: Raw, expected: int) -> StoredEvent:
        line = parse(raw.data)
        if line is None or line.seq != expected or line.meta["session_id"] != self._log.session_id:
            raise self._out_of_order()
        return line.event(self._log.session_id)

    def _out_of_order(self) -> StoreCorruptError:
        return StoreCorruptError(store=self._log.folder, reason="a line is not where it should be")

    def _find(self, view: LogView, seq: int) -> tuple[int, int]:
        """Return segment and offset of a line that the view has."""
        if self._left_off[0] == seq and self._left_off[1] in view.segments:
            return self._left_off[1:]
        known = dict(self._log.offsets)
        if seq in known:
            return view.segment, known[seq]
        starts = view.segments
        low, high = 0, len(starts)
        while high - low > 1:
            middle = (low + high) // 2
            if self._first_seq(view, starts[middle]) <= seq:
                low = middle
            else:
                high = middle
        number = starts[low]
        with SegmentReader(self._log.path(number)) as reader:
            offset = reader.seek(seq, self._end(view, number, reader))
        if offset is None:
            raise self._out_of_order()
        return number, offset

    def _first_seq(self, view: LogView, number: int) -> int:
        """Return the first seq that stands in a segment or behind it: a floor may leave an empty segment between others (JL-30)."""
        for later in view.segments[view.segments.index(number) :]:
            if later not in self._first:
                with SegmentReader(self._log.path(later)) as reader:
                    first = next(reader.forwards(0, self._end(view, later, reader)), None)
                if first is None:
                    continue
                self._first[later] = seq_of(first.data)
            return self._first[later]
        return view.last_seq + 1

    def _end(self, view: LogView, number: int, reader: SegmentReader) -> int:
        return view.size if number == view.segment else reader.size()

    def _by_table(
        self, table: list[tuple[int, Place]], *, after: int, until: int, limit: int, backwards: bool
    ) -> list[StoredEvent]:
        low = bisect_right(table, after, key=lambda entry: entry[0])
        high = bisect_right(table, until, key=lambda entry: entry[0])
        chosen = table[max(low, high - limit) : high][::-1] if backwards else table[low : min(high, low + limit)]
        readers: dict[int, SegmentReader] = {}
        events = []
        try:
            for seq, place in chosen:
                if place.segment not in readers:
                    readers[place.segment] = SegmentReader(self._log.path(place.segment))
                line = parse(readers[place.segment].bytes_at(place.offset, place.size))
                if line is not None and line.seq == seq:
                    events.append(line.event(self._log.session_id))
        finally:
            for reader in readers.values():
                reader.close()
        return events


def _floor(view: LogView) -> int:
    """Return the seq behind which the segments begin: what a fork shares, or has taken over, stands elsewhere."""
    base_seq: int = view.row.get("base_seq", 0)
    shared_seq: int = view.row.get("shared_seq", 0)
    away: int = max(view.row.get("offloaded_seq", 0), view.row.get("returned_seq", 0))
    return max(base_seq, shared_seq, away)
