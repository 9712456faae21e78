"""Schemas of servers' tools, made such that providers take them and checking against them is safe."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import orjson

from kipu.runtime.tools.argument_schema import ArgumentSchema

MAX_SCHEMA_BYTES = 32_768
MAX_DEPTH = 24
_ANYTHING: Mapping[str, Any] = {"type": "object", "additionalProperties": True}
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
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
    if not _is_safe(schema, root=schema, depth=0):
        return dict(_ANYTHING), "its schema is too deep, or leads to what is not in it"
    if schema.get("type") != "object":
        return dict(_ANYTHING), "its schema is not one of an object"
    refused = [name for name in _REFUSED_AT_TOP if name in schema]
    kept = {name: value for name, value in schema.items() if name not in refused}
    fault = _fault(kept)
    if fault is not None:
        return dict(_ANYTHING), f"its schema cannot be used: {fault}"
    return kept, f"its schema had {', '.join(refused)} at the top" if refused else None


def _is_safe(value: object, *, root: Mapping[str, Any], depth: int) -> bool:
    if depth > MAX_DEPTH:
        return False
    if isinstance(value, list):
        return all(_is_safe(each, root=root, depth=depth + 1) for each in value)
    if not isinstance(value, dict):
        return True
    if isinstance(value.get("$id"), str):  # references would be read against it
        return False
    references = [value[name] for name in _REFERENCES if isinstance(value.get(name), str)]
    if not all(_is_within(reference, root) for reference in references):
        return False
    return all(_is_safe(each, root=root, depth=depth + 1) for each in value.values())


def _is_within(reference: str, root: Mapping[str, Any]) -> bool:
    """Say whether a reference leads to a definition at the top of the same schema: the only kind that everybody follows."""
    start, _, rest = reference.partition("/")
    table, _, name = rest.partition("/")
    definitions = root.get(table) if start == "#" and table in ("$defs", "definitions") else None
    return isinstance(definitions, dict) and name.replace("~1", "/").replace("~0", "~") in definitions


def _fault(schema: Mapping[str, Any]) -> str | None:
    jsonschema = importlib.import_module("jsonschema")
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except (jsonschema.exceptions.SchemaError, RecursionError) as error:
        return str(getattr(error, "message", "it is nested too deeply"))[:200]
    return ArgumentSchema(schema).fault
