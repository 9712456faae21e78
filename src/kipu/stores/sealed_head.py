"""The head and its patches under seal: text is sealed or hashed, types, times, counts and ids stay clear (EN-4)."""

from __future__ import annotations

import binascii
import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import orjson

from kipu.errors import InputError, SealBrokenError, StoreError
from kipu.ports.cipher import SessionCipher, StoreKeys
from kipu.ports.head import Head, HeadPatch, Preview
from kipu.ports.store import SessionQuery

CLEAR = frozenset(Head.__dataclass_fields__) - {
    "title",
    "first_text",
    "tags",
    "metadata",
    "workspace",
    "origin",
    "previews",
}
_TEXTS = ("title", "first_text")
_OBJECTS = ("workspace", "origin")
_MARK = "~"
_OBJECT = "$sealed"
UNREADABLE = "kipu.unreadable"


def seal_text(cipher: SessionCipher, plain: bytes, *, context: bytes) -> str:
    """Return `plain` sealed, as text."""
    return _MARK + binascii.b2a_base64(cipher.seal(plain, context), newline=False).decode("ascii")


def open_text(cipher: SessionCipher, sealed: Any, *, context: bytes) -> bytes:
    """Return what was sealed as text. Raises: SealBrokenError, also where it was never sealed."""
    if not isinstance(sealed, str) or sealed[:1] != _MARK:
        raise _unsealed(context)
    try:
        raw = binascii.a2b_base64(sealed[1:])  # what is not base64 is skipped, and the seal says whether that matters
    except (binascii.Error, ValueError) as error:
        raise _unsealed(context) from error
    return cipher.open(raw, context)


def _unsealed(context: bytes) -> SealBrokenError:
    return SealBrokenError(store="", reason="it is not sealed", session_id="", where=context.decode(errors="replace"))


def context_of(*parts: Any) -> bytes:
    """Return the parts as bytes that no other parts have."""
    return orjson.dumps(parts)


def seal_patch(patch: HeadPatch, cipher: SessionCipher, *, keys: StoreKeys) -> HeadPatch:
    """Return the patch as the inner store may see it."""
    if patch.max or patch.min or patch.add:
        _refuse_text(patch)
    if patch.previews:
        patch = HeadPatch(*patch[:-1], _seal_previews(patch.previews, cipher))
    if not (patch.set or patch.default or patch.merge):
        return patch  # what a message brings: nothing but its preview
    changed: dict[str, Any] = {}
    for operation in ("set", "default"):
        if values := getattr(patch, operation):
            changed[operation] = {
                name: value if name in CLEAR else _seal_field(name, value, cipher=cipher, keys=keys)
                for name, value in values.items()
            }
    if patch.merge:
        changed["merge"] = {
            name: changes if name in CLEAR else _seal_names(changes, cipher, keys=keys, field=name, removes=True)
            for name, changes in patch.merge.items()
        }
    return patch._replace(**changed)


@lru_cache(maxsize=256)
def _preview_context(kind: str) -> bytes:
    return context_of("preview", kind)


def _seal_previews(previews: Sequence[Any], cipher: SessionCipher) -> list[tuple[int, str, str]]:
    return [
        (at, kind, seal_text(cipher, text.encode("utf-8", "surrogatepass"), context=_preview_context(kind)))
        for at, kind, text in previews
    ]


def _refuse_text(patch: HeadPatch) -> None:
    for operation in (patch.max, patch.min, patch.add):
        for name, value in operation.items():
            if name not in CLEAR and not isinstance(value, int | float):
                raise InputError(reason=f"an encrypted store cannot compare the text of {name!r}")


def _seal_field(name: str, value: Any, *, cipher: SessionCipher, keys: StoreKeys) -> Any:
    if not value:  # an empty field must stay empty: `default` asks for it
        return value
    if name == "metadata":
        return _seal_names(value, cipher, keys=keys, field=name)
    if name == "tags":
        sealed = seal_text(cipher, orjson.dumps(list(value)), context=context_of("tags"))
        return [*(_blind_tag(keys, tag) for tag in value), sealed]
    if name == "previews":  # a copy sets them as rows have them
        return [list(preview) for preview in _seal_previews(value, cipher)]
    if name in _TEXTS and isinstance(value, str):
        return seal_text(cipher, value.encode("utf-8", "surrogatepass"), context=context_of(name))
    return {_OBJECT: seal_text(cipher, orjson.dumps(value), context=context_of(name))}


def _seal_names(
    changes: Mapping[str, Any], cipher: SessionCipher, *, keys: StoreKeys, field: str, removes: bool = False
) -> dict[str, str | None]:
    """Return two names for each: a hash of the value to be found by, and name and value sealed; None removes both where it `removes`."""
    sealed: dict[str, str | None] = {}
    for name, value in changes.items():
        blind = _blind_name(keys, name)
        sealed[f"i{blind}"] = None if value is None else _blind_value(keys, name, value)
        plain = orjson.dumps([name, value])
        sealed[f"s{blind}"] = (
            None if value is None and removes else seal_text(cipher, plain, context=context_of(field, blind))
        )
    return sealed


def _blind_name(keys: StoreKeys, name: str) -> str:
    return keys.blind(context_of("name", name))


def _blind_value(keys: StoreKeys, name: str, value: Any) -> str:
    """Return the hash to find a value by. Numbers that compare equal are equal, truth values are no numbers."""
    plain = int(value) if isinstance(value, float) and value.is_integer() else value
    return keys.blind(b"value" + orjson.dumps([name, plain], option=orjson.OPT_SORT_KEYS))


def _blind_tag(keys: StoreKeys, tag: str) -> str:
    return keys.blind(context_of("tag", tag))


def seal_query(query: SessionQuery, keys: StoreKeys) -> SessionQuery:
    """Return the query that finds the same sessions among sealed heads."""
    if not query.tags and not query.metadata:
        return query
    metadata = {
        f"i{_blind_name(keys, name)}": None if value is None else _blind_value(keys, name, value)
        for name, value in query.metadata.items()
    }
    return replace(query, tags=frozenset(_blind_tag(keys, tag) for tag in query.tags), metadata=metadata)


def open_head(head: Head, cipher: SessionCipher) -> Head:
    """Return the head with its text. Raises: SealBrokenError, DataKeyMissingError."""
    opened: dict[str, Any] = {}
    for name in _TEXTS:
        if sealed := getattr(head, name):
            opened[name] = _open_string(cipher, sealed, context=context_of(name))
    for name in _OBJECTS:
        if held := getattr(head, name):
            opened[name] = orjson.loads(open_text(cipher, held.get(_OBJECT), context=context_of(name)))
    if head.tags:
        opened["tags"] = tuple(orjson.loads(open_text(cipher, head.tags[-1], context=context_of("tags"))))
    if head.metadata:
        opened["metadata"] = _open_metadata(head.metadata, cipher)
    if head.previews:
        opened["previews"] = tuple(
            [
                Preview(p.seq, p.event_type, _open_string(cipher, p.text, context=_preview_context(p.event_type)))
                for p in head.previews
            ]
        )
    return _with(head, opened) if opened else head


def _open_string(cipher: SessionCipher, sealed: str, *, context: bytes) -> str:
    return open_text(cipher, sealed, context=context).decode("utf-8", "surrogatepass")


def _open_metadata(held: Mapping[str, Any], cipher: SessionCipher) -> dict[str, Any]:
    names = (name for name in held if name[:1] == "s")
    pairs = [orjson.loads(open_text(cipher, held[n], context=context_of("metadata", n[1:]))) for n in names]
    return dict(pairs)


def without_text(head: Head, error: StoreError) -> Head:
    """Return the head as a list shows it when its text cannot be read: there, and saying why."""
    closed = {"title": None, "first_text": None, "tags": (), "workspace": None, "origin": None, "previews": ()}
    return _with(head, {**closed, "metadata": {UNREADABLE: error.code}})


def _with(head: Head, values: Mapping[str, Any]) -> Head:
    changed = copy.copy(head)
    changed.__dict__.update(values)
    return changed
