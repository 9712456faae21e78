"""A piece of what streams: where it belongs, from which character on, and how it travels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import orjson

Kind: TypeAlias = Literal["text", "reasoning", "output"]
Part: TypeAlias = tuple[Kind, str]
_SHORT: dict[Kind, str] = {"text": "t", "reasoning": "r", "output": "o"}
_LONG: dict[Any, Kind] = {short: kind for kind, short in _SHORT.items()}


@dataclass(frozen=True, slots=True)
class Piece:
    """Some characters of one stream: a try at an answer or, with `call_id`, what a call prints.

    The stream began behind the event `at` under the fencing `token`, and is named `stream`: who runs it, and which of theirs it
    is. `offset` counts the characters before this piece. With `ended` no more come. A piece with `retry` has no characters: the
    answer is asked for again.
    """

    session_id: str
    turn_id: str
    call_id: str | None
    stream: tuple[str, int]
    at: int
    token: int
    offset: int = 0
    parts: tuple[Part, ...] = ()
    ended: bool = False
    retry: tuple[str, float] | None = None

    @property
    def length(self) -> int:
        """Return how many characters it holds."""
        return sum(len(text) for _, text in self.parts)

    def after(self, offset: int) -> tuple[Part, ...]:
        """Return what of it comes behind so many characters of the stream."""
        return tuple(_behind(self.parts, offset - self.offset))


def _behind(parts: tuple[Part, ...], skip: int) -> Iterator[Part]:
    for kind, text in parts:
        if skip < len(text):
            yield kind, text[max(skip, 0) :]
        skip -= len(text)


def joined(parts: list[Part]) -> tuple[Part, ...]:
    """Return the parts with neighbours of one kind as one."""
    found: list[tuple[Kind, list[str]]] = []
    for kind, text in parts:
        if found and found[-1][0] == kind:
            found[-1][1].append(text)
        else:
            found.append((kind, [text]))
    return tuple((kind, "".join(texts)) for kind, texts in found)


def encoded(piece: Piece) -> bytes:
    """Return the piece as it travels."""
    short: dict[str, Any] = {
        "s": piece.session_id,
        "t": piece.turn_id,
        "n": piece.stream,
        "a": piece.at,
        "k": piece.token,
        "o": piece.offset,
        "p": [(_SHORT[kind], text) for kind, text in piece.parts],
    }
    if piece.call_id is not None:
        short["c"] = piece.call_id
    if piece.ended:
        short["e"] = True
    if piece.retry is not None:
        short["y"] = piece.retry
    return orjson.dumps(short)


def decoded(data: bytes) -> Piece | None:
    """Return the piece, or None for what is none."""
    try:
        short = orjson.loads(data)
        name, number = short["n"]
        retry = short.get("y")
        return Piece(
            str(short["s"]),
            str(short["t"]),
            short.get("c"),
            (str(name), int(number)),
            at=int(short["a"]),
            token=int(short["k"]),
            offset=int(short["o"]),
            parts=tuple((_LONG[kind], str(text)) for kind, text in short["p"]),
            ended=bool(short.get("e")),
            retry=None if retry is None else (str(retry[0]), float(retry[1])),
        )
    except (ValueError, KeyError, TypeError, IndexError):
        return None


def cut(piece: Piece, *, most_bytes: int, measure: Callable[[Piece], bytes] = encoded) -> Iterator[bytes]:
    """Yield the piece as it travels, in as many pieces as it needs for each to be short enough."""
    data = measure(piece)
    if len(data) <= most_bytes:
        yield data
        return
    half = piece.length // 2
    if half == 0:  # a name that is too long
        return
    first = replace(piece, parts=tuple(_before(piece.parts, half)), ended=False)
    rest = replace(piece, offset=piece.offset + half, parts=piece.after(piece.offset + half))
    yield from cut(first, most_bytes=most_bytes, measure=measure)
    yield from cut(rest, most_bytes=most_bytes, measure=measure)


def _before(parts: tuple[Part, ...], length: int) -> Iterator[Part]:
    for kind, text in parts:
        if length <= 0:
            return
        yield kind, text[:length]
        length -= len(text)
