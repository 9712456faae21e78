"""Secrets of Kubernetes as YAML text: every value below `data:` and `stringData:` is one, whatever it looks like."""

from __future__ import annotations

import re

ANCHOR = b"kind: Secret"
_REACH = 8_192
_BLOCK = re.compile(rb"^( *)(?:data|stringData):[ \t]*\r?\n", re.MULTILINE)
_ENTRY = re.compile(rb"( *)[\"']?[A-Za-z0-9._-]+[\"']?: *[\"']?([^\s\"'|>\[{][^\r\n\"']*)[\"']?[ \t]*\r?")
_END = re.compile(rb"^(?:---|\.\.\.)[ \t]*\r?$", re.MULTILINE)


def manifest_spans(data: bytes, at: int) -> list[tuple[int, int]]:
    """Return the values of the manifest around `at`, which says `kind: Secret`; one line may be asked for twice."""
    if data[at + 12 : at + 13] not in (b"", b"\n", b"\r", b" "):
        return []
    first, last = max(0, at - _REACH), min(len(data), at + _REACH)
    for end in _END.finditer(data, first, last):
        if end.start() < at:
            first = end.end()
        else:
            last = end.start()
            break
    return [span for block in _BLOCK.finditer(data, first, last) for span in _values(data, block, last=last)]


def _values(data: bytes, block: re.Match[bytes], *, last: int) -> list[tuple[int, int]]:
    indent, at, spans = len(block[1]), block.end(), []
    while at < last:
        end = data.find(b"\n", at, last)
        end = last if end < 0 else end
        entry = _ENTRY.fullmatch(data, at, end)
        if entry is None or len(entry[1]) <= indent:
            break
        spans.append(entry.span(2))
        at = end + 1
    return spans
