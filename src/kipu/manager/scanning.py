"""Look for secrets in what is stored already: a report, nothing is changed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from kipu.errors import BlobNotFoundError
from kipu.ports.head import Head
from kipu.ports.store import EventStore
from kipu.security.redaction.finding import Finding
from kipu.security.redaction.redactor import Redactor

PAGE = 256


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Where a stored session holds secrets, never what they are. A blob has the `seq` of the first event that refers to it, or 0."""

    session_id: str
    seq: int
    event_type: str
    path: str
    rule: str
    count: int

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)


async def scan_session(
    store: EventStore, head: Head, *, redactor: Redactor, entropy: bool = False
) -> AsyncIterator[Suspicion]:
    """Yield what the redactor finds in the session's own events and blobs; with `entropy` also what looks like chance."""
    session_id, after = head.session_id, head.base_seq
    referred: dict[str, int] = {}
    while True:
        page = await store.read(session_id, after=after, limit=PAGE)
        for stored in page:
            body = _json(stored.record.body)
            for digest in _digests(body):
                referred.setdefault(digest, stored.seq)
            is_result = stored.record.event_type == "tool_result"
            for found in _found(redactor, body, places=is_result, entropy=entropy):
                # A path is made of keys, and a key may be a secret as well.
                path = redactor.redact(found.path).value
                yield Suspicion(session_id, stored.seq, stored.record.event_type, path, found.rule, found.count)
        if not page:
            break
        after = page[-1].seq
    for digest in await store.blobs(session_id):
        try:
            data = await store.get_blob(session_id, digest)
        except BlobNotFoundError:
            continue
        for found in _found(redactor, data.decode("utf-8", "replace"), places=False, entropy=entropy):
            yield Suspicion(session_id, referred.get(digest, 0), "blob", digest, found.rule, found.count)


def _json(body: bytes) -> Any:
    try:
        value = orjson.loads(body)
    except (orjson.JSONDecodeError, RecursionError):
        return body.decode("utf-8", "replace")
    if isinstance(value, dict):
        value.pop("normalised", None)
    return value


def _digests(value: Any) -> Iterator[str]:
    """Yield everything in a body that may be a blob's digest."""
    if isinstance(value, str):
        if len(value) == 64 and value.isalnum():
            yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _digests(item)


def _found(redactor: Redactor, value: Any, *, places: bool, entropy: bool) -> list[Finding]:
    redacted = redactor.redact(value, places=places)
    return [*redacted.findings, *(redactor.flags(redacted.value) if entropy else ())]
