"""Results are cut so that the model can read on, and cleaned of what steers a terminal."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kipu.events.content import BlobReference
from kipu.events.conversation import ToolResultEvent
from kipu.manager.big_values import move_result
from kipu.runtime.tools.result_limit import DEFAULT_LIMIT, MIN_LIMIT, limited
from kipu.runtime.tools.terminal_text import model_text
from tests.unit.runtime.tools.tool_bench import Blobs, ToolBench

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=20), inner, max_size=6),
    max_leaves=20,
)


async def test_limited_keeps_what_fits() -> None:
    """Results within the limit stay as they are."""
    for content in ("text", "x" * DEFAULT_LIMIT, {"a": [1, None, "b"]}, 7, None, [{"type": "text", "text": "a"}]):
        assert await limited(content, put_blob=Blobs().put) == (content, None)


async def test_limited_cuts_text_and_keeps_the_whole() -> None:
    """Head and tail stay, the whole is in a blob, and the event needs no second cut."""
    blobs = Blobs()
    text = "".join(f"line {number}\n" for number in range(50_000))
    cut, reference = await limited(text, put_blob=blobs.put)
    assert reference is not None
    assert blobs.held[reference.digest] == text.encode()
    assert (reference.size, reference.media_type, reference.field) == (len(text), "text/plain", "result")
    assert len(cut) <= DEFAULT_LIMIT
    head, note, tail = re.split(r"\n(?=\[…)|(?<=…\])\n", cut)
    assert (text.startswith(head), text.endswith(tail)) == (True, True)
    assert f"digest='{reference.digest}', offset={len(head)}" in note
    assert move_result(ToolResultEvent(tool_call_id="c", result=cut, blob=reference)) is None


async def test_cut_results_can_be_read_to_their_end(bench: ToolBench) -> None:
    """Whoever follows the note of a cut result, and then those of read_result, gets the whole."""
    text = "".join(f"{number}: \u4e2d\u6587 {'x' * (number % 90)}\n" for number in range(4000))
    cut, reference = await limited(text, put_blob=bench.blobs.put)
    found = re.search(r"read_result\(digest='([0-9a-f]{64})', offset=(\d+)\)", cut)
    assert found is not None
    assert reference is not None
    assert found.group(1) == reference.digest
    whole, offset = text[: int(found.group(2))], int(found.group(2))
    while True:
        page = await bench.text("read_result", digest=reference.digest, offset=offset)
        assert await limited(page, put_blob=None) == (page, None)
        piece, note = page.rsplit("\n[", 1)
        whole += piece
        again = re.search(r"go on with offset=(\d+)", note)
        if again is None:
            break
        offset = int(again.group(1))
    assert whole == text


async def test_limited_cuts_json_as_text() -> None:
    """Big JSON is shown as the text of its head and tail; the blob holds it whole."""
    blobs = Blobs()
    value = {"rows": [{"id": number, "at": datetime(2026, 1, 1, tzinfo=UTC)} for number in range(3000)]}
    cut, reference = await limited(value, put_blob=blobs.put)
    assert reference is not None
    assert (isinstance(cut, str), reference.media_type) == (True, "application/json")
    assert len(orjson.loads(blobs.held[reference.digest])["rows"]) == 3000


async def test_limited_moves_media_into_blobs() -> None:
    """The bytes of content parts go to blobs, their texts are cut like others."""
    blobs, image = Blobs(), bytes(range(256)) * 100
    parts = [
        {"type": "text", "text": "x" * 20_000},
        {"type": "media", "media_type": "image/png", "data": base64.b64encode(image).decode()},
        {"type": "media", "media_type": "image/png", "data": "no base64!" * 2000},
        {"type": "text", "text": "y" * 20_000},
    ]
    cut, reference = await limited(parts, put_blob=blobs.put)
    assert reference is not None
    assert blobs.held[reference.digest] == b"x" * 20_000
    assert blobs.held[cut[1]["blob"]] == image
    assert ("data" in cut[1], cut[1]["size"]) == (False, len(image))
    assert cut[2] == {"type": "text", "text": "[image/png: its data is not base64]"}
    assert len(cut[0]["text"]) + len(cut[3]["text"]) <= DEFAULT_LIMIT + MIN_LIMIT
    bare, nothing = await limited(parts, put_blob=None)
    assert (bare[1]["text"], nothing) == ("[image/png, 25600 bytes: not kept]", None)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]never ended\nbut shown", "never ended\nbut shown"),
        ("\x1bPnever ended", "never ended"),
        ("cut\x1b[3", "cut"),
        ("cut\x1b", "cut"),
        ("\x9b31mC1", "C1"),
        ("10%\r50%\r100%\r\nnext", "100%\nnext"),
        ("a\x00b\x08c\x7f", "abc"),
        ("\ud83d\ude00 and \ud83d", "\U0001f600 and \ufffd"),
        ("tab\tand\nbreak", "tab\tand\nbreak"),
    ],
)
def test_model_text_leaves_out_what_steers_a_terminal(text: str, shown: str) -> None:
    """Sequences go whole, what they surround stays, and of a line that overwrote itself the last state."""
    assert model_text(text) == shown


@given(
    st.text(alphabet=st.characters(exclude_categories=()), max_size=400)
    | st.text(alphabet="\x1b[]P0m;\x07\r\nab\ud83d\ude00", max_size=80)
)
def test_model_text_is_clean_and_stays_so(text: str) -> None:
    """No control character but tab and line break is left, it can be encoded, and cleaning again changes nothing."""
    clean = model_text(text)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", clean)
    assert model_text(clean) == clean


@given(
    st.text(max_size=6000) | st.text(alphabet="a\u0301\u200d\U0001f468\n", min_size=1100, max_size=4000),
    st.integers(0, 2500),
)
async def test_limited_text_is_within_the_limit_and_whole_in_its_blob(text: str, limit: int) -> None:
    """Whatever the text: at most the limit, head and tail of it, no mark parted from its letter, all of it in the blob."""
    blobs = Blobs()
    cut, reference = await limited(text, put_blob=blobs.put, limit=limit)
    clean = model_text(text)
    bound = max(limit, MIN_LIMIT)
    assert len(cut) <= bound
    if len(clean) <= bound:
        assert (cut, reference) == (clean, None)
        return
    assert reference is not None
    assert blobs.held[reference.digest].decode() == clean
    head = cut.split("\n[… ")[0]
    assert clean.startswith(head)


@given(JSON, st.integers(1000, 2000))
async def test_limited_never_raises_for_a_value(value: Any, limit: int) -> None:
    """Any JSON, numbers beyond every range included, comes back as JSON that can be stored."""
    blobs = Blobs()
    cut, reference = await limited(value, put_blob=blobs.put, limit=limit)
    orjson.dumps(cut)
    assert (reference is None) == (not blobs.held)


async def test_limited_takes_what_no_serialiser_does() -> None:
    """Depth, odd keys and objects without an encoding are shown somehow."""
    deep: Any = "end"
    for _ in range(5000):
        deep = [deep]
    for value in (deep, {1: {2, 3}, b"k": object()}, float("nan"), 10**400, b"\xff", {"a": "\ud83d"}):
        cut, reference = await limited(value, put_blob=Blobs().put)
        orjson.dumps(cut)
        assert reference is None or isinstance(reference, BlobReference)


async def test_read_result_finds_a_place(bench: ToolBench) -> None:
    """With `find` it shows the part around the next occurrence."""
    digest = await bench.blobs.put(("x" * 30_000 + "ERROR here" + "y" * 30_000).encode())
    text = await bench.text("read_result", digest=digest, find="ERROR", limit=300)
    assert "ERROR here" in text
    assert "[characters 29800-30100 of 60010; go on with offset=30100]" in text
    assert "is not in the result" in await bench.text("read_result", digest=digest, find="ERROR", offset=40_000)


async def test_read_result_fails_clearly(bench: ToolBench) -> None:
    """An unknown digest, one of another session included, a wrong offset and bytes that are no text are errors."""
    digest = await bench.blobs.put(b"text")
    binary = await bench.blobs.put(b"\xff\xd8\xff")
    assert (await bench.error("read_result", digest="0" * 64))[0] == "blob_not_found"
    assert (await bench.error("read_result", digest="../../etc/passwd"))[0] == "digest_invalid"
    assert (await bench.error("read_result", digest=digest, offset=4))[0] == "offset"
    assert (await bench.error("read_result", digest=binary))[0] == "binary"
