"""Checks of inline media: base64, media types, sizes."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection

from kipu.testing.validators.violation import Findings

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})

_DATA_URL = re.compile(r"data:(?P<type>[\w.+-]+/[\w.+-]+)(?:;[\w=.+-]+)*?;base64,(?P<data>.*)", re.DOTALL)
_MEDIA_TYPE = re.compile(r"[a-z]+/[a-z0-9.+-]+")


def check_base64(findings: Findings, value: object, *, path: str, max_bytes: int) -> int:
    """Report data that is not strict base64, is empty or too large; return its decoded size in bytes."""
    text = findings.string(value, path)
    if text is None:
        return 0
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        findings.add("media_base64", path, message="is not base64 with padding and without line breaks")
        return 0
    if not data:
        findings.add("media_empty", path, message="holds no data")
    if len(data) > max_bytes:
        findings.add("media_size", path, message=f"{len(data)} bytes are more than {max_bytes}")
    return len(data)


def check_media_type(findings: Findings, value: object, *, path: str, among: Collection[str] | None) -> None:
    """Report a media type that is malformed or, when `among` is given, not in it."""
    text = value if isinstance(value, str) else ""
    known = text in among if among is not None else _MEDIA_TYPE.fullmatch(text)
    if not known:
        listed = f"one of {sorted(among)}" if among is not None else "a media type"
        findings.add("media_type", path, message=f"{value!r} is not {listed}")


def check_url(
    findings: Findings, value: object, *, path: str, data_types: Collection[str] | None, max_bytes: int
) -> None:
    """Report an URL that is neither http(s) nor a base64 data URL of an accepted type."""
    url = findings.string(value, path)
    if url is None:
        return
    if url.startswith(("https://", "http://")):
        return
    match = _DATA_URL.fullmatch(url)
    if match is None:
        findings.add("media_url", path, message="is neither an http(s) URL nor a base64 data URL")
        return
    check_media_type(findings, match["type"], path=path, among=data_types)
    check_base64(findings, match["data"], path=path, max_bytes=max_bytes)
