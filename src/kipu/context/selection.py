"""Where a window starts when it must become smaller (C9, A30–A33)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from kipu.context.exchange import Exchange
from kipu.context.policy import WindowPolicy


@dataclass(frozen=True, slots=True)
class Room:
    """How much of what is not tokens there may be from a window's start on, and what is taken by what stands before it."""

    messages: int
    media_count: int
    media_bytes: int
    taken_messages: int
    taken_media: int
    taken_bytes: int

    @classmethod
    def beside(cls, apart: Sequence[Exchange], policy: WindowPolicy) -> Room:
        """Return what `apart` leaves of the policy's bounds; where it takes more than the share of pins, what it should leave.

        Were it less, no start could ever be within the bounds, and the window would jump with every message (C9).
        """
        messages = sum(exchange.message_count for exchange in apart)
        media = sum(exchange.media_count for exchange in apart)
        size = sum(exchange.media_bytes for exchange in apart)

        def left(bound: int, taken: int) -> int:
            return bound - min(taken, int(bound * policy.pin_share))

        return cls(
            left(policy.max_messages, messages),
            left(policy.media_max_count, media),
            left(policy.media_max_total_bytes, size),
            taken_messages=messages,
            taken_media=media,
            taken_bytes=size,
        )


class Selection:
    """Choose a start among exchanges; `fixed_tokens` and all that `room` lacks are taken by what stays whatever the start is.

    `lead` is what stands before them and is shown to nobody, but is not parted either: what is pinned of it is kept whole.
    """

    def __init__(
        self,
        policy: WindowPolicy,
        exchanges: Sequence[Exchange],
        *,
        fixed_tokens: int,
        open_exchange: Exchange | None,
        room: Room,
        lead: Sequence[Exchange],
    ) -> None:
        self._policy = policy
        self._exchanges = exchanges
        self._fixed = fixed_tokens
        self._room = room
        # A cut behind an exchange that waits for results would make them orphans.
        self._last = exchanges.index(open_exchange) if open_exchange in exchanges else len(exchanges) - 1
        self._ends = list(accumulate(map(_last_seq, [*lead, *exchanges]), max))[len(lead) :]

    def low_water(self, *, after_seq: int = 0) -> int | None:
        """Return the index to start at so that the share `low_water` of every bound is in use, at a user message.

        The newest user message always stays; where what follows it is itself too much, the start lies within its turn
        and the message is kept before it. `after_seq` is a consolidation boundary: earlier exchanges are in memory.
        """
        best = self._longest_suffix()
        if best is not None:
            return max(best, self._first_user(after_seq) or 0)
        newest = self._newest_user()
        if newest is None:
            return self._within_turn(None)
        room = self._policy.max_tokens - self._fixed
        fits = self._cost(newest) <= room and self._fits_count(newest) and self._fits_media(newest)
        if fits and self._is_cut(newest):
            return newest
        return self._within_turn(newest)

    def from_seq(self, seq: int) -> int | None:
        """Return the index of the exchange that `seq` lies in or that comes after it, at its turn's user message if that leaves room."""
        if not self._exchanges:
            return None
        index = next((i for i, exchange in enumerate(self._exchanges) if _last_seq(exchange) >= seq), self._last)
        index = min(index, self._last)
        start = index
        while start > 0 and self._exchanges[start].kind != "user":
            start -= 1
        start = self._group_start(start)
        room = self._policy.max_tokens * self._policy.low_water - self._fixed
        if self._exchanges[start].kind == "user" and self._cost(start) <= room:
            return self._cut_up_to(start)
        return self._cut_up_to(index)

    def within_newest_turn(self) -> int | None:
        """Return where the window may start within the turn of the newest user message, which is kept before it."""
        return self._within_turn(self._newest_user())

    def _longest_suffix(self) -> int | None:
        room, share = self._room, self._policy.low_water
        max_tokens, max_count = self._policy.max_tokens * share, room.messages * share
        max_media, max_size = room.media_count * share, room.media_bytes * share
        tokens = self._fixed
        count = media = size = 0
        best = None
        for index in range(len(self._exchanges) - 1, -1, -1):
            exchange = self._exchanges[index]
            tokens += exchange.tokens
            count += exchange.message_count
            media += exchange.media_count
            size += exchange.media_bytes
            if tokens > max_tokens or count > max_count or media > max_media or size > max_size:
                break
            if exchange.kind == "user" and index <= self._last and self._is_cut(index):
                best = index
        return best

    def _first_user(self, after_seq: int) -> int | None:
        """Return the first user exchange behind a boundary, or the newest there is."""
        if not after_seq:
            return None
        for index, exchange in enumerate(self._exchanges[: self._last + 1]):
            if exchange.kind == "user" and exchange.seq > after_seq and self._is_cut(index):
                return index
        newest = self._newest_user()
        return None if newest is None else self._cut_up_to(newest)

    def _newest_user(self) -> int | None:
        for index in range(self._last, -1, -1):
            if self._exchanges[index].kind == "user":
                return self._group_start(index)
        return None

    def _group_start(self, index: int) -> int:
        """Return the first of the messages that one turn consumed together."""
        while index > 0 and self._exchanges[index - 1].seq == self._exchanges[index].seq:
            index -= 1
        return index

    def _within_turn(self, user: int | None) -> int | None:
        """Return the start of the longest suffix that leaves room for the user messages from `user` on, which are kept."""
        policy = self._policy
        kept = self._group(user)
        tokens = self._fixed + sum(exchange.tokens for exchange in kept)
        count = len(kept)
        start = self._last
        first = 0 if user is None else user + len(kept)
        media = self._within_media(kept, share=policy.low_water)
        for index in range(len(self._exchanges) - 1, first - 1, -1):
            exchange = self._exchanges[index]
            tokens += exchange.tokens
            count += exchange.message_count
            over = tokens > policy.max_tokens * policy.low_water or count > self._room.messages * policy.low_water
            if (not media(exchange) or over) and index < self._last:
                break
            if index <= self._last and self._is_cut(index):
                start = index
        return self._cut_up_to(start)

    def _within_media(self, stays: Sequence[Exchange], *, share: float) -> Callable[[Exchange], bool]:
        """Return what says of one more exchange whether a share of the room for media still holds.

        It always does where what stays is above that share already: no start would show any newer ones then.
        """
        left = self._room.media_count * share - sum(exchange.media_count for exchange in stays)
        bytes_left = self._room.media_bytes * share - sum(exchange.media_bytes for exchange in stays)
        if left <= 0 or bytes_left <= 0:
            return lambda _: True

        def fits(exchange: Exchange) -> bool:
            nonlocal left, bytes_left
            left -= exchange.media_count
            bytes_left -= exchange.media_bytes
            return left >= 0 and bytes_left >= 0

        return fits

    def _is_cut(self, index: int) -> bool:
        """Say whether everything from `index` on, and nothing else, has events from its `first_seq` on.

        A message that came between a call and its result is none: what the answer still got would be parted from it.
        """
        return index == 0 or self._ends[index - 1] < self._exchanges[index].first_seq

    def _cut_up_to(self, index: int) -> int:
        """Return the last place up to `index` where no exchange is cut."""
        return next(i for i in range(index, -1, -1) if self._is_cut(i))

    def _group(self, user: int | None) -> Sequence[Exchange]:
        if user is None:
            return ()
        seq = self._exchanges[user].seq
        return [exchange for exchange in self._exchanges[user:] if exchange.seq == seq]

    def _cost(self, index: int) -> int:
        return sum(exchange.tokens for exchange in self._exchanges[index:])

    def _fits_media(self, user: int) -> bool:
        kept = self._group(user)
        media = self._within_media(kept, share=1.0)
        return all(media(exchange) for exchange in self._exchanges[user + len(kept) :])

    def _fits_count(self, index: int) -> bool:
        return sum(exchange.message_count for exchange in self._exchanges[index:]) <= self._room.messages


def _last_seq(exchange: Exchange) -> int:
    if not exchange.calls:
        return exchange.seq
    return max([exchange.seq, *(item.seq for item in exchange.items())])
