"""A file's bytes as text and back, so that nothing but what is meant changes."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

Encoding: TypeAlias = Literal["utf-8", "utf-16-le", "utf-16-be", "latin-1"]

_MARKS: tuple[tuple[bytes, Encoding], ...] = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_UTF32_MARKS = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


@dataclass(frozen=True, slots=True)
class TextFile:
    """The text of a file, its encoding, and the mark it begins with. `encoded` gives the same bytes again."""

    text: str
    encoding: Encoding = "utf-8"
    mark: bytes = b""

    @classmethod
    def decode(cls, data: bytes, *, is_cut: bool = False) -> TextFile | None:
        """Return the text, or None for what is no text. `is_cut` data may end in the middle of a character."""
        if data.startswith(_UTF32_MARKS):
            return None
        for mark, encoding in _MARKS:
            if data.startswith(mark):
                text = _decoded(data[len(mark) :], encoding, is_cut=is_cut)
                return None if text is None or "\0" in text else cls(text, encoding, mark)
        if b"\0" in data:
            return None
        text = _decoded(data, "utf-8", is_cut=is_cut)
        return cls(data.decode("latin-1"), "latin-1") if text is None else cls(text)

    def encoded(self) -> bytes:
        """Return the bytes of the file. Raises: UnicodeEncodeError (the encoding cannot say a character)."""
        return self.mark + self.text.encode(self.encoding)

    def with_text(self, text: str) -> TextFile:
        """Return a file of the same kind with another text."""
        return replace(self, text=text)

    @property
    def newline(self) -> str:
        r"""Return the line ending that most lines have: `\n` or `\r\n`."""
        windows = self.text.count("\r\n")
        return "\r\n" if windows * 2 > self.text.count("\n") else "\n"

    def remarks(self) -> list[str]:
        """Return what a reader should know: another encoding than UTF-8, line endings of Windows or of both kinds."""
        remarks = []
        if self.encoding == "latin-1":
            remarks.append("not UTF-8: read as Latin-1, so that letters beyond ASCII may be others")
        elif self.encoding != "utf-8":
            remarks.append(f"encoding {self.encoding.upper()}")
        windows, lines = self.text.count("\r\n"), self.text.count("\n")
        if windows:
            remarks.append(
                "CRLF line endings" if windows == lines else f"mixed line endings: {windows} of {lines} CRLF"
            )
        return remarks


def _decoded(data: bytes, encoding: Encoding, *, is_cut: bool) -> str | None:
    try:
        return codecs.getincrementaldecoder(encoding)("strict").decode(data, not is_cut)
    except UnicodeDecodeError:
        return None


def image_type(data: bytes) -> str | None:
    """Return the media type of an image that models take, by its first bytes."""
    for magic, kind in _IMAGES:
        if data.startswith(magic):
            return kind
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


def binary_kind(data: bytes) -> str:
    """Return what sort of binary file this seems to be, in words."""
    kinds = (
        (b"%PDF", "a PDF document"),
        (b"PK\x03\x04", "a ZIP archive or an office document"),
        (b"\x1f\x8b", "gzip data"),
        (b"\x7fELF", "an ELF program or library"),
        (b"SQLite format 3\x00", "an SQLite database"),
        *((mark, "text in UTF-32") for mark in _UTF32_MARKS),
    )
    return next((kind for magic, kind in kinds if data.startswith(magic)), "binary data")
