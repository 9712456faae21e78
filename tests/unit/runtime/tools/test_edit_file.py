"""`edit_file` changes what it was told to, and nothing else."""

from __future__ import annotations

import asyncio
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kipu.runtime.tools.text_edit import Edited, EditFailure, TextEdit, apply_edits
from kipu.runtime.tools.text_file import TextFile
from tests.unit.runtime.tools.tool_bench import ToolBench, edit_arguments


async def test_edit_file_replaces_exactly_one_place(bench: ToolBench) -> None:
    """The named text is replaced, the rest and the mode of the file stay, and the answer shows the change."""
    file = bench.put("run.sh", "#!/bin/sh\necho one\necho two\n")
    file.chmod(0o750)
    result = await bench.read_and_edit("run.sh", ("echo one", "echo 1"))
    assert file.read_bytes() == b"#!/bin/sh\necho 1\necho two\n"
    assert file.stat().st_mode & 0o777 == 0o750
    assert "-echo one\n+echo 1\n" in result.content
    assert "1 place, +1 -1 lines" in result.content


async def test_edit_file_makes_all_edits_or_none(bench: ToolBench) -> None:
    """Each edit works on what the one before left; when one cannot be made the file stays byte for byte."""
    file = bench.put("a", "one\ntwo\n")
    await bench.text("read_file", path="a")
    word, text = await bench.error(
        "edit_file", path="a", edits=edit_arguments([("one", "1"), ("three", "3"), ("two", "2")])
    )
    assert word == "not_found"
    assert "Nothing was changed. Edit 2 of 3: old_text is not in the file." in text
    assert file.read_bytes() == b"one\ntwo\n"
    await bench.edit("a", ("one", "1 one"), ("1 one\ntwo", "x"))
    assert file.read_bytes() == b"x\n"


async def test_edit_file_can_edit_again_what_it_wrote(bench: ToolBench) -> None:
    """The session knows what it wrote itself: a second edit needs no second reading."""
    file = bench.put("a", "one\n")
    await bench.read_and_edit("a", ("one", "two"))
    assert not (await bench.edit("a", ("two", "three"))).is_error
    assert file.read_bytes() == b"three\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a\r\nb\r\nc\r\n", b"a\r\nx\r\ny\r\nc\r\n"),
        (b"\xef\xbb\xbfa\nb\nc\n", b"\xef\xbb\xbfa\nx\ny\nc\n"),
        ("\ufeffa\r\nb\r\nc".encode("utf-16-le"), "\ufeffa\r\nx\r\ny\r\nc".encode("utf-16-le")),
        (b"a\r\nb\nc\n\xfc", b"a\r\nx\ny\nc\n\xfc"),
        (b"a\nb\r\nc\rd\r\n", b"a\nx\r\ny\r\nc\rd\r\n"),
    ],
)
async def test_edit_file_keeps_line_endings_and_encoding(bench: ToolBench, before: bytes, after: bytes) -> None:
    """Line endings of either kind, byte order mark and encoding stay as they are."""
    file = bench.put("a", before)
    await bench.read_and_edit("a", ("b\n", "x\ny\n") if b"c" in before else ("b", "x"))
    assert file.read_bytes() == after


@pytest.mark.parametrize(
    ("data", "old", "word", "told"),
    [
        (
            "def f():\n\treturn 1\n",
            "def f():\n    return 1",
            "not_found",
            "indented by 1 tab in the file and by 4 spaces",
        ),
        ("a = 1  \nb\n", "a = 1\nb", "not_found", "line 1 ends with 2 spaces in the file and with nothing in old_text"),
        ("say “hi”\n", 'say "hi"', "not_found", "only look-alike characters differ"),
        (
            "x = compute(1)\ny = 2\n",
            "x = compute(2)",
            "not_found",
            "closest lines are 1-1; line 1 differs at character 13",
        ),
        ("one\n", "     1\tone", "not_found", "it has the line numbers of read_file in it"),
        ("one NEW\n", "old", "not_found", "new_text is there already, at line 1"),
        ("zzz\n", "completely different words", "not_found", "No lines in it are like it"),
        ("a\nb\na\n", "a", "not_unique", "old_text is there 2 times, at lines 1, 3."),
        ("a\n", "", "empty_old_text", "Use write_file for a new file"),
        ("NEW\n", "NEW", "no_change", "are the same"),
    ],
)
async def test_edit_file_says_why_it_cannot(bench: ToolBench, data: str, old: str, word: str, told: str) -> None:
    """A failure names the lines that come closest and what differs, or the lines where the text stands too often."""
    file = bench.put("a", data)
    await bench.text("read_file", path="a")
    result = await bench.edit("a", (old, "NEW"))
    assert (result.is_error, result.error_info) == (True, word)
    assert told in result.content
    assert file.read_bytes() == data.encode()


async def test_edit_file_replaces_all_when_asked(bench: ToolBench) -> None:
    """With replace_all every place is changed, and counted."""
    file = bench.put("a", "a b a\r\na\r\n")
    assert "3 places" in (await bench.read_and_edit("a", ("a", "c", True))).content
    assert file.read_bytes() == b"c b c\r\nc\r\n"


async def test_edit_file_refuses_what_it_has_not_read(bench: ToolBench) -> None:
    """A file that the session has not read, or not since it changed, is not edited; reading it allows it."""
    file = bench.put("a", "one\n")
    assert (await bench.edit("a", ("one", "two"))).error_info == "unread"
    await bench.text("read_file", path="a")
    file.write_bytes(b"one, changed by somebody else\n")
    stale = await bench.edit("a", ("one", "two"))
    assert (stale.error_info, "Read it again" in stale.content) == ("changed", True)
    assert file.read_bytes() == b"one, changed by somebody else\n"
    assert not (await bench.read_and_edit("a", ("one", "two"))).is_error


async def test_edit_file_knows_a_file_that_was_only_touched(bench: ToolBench) -> None:
    """Another time on a file with the same content is no change."""
    file = bench.put("a", "one\n")
    await bench.text("read_file", path="a")
    os.utime(file, ns=(1, 1))
    assert not (await bench.edit("a", ("one", "two"))).is_error


async def test_edit_file_refuses_when_the_file_changed_after_the_preview(bench: ToolBench) -> None:
    """What a person saw in the preview is what is changed, or nothing is."""
    file = bench.put("a", "one\n")
    await bench.text("read_file", path="a")
    preview = await bench.preview("edit_file", path="a", edits=edit_arguments([("one", "two")]))
    assert preview.summary == "edit a: +1 -1 lines"
    assert preview.diff == "--- a/a\n+++ b/a\n@@ -1,1 +1,1 @@\n-one\n+two\n"
    assert file.read_bytes() == b"one\n"
    file.write_bytes(b"one and more\n")
    assert (await bench.edit("a", ("one", "two"))).error_info == "changed"
    failing = await bench.preview("edit_file", path="a", edits=edit_arguments([("one", "two")]))
    assert ("which will fail" in failing.summary, failing.diff) == (True, None)


async def test_edit_file_makes_parallel_edits_of_one_file_one_by_one(bench: ToolBench) -> None:
    """Twenty edits of one file at once all stand: none is lost to another."""
    file = bench.put("a", "".join(f"<{number}>\n" for number in range(20)))
    await bench.text("read_file", path="a")
    results = await asyncio.gather(*(bench.edit("a", (f"<{number}>", f"[{number}]")) for number in range(20)))
    assert not any(result.is_error for result in results)
    assert file.read_bytes().decode() == "".join(f"[{number}]\n" for number in range(20))


async def test_edit_file_refuses_what_the_encoding_cannot_say(bench: ToolBench) -> None:
    """A character that the file's encoding lacks, or half of one, changes nothing."""
    file = bench.put("a", b"gr\xfcn\n")
    assert (await bench.read_and_edit("a", ("gr", "\u4e2d"))).error_info == "encoding"
    bench.put("b", "one\n")
    assert (await bench.read_and_edit("b", ("one", "\ud83d"))).error_info == "encoding"
    assert file.read_bytes() == b"gr\xfcn\n"


async def test_edit_file_refuses_binary_files_and_directories(bench: ToolBench) -> None:
    """Only text is edited."""
    bench.put("d/blob", b"one\x00two")
    assert (await bench.read_and_edit("d/blob", ("one", "two"))).error_info == "binary"
    assert (await bench.edit("d", ("one", "two"))).error_info == "not_a_file"
    assert (await bench.edit("none", ("one", "two"))).error_info == "path_not_found"


async def test_edit_file_reaches_one_file_by_all_its_names(bench: ToolBench) -> None:
    """A file read under one name may be edited under another, such as a link or an absolute path."""
    file = bench.put("sub/a", "one\n")
    (bench.root / "link").symlink_to("sub/a")
    await bench.text("read_file", path="link")
    assert not (await bench.edit(str(file), ("one", "two"))).is_error
    assert not (await bench.edit("link", ("two", "three"))).is_error
    assert (file.read_bytes(), (bench.root / "link").is_symlink()) == (b"three\n", True)


TEXTS = st.text(alphabet="ab \t\n\r\u4e2d", max_size=40)


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_edits_leave_what_they_do_not_name(before: str, old: str, after: str, new: str) -> None:
    """Whatever stands around the one occurrence stays character for character, and the rest is the new text."""
    text = before + old + after
    edited = apply_edits(text, [TextEdit(old, new)])
    plain_old, plain_new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    if isinstance(edited, EditFailure):
        places = text.replace("\r\n", "\n").count(plain_old)
        assert not plain_old or plain_old == plain_new or places != 1
        return
    plain = text.replace("\r\n", "\n")
    at = plain.index(plain_old)
    head, tail = _head(text, at), text[len(_head(text, at + len(plain_old))) :]
    assert edited.text in {f"{head}{put}{tail}" for put in (plain_new, plain_new.replace("\n", "\r\n"))}


def _head(text: str, plain_length: int) -> str:
    """Return the part of `text` that has `plain_length` characters once its line endings are plain."""
    at = 0
    for _ in range(plain_length):
        at += 2 if text.startswith("\r\n", at) else 1
    return text[:at]


@given(
    st.text(alphabet="ab\n", max_size=60),
    st.sampled_from(["\n", "\r\n"]),
    st.text(alphabet="b\n", min_size=1, max_size=3),
)
def test_edits_of_all_places_keep_one_kind_of_line_ending(text: str, newline: str, old: str) -> None:
    """A file with one kind of line ending still has only that kind after every edit."""
    file = TextFile(text.replace("\n", newline))
    edited = apply_edits(file.text, [TextEdit(old, "x\ny", replace_all=True)], newline=newline)
    if isinstance(edited, Edited):
        assert edited.text == text.replace(old, "x\ny").replace("\n", newline)


@given(st.binary(max_size=200))
def test_text_files_encode_to_the_bytes_they_came_from(data: bytes) -> None:
    """Whatever was taken for text gives the same bytes again."""
    for prefix in (b"", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff"):
        file = TextFile.decode(prefix + data)
        assert file is None or file.encoded() == prefix + data
