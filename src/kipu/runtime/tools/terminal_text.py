"""Text as a model should read it: without what only steers a terminal."""

from __future__ import annotations

import re
from typing import Any

# Colours, cursor moves, titles and hyperlinks, each whole. An unfinished string (OSC, DCS, …) costs its introducer only:
# what follows it may be all there is.
_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]?"
    r"|\x9b[0-?]*[ -/]*[@-~]"
    r"|\x1b\][^\x07\x1b\x9c\n]{0,4096}(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[PX^_][^\x1b\x9c\n]{0,4096}(?:\x1b\\|\x9c)"
    r"|\x1b[\]PX^_]"
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SURROGATE = re.compile("[\ud800-\udfff]")
MAX_DEPTH = 64


def model_text(text: str) -> str:
    r"""Return `text` without ANSI sequences and control characters; of a line that overwrote itself the last state stays.

    Line breaks become `\n`, tabs stay, both halves of a character that came apart are joined, a lone half becomes U+FFFD.

    >>> model_text("\x1b[32mok\x1b[0m 10%\r20%\r\n")
    '20%\n'
    """
    if text.isascii() and text.isprintable():
        return text
    if _SURROGATE.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    text = _SEQUENCE.sub("", text)
    if "\r" in text:
        text = "\n".join(_last_state(line) if "\r" in line else line for line in text.split("\n"))
    return _CONTROL.sub("", text)


def _last_state(line: str) -> str:
    return next((state for state in reversed(line.split("\r")) if state), "")


def model_value(value: Any, *, depth: int = 0) -> Any:
    """Return JSON with every text in it as `model_text` gives it; what lies deeper than 64 levels is left out."""
    if isinstance(value, str):
        return model_text(value)
    if not isinstance(value, dict | list | tuple):
        return value
    if depth >= MAX_DEPTH:
        return "[nested too deeply]"
    if isinstance(value, dict):
        cleaned: dict[str, Any] = {}
        for name, item in value.items():
            key = model_text(str(name))
            while key in cleaned:  # two names may differ in a control character only
                key += "'"
            cleaned[key] = model_value(item, depth=depth + 1)
        return cleaned
    return [model_value(item, depth=depth + 1) for item in value]


def visible_controls(text: str) -> str:
    r"""Return the text of a file with its control characters written out, such as `\x1b`; line breaks and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return _CONTROL.sub(lambda found: f"\\x{ord(found.group()):02x}", text)
