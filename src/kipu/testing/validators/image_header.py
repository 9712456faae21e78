"""What the first bytes of a picture say of its type and size, which providers compare with what is declared."""

from __future__ import annotations

import base64
import binascii
import struct
from dataclasses import dataclass

_JPEG_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """Hold a picture's real media type and, where its header is plain, its size in pixels."""

    media_type: str
    width: int = 0
    height: int = 0


def read_image_header(text: str) -> ImageHeader | None:
    """Return the header of a picture given in base64, or None when its type is not recognised."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return ImageHeader("image/png", *_unpack(">II", data, offset=16))
    if data.startswith((b"GIF87a", b"GIF89a")):
        return ImageHeader("image/gif", *_unpack("<HH", data, offset=6))
    if data.startswith(b"\xff\xd8\xff"):
        return ImageHeader("image/jpeg", *_jpeg_size(data))
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return ImageHeader("image/webp")
    return None


def _unpack(form: str, data: bytes, *, offset: int) -> tuple[int, int]:
    if len(data) < offset + struct.calcsize(form):
        return (0, 0)
    first, second = struct.unpack_from(form, data, offset)
    return int(first), int(second)


def _jpeg_size(data: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in _JPEG_FRAMES:
            height, width = _unpack(">HH", data, offset=at + 5)
            return width, height
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return (0, 0)
