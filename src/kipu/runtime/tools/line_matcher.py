"""A process of its own that matches a regular expression: one that never ends is ended from outside.

Run as a script. The first frame is the pattern with its flags as JSON, each one after it a text; a frame is its length in
eight bytes and its bytes. Every answer is a line of JSON: an error text, or the [line, column in bytes] of what matched.
"""

from __future__ import annotations

import json
import re
import sys
from typing import BinaryIO


def read_frame(source: BinaryIO) -> bytes | None:
    """Return the next frame, None at the end."""
    head = source.read(8)
    if len(head) < 8:
        return None
    return source.read(int.from_bytes(head, "big"))


def frame(data: bytes) -> bytes:
    """Return `data` as a frame."""
    return len(data).to_bytes(8, "big") + data


def found_lines(matcher: re.Pattern[str], text: str, *, most: int) -> list[tuple[int, int]]:
    """Return the lines of `text` that match and the column, in bytes from 1, of the first match in each."""
    found: list[tuple[int, int]] = []
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else [], start=1):
        match = matcher.search(line.removesuffix("\r"))
        if match is not None:
            found.append((number, len(line[: match.start()].encode("utf-8", "surrogateescape")) + 1))
            if len(found) >= most:
                break
    return found


def main() -> None:
    """Answer until the other side closes its end."""
    asked = json.loads(read_frame(sys.stdin.buffer) or b"{}")
    try:
        matcher = re.compile(asked["pattern"], re.IGNORECASE if asked["ignore_case"] else 0)
    except (re.error, RecursionError, OverflowError) as error:
        print(json.dumps(str(error)), flush=True)  # noqa: T201 - the answer
        return
    print("[]", flush=True)  # noqa: T201
    while (data := read_frame(sys.stdin.buffer)) is not None:
        found = found_lines(matcher, data.decode("utf-8", "surrogateescape"), most=asked["most"])
        print(json.dumps(found), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
