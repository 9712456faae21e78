"""Markdown as a chat shows it: headings on the left, code without a background. Loaded when the first answer is drawn."""

from __future__ import annotations

from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.segment import Segment
from rich.syntax import Syntax
from rich.text import Text

CODE_THEME = "ansi_dark"


class _LeftHeading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text: Text = self.text
        text.justify = "left"
        text.stylize("bold underline" if self.tag in ("h1", "h2") else "bold")
        yield text


class _PlainCode(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        yield Syntax(
            code, self.lexer_name, theme=self.theme, word_wrap=True, padding=(0, 2), background_color="default"
        )


class _AnswerMarkdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
        "fence": _PlainCode,
        "code_block": _PlainCode,
    }


class AnswerText:
    """Draw text as Markdown, without the spaces that fill its lines: what is copied from the screen has none then."""

    def __init__(self, text: str) -> None:
        self._markdown = _AnswerMarkdown(text, code_theme=CODE_THEME)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in console.render_lines(self._markdown, options, pad=False):
            segments = list(line)
            while segments and not segments[-1].text.strip():
                segments.pop()
            if segments:
                last = segments[-1]
                segments[-1] = Segment(last.text.rstrip(), last.style, last.control)
            yield from segments
            yield Segment.line()
