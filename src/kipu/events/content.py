"""What a message is made of: text, or parts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Part(BaseModel):
    """One piece of a message."""

    model_config = ConfigDict(frozen=True, extra="allow")


class TextPart(Part):
    """Some text."""

    type: Literal["text"] = "text"
    text: str


class MediaPart(Part):
    """An image or file: its bytes are in the session's blobs (`blob`, SHA-256) or, while small, inline as base64 (`data`)."""

    type: Literal["media"] = "media"
    media_type: str
    blob: str | None = None
    data: str | None = None
    size: int = 0
    name: str | None = None


ContentPart = Annotated[TextPart | MediaPart, Field(discriminator="type")]
Content = str | list[ContentPart]


class BlobReference(BaseModel):
    """Where the whole of a value is that was too big for its event."""

    model_config = ConfigDict(frozen=True, extra="allow")

    digest: str
    size: int
    media_type: str = "text/plain"
    field: str = ""


class ProviderMark(BaseModel):
    """Who made an answer, and what only they can read (signatures, encrypted reasoning)."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str
    model: str = ""
    opaque: Any = None  # JSON, whatever its shape


def text_of(content: Content) -> str:
    """Return the text of a message, its parts joined by line breaks."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content if isinstance(part, TextPart))
