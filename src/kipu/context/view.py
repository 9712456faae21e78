"""The rendered side of a live window: what was rendered once and cannot change, kept for the next time."""

from __future__ import annotations

from collections.abc import Sequence

from kipu.context.adjustment import Adjustment
from kipu.context.exchange import Exchange
from kipu.context.item import Item
from kipu.context.neutral import head_messages
from kipu.context.rendering import Compiled, Rendering, compile_for
from kipu.context.shape import Reader

_READERS_KEPT = 4


class WindowView:
    """Render exchanges that only grow at their end. A new view is made when anything before the end changes."""

    def __init__(self) -> None:
        self._compiled: dict[tuple[str, str | None, str | None], Compiled] = {}
        self._steady = 0  # so many exchanges cannot change any more
        self._tokens = 0
        self._count = 0

    def totals(self, exchanges: Sequence[Exchange]) -> tuple[int, int]:
        """Return what the exchanges cost, and how many messages they make where every result is one."""
        self._settle(exchanges)
        tokens, count = self._tokens, self._count
        for index in range(self._steady, len(exchanges)):
            tokens += exchanges[index].tokens
            count += exchanges[index].message_count
        return tokens, count

    def _settle(self, exchanges: Sequence[Exchange]) -> None:
        """Count the exchanges that cannot change any more, once each."""
        while self._steady < len(exchanges):
            exchange = exchanges[self._steady]
            if not exchange.settled:
                return
            self._tokens += exchange.tokens
            self._count += exchange.message_count
            self._steady += 1

    def forget(self, exchanges: Sequence[Exchange], count: int) -> bool:
        """Let go of what was rendered of the first `count` exchanges; return False where a new view must be made instead."""
        self._settle(exchanges)
        if self._steady < count:
            return False
        self._steady -= count
        self._tokens -= sum(exchange.tokens for exchange in exchanges[:count])
        self._count -= sum(exchange.message_count for exchange in exchanges[:count])
        kept = {key: compiled for key, compiled in self._compiled.items() if compiled.forget(count)}
        self._compiled = kept
        return True

    def render(
        self,
        target: str,
        reader: Reader,
        *,
        exchanges: Sequence[Exchange],
        head: tuple[Item | None, Item | None],
        adjustments: Sequence[Adjustment],
        shared: bool = False,
    ) -> Rendering:
        """Return the window for a reader. `head` is instruction and summary; `shared` messages are only to be read.

        Raises:
            InvalidQueryError: there is no such target.
        """
        # Media are not kept as base64: they would hold several times the memory of the log.
        keep = not reader.media or not any(exchange.media_count for exchange in exchanges)
        compiled = self._compiled_for(target, reader, exchanges=exchanges, head=head, keep=keep)
        messages, notes = compiled.finished(exchanges, shared=shared)
        fixed = sum(item.tokens for item in head if item is not None)
        return Rendering(
            target=target,
            messages=messages,
            payload=compiled.shape.payload(messages, _instruction_text(head[0])),
            adjustments=[*adjustments, *notes],
            tokens=fixed + self.totals(exchanges)[0],
            message_count=len(messages),
        )

    def digest(self, reader: Reader, *, exchanges: Sequence[Exchange], head: tuple[Item | None, Item | None]) -> str:
        """Return the digest of the neutral messages for a reader, whom no media are given."""
        return self._compiled_for("neutral", reader, exchanges=exchanges, head=head, keep=True).digest(exchanges)

    def _compiled_for(
        self,
        target: str,
        reader: Reader,
        *,
        exchanges: Sequence[Exchange],
        head: tuple[Item | None, Item | None],
        keep: bool,
    ) -> Compiled:
        """Return what is rendered for good of everything that cannot change any more."""
        key = (target, reader.provider, reader.model)
        compiled = self._compiled.get(key) if keep else None
        if compiled is None:
            compiled = compile_for(target, reader)
            compiled.start(head_messages(*head))
            if keep:
                while len(self._compiled) >= _READERS_KEPT:
                    del self._compiled[next(iter(self._compiled))]
                self._compiled[key] = compiled
        self._settle(exchanges)
        compiled.take(exchanges, until=self._steady)
        return compiled


def _instruction_text(instruction: Item | None) -> str | None:
    content = getattr(instruction.event, "content", None) if instruction is not None else None
    return content if isinstance(content, str) and content.strip() else None
