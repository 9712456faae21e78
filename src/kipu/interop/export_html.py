"""A session as one HTML page that needs nothing else and runs nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from html import escape
from typing import TYPE_CHECKING

from kipu.interop.printable import printable, printable_line
from kipu.interop.transcript import Entry, Fold, entries, facts, title_of
from kipu.manager.access import Verb
from kipu.manager.session import Session
from kipu.ports.principal import Principal

if TYPE_CHECKING:
    from kipu.security.redaction.redactor import Redactor

# No script, no request, no frame, no form: whatever the session says, the page can only be read.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
:root { color-scheme: light dark; --line: #d0d7de; --soft: #59636e; --user: #0969da; --agent: #1a7f37; --tool: #9a6700; }
@media (prefers-color-scheme: dark) {
  :root { --line: #3d444d; --soft: #9198a1; --user: #4493f8; --agent: #3fb950; --tool: #d29922; }
}
body { font: 16px/1.55 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
article { border-left: 3px solid var(--line); padding: .1rem 0 .1rem 1rem; margin: 1.2rem 0; }
article.user { border-color: var(--user); } article.agent { border-color: var(--agent); }
article.tool { border-color: var(--tool); }
h2 { font-size: 1rem; margin: 0; } time, .seq { color: var(--soft); font-weight: normal; font-size: .85rem; }
.text, pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .4rem 0; }
pre { font: 13px/1.45 ui-monospace, monospace; border: 1px solid var(--line); border-radius: 6px; padding: .6rem; }
summary { cursor: pointer; color: var(--soft); }
.mark { color: var(--soft); text-align: center; border-top: 1px solid var(--line); padding-top: .4rem; margin: 1.6rem 0; }
"""


async def export_html(
    session: Session, *, redactor: Redactor | None = None, principal: Principal | None = None
) -> AsyncIterator[bytes]:
    """Yield the page as UTF-8, entry by entry. All text is escaped and control characters are written out."""
    await session.permit(Verb.READ, principal)
    head = session.head
    title = _line(title_of(head, redactor=redactor))
    rows = "".join(f"<dt>{_line(name)}</dt><dd>{_line(value)}</dd>\n" for name, value in facts(head, redactor=redactor))
    yield (
        f'<!doctype html>\n<html lang="und">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f'<meta name="referrer" content="no-referrer">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<dl>\n{rows}</dl>\n"
    ).encode()
    async for entry in entries(session, redactor=redactor, principal=principal):
        yield _entry(entry).encode()
    yield b"</body>\n</html>\n"


def _entry(entry: Entry) -> str:
    time = _line(entry.time.replace("T", " ").split(".")[0] + " UTC") if entry.time else ""
    stamp = f'<span class="seq">#{entry.seq}</span> <time datetime="{_line(entry.time)}">{time}</time>'
    if entry.role == "mark":
        return f'<p class="mark">{_line(entry.heading)} {stamp}</p>\n'
    text = f'<div class="text" dir="auto">{_text(entry.text)}</div>\n' if entry.text else ""
    folds = "".join(_folded(fold) for fold in entry.folds)
    return f'<article class="{entry.role}" id="e{entry.seq}">\n<h2>{_line(entry.heading)} {stamp}</h2>\n{text}{folds}</article>\n'


def _folded(fold: Fold) -> str:
    return f"<details><summary>{_line(fold.summary)}</summary><pre>{_text(fold.text)}</pre></details>\n"


def _text(text: str) -> str:
    return escape(printable(text.replace("\r\n", "\n")))


def _line(text: str) -> str:
    return escape(printable_line(text))
