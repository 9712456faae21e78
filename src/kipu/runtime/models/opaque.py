"""What a provider wants back unchanged, packed into one JSON object and taken apart again.

A message keeps one reasoning text and one opaque object, while a provider may think, speak and call in turns. So the object
lists the parts in order: sealed thinking whole, texts and calls by their length or place, with whatever the provider tied to
them. When the message's text or calls are no longer what the list says, sealed thinking goes first and nothing is tied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

PartKind = Literal["thinking", "text", "tool_call"]
FORMAT = 1
TIED_FIELDS = ("id", "signature", "provider_name", "provider_details")


@dataclass(frozen=True, slots=True)
class AssistantPart:
    """Hold one part of an assistant message: its text or its neutral call, and what the provider tied to it."""

    kind: PartKind
    text: str = ""
    call: Mapping[str, Any] | None = None
    tied: Mapping[str, Any] | None = None

    @property
    def sealed(self) -> bool:
        """Return whether the provider would take this thinking back."""
        return self.kind == "thinking" and bool(self.tied)


def pack_parts(parts: Sequence[AssistantPart], *, account: str | None) -> dict[str, Any] | None:
    """Return the opaque object for `parts`, or None when the provider wants nothing back."""
    kept = [part for part in parts if part.kind != "thinking" or part.sealed]
    if not any(part.sealed or "provider_details" in (part.tied or {}) for part in kept):
        return None  # ids alone point at copies the provider was told not to keep
    return {"format": FORMAT, "account": account, "parts": [_entry(part) for part in kept]}


def _entry(part: AssistantPart) -> dict[str, Any]:
    entry: dict[str, Any] = {"kind": part.kind}
    if part.kind == "thinking":
        entry["text"] = part.text
    elif part.kind == "text":
        entry["chars"] = len(part.text)
        if not part.text.strip():
            entry["blank"] = True
    if part.tied:
        entry["tied"] = dict(part.tied)
    return entry


def unpack_parts(
    content: Sequence[Mapping[str, Any]], *, provider: str, model: str, account: str | None
) -> list[AssistantPart]:
    """Return the parts to send for a neutral assistant message; reasoning of any other provider, model or account is left out."""
    texts = [str(part["text"]) for part in content if part["type"] == "text"]
    calls = [part for part in content if part["type"] == "tool_call"]
    entries = _entries(content, provider=provider, model=model, account=account)
    ordered = _ordered(entries, "".join(texts), calls)
    if ordered is not None:
        return ordered
    thinking = [_thinking(entry) for entry in entries if entry["kind"] == "thinking"]
    return thinking + [_plain(part) for part in content if part["type"] != "reasoning"]


def _entries(
    content: Sequence[Mapping[str, Any]], *, provider: str, model: str, account: str | None
) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for part in content:
        opaque = part.get("opaque") if part["type"] == "reasoning" else None
        ours = part.get("provider") == provider and part.get("model") == model
        if ours and isinstance(opaque, Mapping) and opaque.get("format") == FORMAT and opaque.get("account") == account:
            found.extend(
                entry for entry in opaque.get("parts", ()) if entry.get("kind") in {"thinking", "text", "tool_call"}
            )
    return found


def _ordered(
    entries: Sequence[Mapping[str, Any]], text: str, calls: Sequence[Mapping[str, Any]]
) -> list[AssistantPart] | None:
    entries = _fitted(entries, len(text))
    if not entries:
        return None
    if sum(entry["kind"] == "tool_call" for entry in entries) != len(calls):
        return None
    waiting: Iterator[Mapping[str, Any]] = iter(calls)
    parts: list[AssistantPart] = []
    start = 0
    for entry in entries:
        if entry["kind"] == "thinking":
            parts.append(_thinking(entry))
        elif entry["kind"] == "tool_call":
            parts.append(AssistantPart("tool_call", call=next(waiting), tied=entry.get("tied")))
        else:
            end = start + entry.get("chars", 0)
            said = "" if entry.get("blank") else text[start:end]
            if said or entry.get("tied"):  # providers refuse blank text
                parts.append(AssistantPart("text", said, tied=entry.get("tied")))
            start = end
    return parts


def _fitted(entries: Sequence[Mapping[str, Any]], size: int) -> Sequence[Mapping[str, Any]]:
    """Return the entries if they make up a text of that size, whether its keeper kept blank pieces or not; else none."""
    without_blanks = [dict(entry) | {"chars": 0} if entry.get("blank") else entry for entry in entries]
    for fitting in (entries, without_blanks):
        if sum(entry.get("chars", 0) for entry in fitting) == size:
            return fitting
    return ()


def _thinking(entry: Mapping[str, Any]) -> AssistantPart:
    return AssistantPart("thinking", str(entry.get("text", "")), tied=entry.get("tied"))


def _plain(part: Mapping[str, Any]) -> AssistantPart:
    if part["type"] == "tool_call":
        return AssistantPart("tool_call", call=part)
    return AssistantPart("text", str(part["text"]))
