"""Times as stores write them: ISO 8601 UTC text with microseconds and `Z`, so that they sort as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def iso_from_us(microseconds: int) -> str:
    """Return the text of a time given in microseconds since 1970-01-01 UTC."""
    moment = _EPOCH + timedelta(microseconds=microseconds)
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def us_from_iso(text: str) -> int:
    """Return microseconds since 1970-01-01 UTC of a text that `iso_from_us` gave."""
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)
