"""The hash that binds an approval to what was shown: another argument, another hash (C15)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from kipu.events.normalise import normalise


def arguments_hash(tool_name: str, arguments: Mapping[str, Any]) -> str:
    """Return the SHA-256, in hexadecimal, of the tool's name and its arguments as canonical JSON.

    Arguments are first made storable as the log makes them, so that the hash is the same before and after a restart. The order
    of names does not count; everything else does, Unicode forms and `1` against `1.0` included.

    >>> arguments_hash("shell", {"a": 1, "b": 2}) == arguments_hash("shell", {"b": 2, "a": 1})
    True
    """
    plain, _ = normalise({"tool": tool_name, "arguments": dict(arguments)})
    return hashlib.sha256(orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)).hexdigest()
