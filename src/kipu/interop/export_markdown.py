"""A session as a transcript in Markdown."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from kipu.interop.printable import printable, printable_line
from kipu.interop.transcript import Entry, Fold, entries, facts, title_of
from kipu.manager.access import Verb
from kipu.manager.session import Session
from kipu.ports.principal import Principal

if TYPE_CHECKING:
    from kipu.security.redaction.redactor import Redactor

_FENCE = re.compile(r" {0,3}(?P<fence>`{3,}|~{3,})(?P<info>.*)")
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|&!])")


async def export_markdown(
    session: Session, *, redactor: Redactor | None = None, principal: Principal | None = None
) -> AsyncIterator[bytes]:
    """Yield the transcript as UTF-8, entry by entry.

    Messages stand as quotations, so that nothing said in them can pass for the transcript's own headings; HTML in them is
    escaped, and control characters are written out. Arguments and results are folded code blocks.
    """
    await session.permit(Verb.READ, principal)
    head = session.head
    lines = [f"# {_inline(title_of(head, redactor=redactor))}", ""]
    lines += [f"- **{name}**: {_inline(value)}" for name, value in facts(head, redactor=redactor)]
    yield ("\n".join(lines) + "\n").encode()
    async for entry in entries(session, redactor=redactor, principal=principal):
        yield _entry(entry).encode()


def _entry(entry: Entry) -> str:
    time = entry.time.replace("T", " ").split(".")[0] + " UTC" if entry.time else ""
    if entry.role == "mark":
        return f"\n---\n\n*{_inline(entry.heading)}* · #{entry.seq} · {time}\n"
    parts = [f"\n### {_inline(entry.heading)}", f"<sub>#{entry.seq} · {time}</sub>"]
    if entry.text:
        parts.append(quoted(entry.text))
    parts += [_folded(fold) for fold in entry.folds]
    return "\n\n".join(parts) + "\n"


def _folded(fold: Fold) -> str:
    text = printable(fold.text.replace("\r\n", "\n"))
    mark = fence_for(text)
    return f"<details><summary>{_inline_html(fold.summary)}</summary>\n\n{mark}{fold.language}\n{text}\n{mark}\n\n</details>"


def fence_for(text: str) -> str:
    """Return a code fence that nothing in `text` can close."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    return "`" * max(3, longest + 1)


def quoted(text: str) -> str:
    """Return a message as a quotation, its Markdown kept and its HTML escaped, code blocks left as they are."""
    lines: list[str] = []
    fence = ""
    for line in printable(text.replace("\r\n", "\n")).split("\n"):
        found = _FENCE.fullmatch(line)
        if fence:
            if found and found["fence"].startswith(fence) and not found["info"].strip():
                fence = ""
            lines.append(line)
            continue
        opens = found is not None and not (found["fence"][0] == "`" and "`" in found["info"])
        if found is not None and opens:
            fence = found["fence"]
        lines.append(_without_html(line))
    if fence:
        lines.append(fence)
    return "\n".join(f"> {line}" if line else ">" for line in lines)


def _without_html(line: str) -> str:
    return line.replace("&", "&amp;").replace("<", "&lt;")


def _inline(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", printable_line(text))


def _inline_html(text: str) -> str:
    return printable_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
