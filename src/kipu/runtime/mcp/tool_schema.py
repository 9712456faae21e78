"""Schemas of servers' tools, made such that providers take them and checking against them is safe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from kipu.runtime.tools.argument_schema import ArgumentSchema

MAX_SCHEMA_BYTES = 32_768
MAX_DEPTH = 24
_ANYTHING: Mapping[str, Any] = {"type": "object", "additionalProperties": True}
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_WITHIN = ("#/$defs/", "#/definitions/")
# Providers refuse these at the top of a tool's schema, and with it the whole request.
_REFUSED_AT_TOP = ("oneOf", "anyOf", "allOf", "not", "enum", "const", "if", "then", "else")


def usable_schema(given: object) -> tuple[dict[str, Any], str | None]:
    """Return a schema for providers and validators, and why it is not the one that was given (None: it is).

    A schema that is broken, too large or too deep, or that leads elsewhere by a reference, is replaced by one that takes any
    object: the server then judges the arguments itself.
    """
    if not isinstance(given, Mapping):
        return dict(_ANYTHING), "its schema is no object"
    try:
        text = orjson.dumps(given)
    except TypeError:
        return dict(_ANYTHING), "its schema is no JSON"
    if len(text) > MAX_SCHEMA_BYTES:
        return dict(_ANYTHING), f"its schema has more than {MAX_SCHEMA_BYTES // 1024} kB"
    schema: dict[str, Any] = orjson.loads(text)
    if not _is_safe(schema, 0):
        return dict(_ANYTHING), "its schema is too deep, or leads elsewhere"
    if schema.get("type") != "object":
        return dict(_ANYTHING), "its schema is not one of an object"
    refused = [name for name in _REFUSED_AT_TOP if name in schema]
    kept = {name: value for name, value in schema.items() if name not in refused}
    fault = ArgumentSchema(kept).fault
    if fault is not None:
        return dict(_ANYTHING), f"its schema cannot be used: {fault}"
    return kept, f"its schema had {', '.join(refused)} at the top" if refused else None


def _is_safe(value: object, depth: int) -> bool:
    if depth > MAX_DEPTH:
        return False
    if isinstance(value, dict):
        if any(not str(value[name]).startswith(_WITHIN) for name in _REFERENCES if name in value):
            return False
        if depth and ("$id" in value or ("id" in value and isinstance(value["id"], str))):
            return False
        return all(_is_safe(each, depth + 1) for each in value.values())
    if isinstance(value, list):
        return all(_is_safe(each, depth + 1) for each in value)
    return True
