"""`StreamRedactor`: text that comes in pieces, without the secrets, whatever the pieces cut through."""

from __future__ import annotations

from kipu.security.redaction.finder import Span
from kipu.security.redaction.redactor import Redactor

_SEEN = 2_048  # bytes already handed out that still lead to what comes: names, boundaries, the head of a manifest
_LINE_REACH = 512  # bytes behind a word that leads to a secret, within which it has to begin
_TOKEN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_.~%-")
_BLOCK_RULES = ("private-key", "putty-private-key")
_BLOCK_END, _BLOCK_CLOSED = b"-----END", b"-----"


class StreamRedactor:
    """Take pieces, give back what can be shown; the rest is held back until it is known to be no secret.

    At most `hold` bytes are held back. A secret that goes on beyond them is replaced when they are full, and the rest of it is
    swallowed. What was given back, joined, holds no secret that lies within one `hold`.
    """

    def __init__(self, redactor: Redactor, *, hold: int = 4_096) -> None:
        self._redactor = redactor
        self._hold = max(hold, 256)
        self._seen = b""
        self._held = b""
        self._swallowing = ""  # the rule of a secret that is longer than can be held

    @property
    def held(self) -> int:
        """Return how many bytes are held back now."""
        return len(self._held)

    def feed(self, piece: str) -> str:
        """Take a piece and return the text that is safe now, maybe none."""
        self._held += piece.encode("utf-8", "surrogatepass")
        if self._swallowing:
            self._swallow()
        if not self._held or self._swallowing:
            return ""
        return self._give(final=False)

    def finish(self) -> str:
        """Return what is still held back: nothing follows it."""
        if self._swallowing:
            self._swallow()
        text = self._give(final=True) if self._held and not self._swallowing else ""
        self._held = b""
        self._seen, self._swallowing = b"", ""
        return text

    def _give(self, *, final: bool) -> str:
        data, base = self._seen + self._held, len(self._seen)
        spans = [span for span in self._redactor.spans(data) if span.end > base]
        cut = len(data) if final else self._cut(data, base, spans=spans)
        if not final and len(data) - cut > self._hold:
            cut = self._forced_cut(data, base, spans=spans)
        parts, at = [], base
        for span in spans:
            if span.start >= cut:
                break
            parts.append(data[at : max(span.start, at)])
            if span.start >= base:  # else it goes on from what was replaced when no more could be held
                secret = data[span.start : span.end].decode("utf-8", "replace")
                parts.append(self._redactor.replacement(span.rule, secret).encode())
            at = max(span.end, at)
        cut = max(cut, at)
        parts.append(data[at:cut])
        self._held = data[cut:]
        self._seen = data[max(0, cut - _SEEN) : cut]
        return b"".join(parts).decode("utf-8", "surrogatepass")

    def _cut(self, data: bytes, base: int, *, spans: list[Span]) -> int:
        """Return up to where nothing that follows can change what is a secret."""
        line = data.rfind(b"\n", base) + 1
        hold_from = min(_word_start(data, len(data)), _word_start(data, self._redactor.may_begin_at(data)))
        for at in self._redactor.leads(data[max(line, len(data) - _LINE_REACH, base) :]):
            hold_from = min(hold_from, _word_start(data, max(line, len(data) - _LINE_REACH, base) + at))
            break
        for opening in (b"-----BEGIN ", b"PuTTY-User-Key-File"):
            begun = data.rfind(opening, base)
            if begun >= 0 and not _is_ended(data, begun) and len(data) - begun <= self._hold:
                hold_from = min(hold_from, begun)
        for span in spans:
            if span.start < hold_from < span.end or span.end == len(data):
                hold_from = min(hold_from, span.start)
        return max(base, _character_start(data, hold_from))

    def _forced_cut(self, data: bytes, base: int, *, spans: list[Span]) -> int:
        """Return where to cut when no more can be held: behind a secret that may go on, or before the last few bytes."""
        if spans and spans[-1].end == len(data):
            self._swallowing = spans[-1].rule
            return len(data)
        cut = max(base, _character_start(data, len(data) - self._hold // 2))
        return min([cut, *(span.start for span in spans if span.start < cut < span.end)])

    def _swallow(self) -> None:
        """Drop what belongs to the secret that was replaced already."""
        if self._swallowing in _BLOCK_RULES:
            at = self._held.find(_BLOCK_END)
            end = self._held.find(_BLOCK_CLOSED, at + len(_BLOCK_END)) if at >= 0 else -1
            if end < 0:
                self._held = self._held[at:] if at >= 0 else self._held[-len(_BLOCK_END) :]
                return
            self._held = self._held[end + 5 :]
        else:
            at = next((at for at, byte in enumerate(self._held) if byte not in _TOKEN), len(self._held))
            self._held = self._held[at:]
            if not self._held:
                return
        self._swallowing, self._seen = "", b""


def _is_ended(data: bytes, begun: int) -> bool:
    """Return True where the line that ends a block is there whole: half of it would be shown beside what stands for the block."""
    at = data.find(_BLOCK_END, begun)
    return at >= 0 and _BLOCK_CLOSED in data[at + len(_BLOCK_END) :]


def _word_start(data: bytes, at: int) -> int:
    """Return where the word at a place begins."""
    at = max(0, at)
    return max(data.rfind(byte, 0, at) for byte in (b" ", b"\n", b"\t")) + 1


def _character_start(data: bytes, at: int) -> int:
    """Return the place at or before `at` where a character begins."""
    at = max(0, at)
    while 0 < at < len(data) and data[at] & 0xC0 == 0x80:
        at -= 1
    return at
