"""Names of servers' tools, as every provider takes them: always the same for the same server and tool."""

from __future__ import annotations

import hashlib
import re

PREFIX = "mcp__"
MAX_CHARACTERS = 64
_ODD = re.compile(r"[^a-zA-Z0-9_-]")
# No underscores at its ends and none doubled: the first `__` after the prefix then ends the server's name in one way only.
_DIGEST_CHARACTERS = 12
_LIKE_HASHED = re.compile(r".*_[0-9a-f]{12}", re.DOTALL)  # no server writes the name of another's tool
_PLAIN_SERVER = re.compile(r"[a-zA-Z0-9-]+(?:_[a-zA-Z0-9-]+)*")


def tool_name(server: str, tool: str, *, is_taken: bool = False) -> str:
    """Return `mcp__<server>__<tool>`; where that cannot be, or `is_taken`, as much of it as fits and a hash of both names.

    A name depends on nothing else, so that tools that come and go rename no other.

    >>> tool_name("github", "get_issue")
    'mcp__github__get_issue'
    """
    name = f"{PREFIX}{server}__{tool}"
    is_plain = tool and _PLAIN_SERVER.fullmatch(server) and not _ODD.search(tool) and not _LIKE_HASHED.fullmatch(tool)
    if is_plain and not is_taken and len(name) <= MAX_CHARACTERS:
        return name
    digest = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{_ODD.sub('_', name)[: MAX_CHARACTERS - len(digest) - 1]}_{digest}"
