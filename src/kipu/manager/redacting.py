"""Secrets out of an event's body, before anything else sees it: fold, terms, head, blobs and disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson

from kipu.events.codec import body_fields, encode_fields, event_from_fields
from kipu.events.event import ENVELOPE_FIELDS, SessionEvent
from kipu.events.normalise import normalise
from kipu.ports.store import StoredEvent

if TYPE_CHECKING:
    from kipu.security.redaction.finding import Finding
    from kipu.security.redaction.redactor import Redactor

# A redactor, or what makes it when something is first written: most commands write nothing.
RedactorSource: TypeAlias = "Redactor | Callable[[], Redactor] | None"

# What leads to something else: changed, it would lead nowhere. None of it is text that a person, model or tool wrote.
KEPT = frozenset(
    {
        "tool_call_id", "provider_call_id", "approval_id", "arguments_hash", "memory_ids", "waits_for", "key",
        "previous_session_id", "source_message_id", "forked_from", "origin", "owner", "tenant", "sender_id", "channel",
        "reply_to", "address", "worker", "blob", "blobs", "tools", "window", "workspace", "normalised", "inherited", "busy",
        "platform_message_id", "tool_name", "roles", "revoked", "who",
    }
)  # fmt: skip


_GUESSED = "service-token"  # a token of a maker in no list, told by its chance alone


def redact_body(
    redactor: Redactor, fields: Mapping[str, Any], *, event_type: str
) -> tuple[Mapping[str, Any], list[Finding]]:
    """Return the body without its secrets and what was replaced; the same object where there was nothing.

    Places (temporary paths, internal addresses) are taken out of tool results only (B57).
    """
    findings: list[Finding] = []
    changed: dict[str, Any] = {}
    for name, value in fields.items():
        if name in KEPT:
            continue
        if name == "provider" and isinstance(value, dict):
            new, found = _provider(redactor, value)
        else:
            # The field's own name counts too: `{"data": {"password": …}}` and a metadata event's `set` are walked as objects.
            redacted = redactor.redact(value, path=f"/{name}", places=event_type == "tool_result")
            new, found = redacted.value, redacted.findings
        if new is not value:
            changed[name] = new
            findings += found
    return ({**fields, **changed}, findings) if changed else (fields, findings)


def _provider(redactor: Redactor, mark: dict[str, Any]) -> tuple[dict[str, Any], tuple[Finding, ...]]:
    """Return a provider's mark; what only the provider can read goes whole, since it would not take back a part of it."""
    found = redactor.redact(mark.get("opaque"), path="/provider/opaque", places=False)
    if all(each.rule == _GUESSED for each in found.findings):  # a seal is chance from end to end
        return mark, ()
    return {name: value for name, value in mark.items() if name != "opaque"}, found.findings


def notes_of(findings: list[Finding], changes: list[dict[str, Any]], *, redactor: Redactor) -> list[dict[str, Any]]:
    """Return what an event's `normalised` says: what was made storable, without the secrets in it, and what was replaced.

    Of a text that held a secret nothing of the original is kept: it is shortened, and might end within the secret.
    """
    paths = {finding.path for finding in findings}
    kept = []
    for change in changes:
        if "original" not in change:  # what an earlier redaction said
            kept.append(change)
            continue
        tainted = any(_is_within(change["path"], path) or _is_within(path, change["path"]) for path in paths)
        original = "" if tainted else redactor.redact(change["original"]).value
        kept.append({**change, "original": original})
    return [*kept, *(finding.to_json() for finding in findings)]


def _is_within(path: str, other: str) -> bool:
    return path == other or path.startswith(f"{other.rstrip('/')}/")


# ---- what is stored already, on its way out -------------------------------------------------------------------------


def redact_event(redactor: Redactor, event: SessionEvent) -> SessionEvent:
    """Return a stored event without the secrets that were written into it, its number and times as they are."""
    fields, _ = normalise(body_fields(event))
    redacted, findings = redact_body(redactor, fields, event_type=event.event_type)
    if not findings:
        return event
    envelope = {name: getattr(event, name) for name in ENVELOPE_FIELDS}
    return event_from_fields({**redacted, **envelope})


def redact_stored(redactor: Redactor, stored: StoredEvent, *, blobs: Mapping[str, bytes]) -> StoredEvent:
    """Return a stored event without secrets; it refers to `blobs` {their digest before: what they are now} by their new digests."""
    record = stored.record
    body = without_secrets(redactor, record.body, event_type=record.event_type, blobs=blobs)
    return stored if body is record.body else stored._replace(record=record._replace(body=body))


def without_secrets(redactor: Redactor, body: bytes, *, event_type: str, blobs: Mapping[str, bytes]) -> bytes:
    """Return an event's body without secrets, with the references to blobs that changed changed too; the same where nothing is."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return redact_blob(redactor, body)
    if not isinstance(fields, dict):
        return redact_blob(redactor, body)
    redacted, findings = redact_body(redactor, fields, event_type=event_type)
    digests = {old: new for old, data in blobs.items() if (new := hashlib.sha256(data).hexdigest()) != old}
    if not findings and not digests:
        return body
    plain = dict(redacted)
    if findings:
        before = plain.get("normalised")
        notes = notes_of(findings, before if isinstance(before, list) else [], redactor=redactor)
        plain["normalised"] = notes
    return encode_fields(event_type, _renamed(plain, digests) if digests else plain)


def redact_arrival(
    redactor: Redactor, event: SessionEvent, *, fields: Mapping[str, Any], blobs: Mapping[str, bytes]
) -> tuple[SessionEvent, dict[str, Any], dict[str, bytes]] | None:
    """Return an event from elsewhere, its fields and its blobs by digest, all without secrets; None where there are none.

    Its number, id and times stay: so it is known again when it comes a second time.
    """
    plain = {digest: redact_blob(redactor, data) for digest, data in blobs.items()}
    body = encode_fields(event.event_type, dict(fields))
    redacted = without_secrets(redactor, body, event_type=event.event_type, blobs=plain)
    if redacted is body:
        return None
    envelope = {name: getattr(event, name) for name in ENVELOPE_FIELDS if name not in ("v", "normalised")}
    new = orjson.loads(redacted)
    named = {hashlib.sha256(data).hexdigest(): data for data in plain.values()}
    return event_from_fields({**new, **envelope, "v": event.v}), new, named


def redact_blob(redactor: Redactor, data: bytes) -> bytes:
    """Return a blob without secrets where it is text; what is no text is left as it is."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    found = redactor.redact(text, places=False)
    return str(found.value).encode() if found.findings else data


def _renamed(value: Any, digests: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return digests.get(value, value)
    if isinstance(value, dict):
        return {name: _renamed(item, digests) for name, item in value.items()}
    if isinstance(value, list):
        return [_renamed(item, digests) for item in value]
    return value
