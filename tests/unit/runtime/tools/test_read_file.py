"""`read_file` shows what is there, in pieces that fit."""

from __future__ import annotations

import base64
import os
import re

import pytest

from kipu.context.content import result_parts
from kipu.events.content import MediaPart
from kipu.events.conversation import ToolResultEvent
from kipu.runtime.tools.file_tool import MAX_FILE_BYTES
from kipu.runtime.tools.result_limit import limited
from tests.unit.runtime.tools.tool_bench import ToolBench

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


async def test_read_file_numbers_lines(bench: ToolBench) -> None:
    """Lines come with their numbers, and the answer says which of how many they are."""
    bench.put("a.py", "one\n\ttwo\n\nfour\n")
    assert await bench.text("read_file", path="a.py") == (
        "     1\tone\n     2\t\ttwo\n     3\t\n     4\tfour\n[lines 1-4 of 4]"
    )
    assert (
        await bench.text("read_file", path="a.py", offset=2, limit=1)
        == "     2\t\ttwo\n[lines 2-2 of 4; go on with offset=3]"
    )


async def test_read_file_takes_whole_numbers_as_json_may_write_them(bench: ToolBench) -> None:
    """2.0 is an integer to the schema, and to the tool."""
    bench.put("a", "one\ntwo\n")
    assert "     2\ttwo" in await bench.text("read_file", path="a", offset=2.0, limit=1.0)


async def test_read_file_goes_on_until_all_was_shown(bench: ToolBench) -> None:
    """Whoever follows the offsets of a long file sees every line once, each answer within the limit of results."""
    lines = [f"line {number} " + "x" * (number % 300) for number in range(3000)]
    bench.put("long.txt", "\n".join(lines) + "\n")
    seen: list[str] = []
    offset: int | None = 1
    while offset is not None:
        text = await bench.text("read_file", path="long.txt", offset=offset)
        assert await limited(text, put_blob=None) == (text, None)
        *shown, note = text.split("\n")
        seen += [line.partition("\t")[2] for line in shown]
        found = re.search(r"go on with offset=(\d+)", note)
        offset = int(found.group(1)) if found is not None else None
    assert seen == lines


async def test_read_file_goes_on_within_a_huge_line(bench: ToolBench) -> None:
    """A line that fits no answer can be read to its end by columns."""
    line = "".join(chr(0x4E00 + number % 5000) for number in range(9001))
    bench.put("min.js", line)
    seen, column = "", 1
    while True:
        text = await bench.text("read_file", path="min.js", column=column)
        seen += text.split("\n")[0].partition("\t")[2]
        found = re.search(r"read on with offset=1, column=(\d+)", text)
        if found is None:
            break
        assert int(found.group(1)) > column
        column = int(found.group(1))
    assert seen == line


@pytest.mark.parametrize(
    ("data", "shown", "remark"),
    [
        (b"\xef\xbb\xbfgr\xc3\xbcn\n", "grün", None),
        ("grün\n".encode("utf-16"), "grün", "encoding UTF-16-LE"),
        (b"\xfe\xff" + "\u4e2d\n".encode("utf-16-be"), "中", "encoding UTF-16-BE"),
        (b"gr\xfcn\n", "grün", "not UTF-8: read as Latin-1"),
        (b"a\r\nb\r\n", "a", "CRLF line endings"),
        (b"a\r\nb\n", "a", "mixed line endings: 1 of 2 CRLF"),
        (b"a\nb", "a", "no line break at the end"),
        (b"a\x1b[31mred\x07\n", "a\\x1b[31mred\\x07", None),
    ],
)
async def test_read_file_knows_encodings(bench: ToolBench, data: bytes, shown: str, remark: str | None) -> None:
    """Text of any usual encoding is shown, and what is unusual about it said."""
    bench.put("text", data)
    text = await bench.text("read_file", path="text")
    assert text.split("\n")[0] == f"     1\t{shown}"
    assert (remark or "") in text
    assert remark is not None or text.endswith("[lines 1-1 of 1]")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"\x00\x01\x02", "binary data, 3 bytes"),
        (b"%PDF-1.7\x00", "a PDF document, 9 bytes"),
        (b"text with a\x00NUL", "binary data"),
        ("x".encode("utf-32"), "text in UTF-32"),
        (b"\xff\xfeodd\xd8", "binary data"),
    ],
)
async def test_read_file_describes_what_is_no_text(bench: ToolBench, data: bytes, told: str) -> None:
    """Bytes that are no text are described and not shown."""
    bench.put("blob.bin", data)
    assert told in await bench.text("read_file", path="blob.bin")


async def test_read_file_shows_an_image_as_media(bench: ToolBench) -> None:
    """An image becomes a content part whose bytes are a blob of the session."""
    bench.put("img/dot.png", PIXEL)
    result = await bench.call("read_file", path="img/dot.png")
    text, media = result_parts(ToolResultEvent(tool_call_id="c", result=result.content))
    assert isinstance(media, MediaPart)
    assert (media.media_type, media.size, media.name) == ("image/png", len(PIXEL), "dot.png")
    assert bench.blobs.held[media.blob or ""] == PIXEL
    assert "img/dot.png: image/png" in str(text)
    assert await limited(result.content, put_blob=bench.blobs.put) == (result.content, None)


async def test_read_file_describes_an_image_that_is_too_big(bench: ToolBench) -> None:
    """An image over the limit of providers is described."""
    bench.put("big.png", PIXEL + bytes(3_500_000))
    assert "too big to be shown" in await bench.text("read_file", path="big.png")


async def test_read_file_says_where_a_huge_file_ends_for_it(bench: ToolBench) -> None:
    """Of a file over the bound the beginning is read, and the answer says so."""
    with bench.put("huge.log", "first\n").open("r+b") as file:
        file.seek(6)
        for _ in range(MAX_FILE_BYTES // (1 << 20) + 1):
            file.write(b"x" * ((1 << 20) - 1) + b"\n")
    text = await bench.text("read_file", path="huge.log", limit=1)
    assert "     1\tfirst\n[lines 1-1 of at least 33; go on with offset=2" in text
    assert f"only the first {MAX_FILE_BYTES}" in await bench.text("read_file", path="huge.log", offset=33)


async def test_read_file_fails_clearly(bench: ToolBench) -> None:
    """What cannot be read is an error that says what to do instead."""
    bench.put("src/main.py", "x\n")
    bench.put("empty", "")
    os.mkfifo(bench.root / "pipe")
    assert await bench.text("read_file", path="empty") == "[The file is empty.]"
    word, text = await bench.error("read_file", path="src/mian.py")
    assert (word, "Did you mean 'src/main.py'?" in text) == ("path_not_found", True)
    word, text = await bench.error("read_file", path="nowhere/x")
    assert "'nowhere' is not there either" in text
    assert (await bench.error("read_file", path="src"))[0] == "is_directory"
    assert (await bench.error("read_file", path="pipe"))[0] == "not_a_file"
    assert (await bench.error("read_file", path="src/main.py", offset=9)) == (
        "offset",
        "There is no line 9: the file has 1 lines.",
    )
