"""How an event stands in its file."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest

from kipu.errors import InputError
from kipu.ports.head import HeadPatch
from kipu.ports.store import Binding, Record
from tests.unit.stores.jsonl.kit import TIME, begin, log_of, opened, record

BODIES = [
    b"{}",
    b"{ }",
    b'{ "a" : 1 , "b":[1.50,1e3] }',
    b'{"key":"k","seq":99,"c":"00000000","b":1,"session_id":"x"}',
    '{"a":"\u2028 \\u2028 \\\\u2028 \u0085 \u2029","悬":"空"}'.encode(),
    b'{"a":"\\u0000\\u001b[2J\\\\"}',
]


async def test_line_gives_its_body_back_byte_for_byte(tmp_path: Path) -> None:
    """Whatever names, spaces and separators a body has, it is read as it was given (JL-4, JL-6, situation 9)."""
    async with opened(tmp_path) as store:
        await begin(store)
        await store.append("one", [Record(f"e{n}", "note", TIME, body) for n, body in enumerate(BODIES)])
    async with opened(tmp_path) as store:
        assert [event.record.body for event in await store.read("one", after=1)] == BODIES


async def test_line_is_one_json_object_that_no_text_reader_splits(tmp_path: Path) -> None:
    """Each line is JSON, and `splitlines` sees as many lines as there are newlines (JL-4, JL-6, B8)."""
    async with opened(tmp_path) as store:
        await begin(store, title="a\u2028b")
        await store.append("one", [Record(f"e{n}", "note", TIME, body) for n, body in enumerate(BODIES)])
    data = log_of(tmp_path).read_bytes()
    assert len(data.decode().splitlines()) == data.count(b"\n") == len(BODIES) + 1
    for line in data.split(b"\n")[:-1]:
        assert list(json.loads(line))[:2] == ["seq", "b"]


async def test_line_ends_with_the_checksum_of_what_is_before(tmp_path: Path) -> None:
    """The last 17 bytes are the checksum, and `b` bytes before them are the body's fields (JL-4, JL-5)."""
    async with opened(tmp_path) as store:
        await begin(store)
        await store.append("one", [record("x")])
    line = log_of(tmp_path).read_bytes().split(b"\n")[1] + b"\n"
    assert line[-17:] == b',"c":"%08x"}\n' % zlib.crc32(line[:-17])
    assert line[-17 - json.loads(line)["b"] : -17] == b'"content":"x"'


async def test_line_of_a_batch_says_its_place_and_the_last_carries_the_rest(tmp_path: Path) -> None:
    """Patch, key and binding stand on the last line only, the place in the batch on every one (JL-4)."""
    async with opened(tmp_path) as store:
        await begin(store)
        await store.append(
            "one",
            [record("a"), record("b"), record("c")],
            head=HeadPatch(set={"title": "t"}),
            idempotency_key="k",
            bind=Binding("chat:1"),
        )
    lines = [json.loads(line) for line in log_of(tmp_path).read_bytes().split(b"\n")[1:-1]]
    assert [line["batch"] for line in lines] == [[1, 3], [2, 3], [3, 3]]
    assert [sorted({"head", "retry", "bind"} & set(line)) for line in lines] == [[], [], ["bind", "head", "retry"]]
    assert lines[2]["bind"] == ["chat:1", None, 1]


@pytest.mark.parametrize("body", [b'{"a":\n1}', b"[1]", b"", b'{"a":"\0"}'])
async def test_line_refuses_a_body_that_is_no_object_on_one_line(tmp_path: Path, body: bytes) -> None:
    """A body that would break the file is refused, and nothing is written (JL-4)."""
    async with opened(tmp_path) as store:
        await begin(store)
        before = log_of(tmp_path).read_bytes()
        with pytest.raises(InputError):
            await store.append("one", [Record("e", "note", TIME, body)])
        assert log_of(tmp_path).read_bytes() == before
