"""The envelope every event has, and how fields are declared."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, StrictBool

ENVELOPE_FIELDS = (
    "seq",
    "event_id",
    "event_type",
    "timestamp",
    "session_id",
    "turn_id",
    "trace_id",
    "principal",
    "v",
)
ENVELOPE = frozenset(ENVELOPE_FIELDS)

UtcDatetime = Annotated[AwareDatetime, AfterValidator(lambda moment: moment.astimezone(UTC))]
Seq = Annotated[int, Field(ge=0, strict=True)]
Flag = StrictBool


class SessionEvent(BaseModel):
    """One thing that happened in a session (B10).

    A program gives the body; `event_id`, `timestamp` and `session_id` may be left out and are filled in when the event is
    added, and `seq` is always the store's (C1). Events are frozen: history is not changed (A26).
    """

    model_config = ConfigDict(frozen=True, extra="allow", ser_json_bytes="base64")

    VERSION: ClassVar[int] = 1

    seq: Seq = 0
    event_id: str = ""
    event_type: str
    timestamp: UtcDatetime | None = None
    session_id: str = ""
    turn_id: str | None = None
    trace_id: str | None = None
    principal: str | None = None
    v: int = 1
    normalised: list[dict[str, Any]] | None = None  # what write-time normalisation changed, and from what


def utc_text(moment: datetime) -> str:
    """Return ISO 8601 UTC text with microseconds and `Z`; such texts sort as the times they mean (B18)."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def utc_text_us(unix_us: int) -> str:
    """Return `utc_text` of microseconds since 1970."""
    seconds, micros = divmod(unix_us, 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{micros:06d}Z"
