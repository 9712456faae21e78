"""Secrets out of an event's body, before anything else sees it: fold, terms, head, blobs and disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kipu.security.redaction.finding import Finding
    from kipu.security.redaction.redactor import Redactor


# What leads to something else: changed, it would lead nowhere. None of it is text that a person, model or tool wrote.
KEPT = frozenset(
    {
        "tool_call_id", "provider_call_id", "approval_id", "arguments_hash", "memory_ids", "waits_for", "key",
        "previous_session_id", "source_message_id", "forked_from", "origin", "owner", "tenant", "sender_id", "channel",
        "reply_to", "address", "worker", "blob", "blobs", "tools", "window", "workspace", "normalised", "inherited", "busy",
        "platform_message_id", "tool_name", "roles", "revoked", "who",
    }
)  # fmt: skip


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
    if not found.findings:
        return mark, ()
    return {name: value for name, value in mark.items() if name != "opaque"}, found.findings


def notes_of(findings: list[Finding], changes: list[dict[str, Any]], *, redactor: Redactor) -> list[dict[str, Any]]:
    """Return what an event's `normalised` says: what was made storable, without the secrets in it, and what was replaced.

    Of a text that held a secret nothing of the original is kept: it is shortened, and might end within the secret.
    """
    paths = {finding.path for finding in findings}
    kept = []
    for change in changes:
        tainted = any(change["path"].startswith(path) or path.startswith(change["path"]) for path in paths)
        original = "" if tainted else redactor.redact(change["original"]).value
        kept.append({**change, "original": original})
    return [*kept, *(finding.to_json() for finding in findings)]
