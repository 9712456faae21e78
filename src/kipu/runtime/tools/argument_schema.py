"""Checking arguments against a schema that anybody may have written: it costs no more than it may, and fetches nothing."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from kipu.errors import MissingExtraError, ToolError

Schema: TypeAlias = Any  # a dict or a bool, at any depth
Keyword: TypeAlias = Callable[[Any, Any, Any, Any], Any]

MAX_NODES = 5_000
MAX_DEPTH = 64
MAX_STEPS = 50_000
MAX_PROBLEMS = 5
MAX_PROBLEM_CHARACTERS = 300
_MAX_PATTERN_CHARACTERS = 200
_SLOW = re.compile(r"\)[*+{?]|\\[1-9]|\(\?P=")  # a group repeated, or text that was matched before

# What is known to end. A keyword that is not here (remote references, `format`, `unevaluated…`) is the tool's own to check.
_PLAIN = frozenset(
    [
        "type",
        "enum",
        "const",
        "required",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "minContains",
        "maxContains",
        "dependentRequired",
    ]
)
_ONE = frozenset(
    ["items", "additionalProperties", "additionalItems", "not", "if", "then", "else", "contains", "propertyNames"]
)
_MANY = frozenset(["anyOf", "allOf", "oneOf", "prefixItems"])
_SAYS_NOTHING = frozenset(
    [
        "title",
        "description",
        "default",
        "examples",
        "format",
        "$schema",
        "$id",
        "$comment",
        "deprecated",
        "readOnly",
        "writeOnly",
    ]
)
_NAMED = frozenset(["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"])


class ArgumentSchema:
    """A tool's parameters, compiled once. A schema that cannot be used checks only that arguments are an object.

    A keyword whose cost is not bounded is left out, and a check that takes too many steps is a problem of its own: neither
    hangs the process (C29). `fault` says why a schema cannot be used.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._steps = 0
        self._validator: Any = None
        self._unresolvable: type[Exception] = LookupError
        self.fault: str | None = None
        try:
            self._compile(_Reducer().reduced(dict(schema), 0))
        except ToolError as error:
            self.fault = str(error.reason)

    def _compile(self, schema: Schema) -> None:
        try:
            jsonschema = importlib.import_module("jsonschema")
        except ImportError as error:
            raise MissingExtraError(feature="checking tool calls", package="jsonschema", extra="agent") from error
        draft = jsonschema.Draft202012Validator
        self._unresolvable = importlib.import_module("referencing.exceptions").Unresolvable
        try:
            draft.check_schema(schema)
        except (jsonschema.exceptions.SchemaError, RecursionError) as error:
            self.fault = f"it is not valid: {str(error).splitlines()[0][:200]}"
            return
        counted = {name: self._counted(keyword) for name, keyword in draft.VALIDATORS.items()}
        self._validator = jsonschema.validators.extend(draft, validators=counted)(schema)

    def problems(self, arguments: Any) -> list[str]:
        """Return what is wrong with the arguments, at most five things, each with its place."""
        if not isinstance(arguments, Mapping):
            return [f"the arguments are not an object but {type(arguments).__name__}"]
        if self._validator is None:
            return []
        self._steps = 0
        found: list[str] = []
        try:
            for error in self._validator.iter_errors(dict(arguments)):
                found.append(_told(error))
                if len(found) == MAX_PROBLEMS:
                    break
        except ToolError as error:
            found.append(str(error.reason))
        except RecursionError:
            found.append("they, or the schema, are nested too deeply to be checked")
        except self._unresolvable:  # it refers to what is not in it: the tool's own fault, and its own to check
            pass
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            found.append(f"they cannot be checked: {error}"[:MAX_PROBLEM_CHARACTERS])
        return found

    def _counted(self, keyword: Keyword) -> Keyword:
        def counting(validator: Any, value: Any, instance: Any, schema: Schema) -> Iterator[Any]:
            self._steps += 1
            if self._steps > MAX_STEPS:
                raise ToolError(tool="", reason="they take too many steps to check: give less at once")
            yield from keyword(validator, value, instance, schema) or ()

        return counting


def _told(error: Any) -> str:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path).lstrip(".")
    message = str(error.message)
    if len(message) > MAX_PROBLEM_CHARACTERS:
        message = f"{message[:100]} … {message[-(MAX_PROBLEM_CHARACTERS - 100) :]}"
    if error.validator == "additionalProperties" and isinstance(error.schema, dict):
        message += f"; there are {', '.join(error.schema.get('properties', {})) or 'none'}"
    return f"{place}: {message}" if place else message


class _Reducer:
    """Copies of a schema what is known to end, within bounds."""

    def __init__(self) -> None:
        self._nodes = 0
        self._left_out = 0

    def reduced(self, schema: Schema, depth: int) -> Schema:
        self._nodes += 1
        if self._nodes > MAX_NODES or depth > MAX_DEPTH:
            raise ToolError(tool="", reason="it is too big or too deep to be checked")
        if not isinstance(schema, dict):
            return schema if isinstance(schema, bool) else {}
        kept: dict[str, Any] = {}
        for name, value in schema.items():
            before = self._left_out
            if not self._keep(kept, str(name), value=value, depth=depth + 1) and name not in _SAYS_NOTHING:
                self._left_out += 1
            if self._left_out > before:
                self._loosen(kept, str(name))
        if len(kept.get("patternProperties", ())) < len(schema.get("patternProperties", ())):
            kept.pop("additionalProperties", None)  # what else there may be is not known any more
        return kept

    def _keep(self, kept: dict[str, Any], name: str, *, value: Any, depth: int) -> bool:
        """Copy a keyword, and say whether that is all it says."""
        if name in _PLAIN or (isinstance(value, str) and _is_bounded(name, value)):
            kept[name] = value
        elif name in _ONE:
            kept[name] = self.reduced(value, depth)
        elif name in _MANY and isinstance(value, list):
            kept[name] = [self.reduced(item, depth) for item in value]
        elif name in _NAMED and isinstance(value, dict):
            quick = {key: item for key, item in value.items() if name != "patternProperties" or _is_quick(str(key))}
            kept[name] = {key: self.reduced(item, depth) for key, item in quick.items()}
            return len(quick) == len(value)
        else:
            return False
        return True

    def _loosen(self, kept: dict[str, Any], name: str) -> None:
        """Take back what would refuse more than the schema does, now that a part of `name` is left out."""
        if name in ("not", "if"):
            kept.pop(name, None)
        elif name == "oneOf" and "oneOf" in kept:
            kept.setdefault("anyOf", kept["oneOf"])
            del kept["oneOf"]
        elif name == "contains":
            kept.pop(name, None)


def _is_bounded(name: str, value: str) -> bool:
    return value.startswith("#") if name == "$ref" else name == "pattern" and _is_quick(value)


def _is_quick(pattern: str) -> bool:
    """Say whether a regular expression takes no more than quadratic time: at most two repeats, and none of a group."""
    if len(pattern) > _MAX_PATTERN_CHARACTERS or _SLOW.search(pattern):
        return False
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return False
    return len(re.findall(r"(?<!\\)[*+{]", pattern)) <= 2
