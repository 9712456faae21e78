"""Files read line by line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kipu.interop.source_line import SourceFile


@given(st.binary(max_size=200), st.integers(min_value=1, max_value=40))
def test_lines_are_every_byte_of_the_file(tmp_path_factory: pytest.TempPathFactory, data: bytes, limit: int) -> None:
    """Offsets and lengths cover the file; lines over the limit are named but not held; the others are exact."""
    path = tmp_path_factory.mktemp("lines") / "file"
    data = b"x" + data
    path.write_bytes(data)
    source = SourceFile(path, max_line_bytes=limit)
    expected = data.split(b"\n")
    offset = 0
    lines = list(source.lines())
    for line, wanted in zip(lines, expected, strict=False):
        assert line.offset == offset
        assert line.data == (wanted if len(wanted) <= limit else None)
        assert b"".join(source.parts(line.offset, line.length)) == wanted
        offset += len(wanted) + 1
    assert len(lines) == len(expected) - (expected[-1] == b"")


def test_what_is_appended_meanwhile_belongs_to_another_import(tmp_path: Path) -> None:
    """The file is read to where it ended when it was opened, so that digest and lines are of the same bytes."""
    path = tmp_path / "file"
    path.write_bytes(b"one\ntw")
    source = SourceFile(path)
    with path.open("ab") as file:
        file.write(b"o\nthree\n")
    assert [line.data for line in source.lines()] == [b"one", b"tw"]
