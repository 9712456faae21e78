"""The envelope every event has, and how fields are declared."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, ClassVar, TypeVar

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
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return moment.isoformat(timespec="microseconds")[:26] + "Z"


def utc_text_us(unix_us: int) -> str:
    """Return `utc_text` of microseconds since 1970."""
    seconds, micros = divmod(unix_us, 1_000_000)
    return utc_text(datetime.fromtimestamp(seconds, UTC).replace(microsecond=micros))


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TimeTexts:
    """Give times with their `utc_text`, remembering the text of the last second: events come many in one."""

    def __init__(self) -> None:
        self._second: int | None = None
        self._text = ""

    def at(self, unix_us: int) -> tuple[datetime, str]:
        """Return the time so many microseconds after 1970, and its `utc_text`."""
        second, micros = divmod(unix_us, 1_000_000)
        moment = _EPOCH + timedelta(0, second, micros)
        if second != self._second:
            self._second, self._text = second, utc_text(moment)[:20]
        return moment, f"{self._text}{micros:06d}Z"


EventT = TypeVar("EventT", bound=SessionEvent)


def placed(event: EventT, seq: int) -> EventT:
    """Give a freshly made event, which nobody else has seen yet, the seq that the store gave it, and return it."""
    event.__dict__["seq"] = seq
    return event


_SET = object.__setattr__  # events are frozen, but for whoever makes them


def with_fields(event: EventT, changes: Mapping[str, Any]) -> EventT:
    """Return a copy of an event with some fields set, unchecked: for the fields that Kipu fills in itself.

    It is what `model_copy(update=…)` does, for a third of the time, on the path of every append.
    """
    copy = event.__class__.__new__(event.__class__)
    _SET(copy, "__dict__", {**event.__dict__, **changes})
    _SET(copy, "__pydantic_fields_set__", {*event.__pydantic_fields_set__, *changes})
    _SET(copy, "__pydantic_extra__", event.__pydantic_extra__)
    _SET(copy, "__pydantic_private__", None)
    return copy
