"""Which commands make a store, and where none is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.command_line import CommandLine

READING = (
    ("ls",),
    ("show", "sess_none"),
    ("search", "word"),
    ("stats",),
    ("verify",),
    ("window", "sess_none"),
    ("replay", "sess_none"),
    ("export", "sess_none"),
    ("rename", "sess_none", "title"),
    ("trash", "sess_none"),
    ("erase", "sess_none", "--yes"),
)


@pytest.mark.parametrize("words", READING, ids=lambda words: words[0])
def test_commands_make_no_store_when_the_url_leads_nowhere(kipu: CommandLine, words: tuple[str, ...]) -> None:
    """What works on a store does not make one: it says which path, and what makes one, and ends with 3."""
    ran = kipu.run(*words)
    assert (ran.code, ran.stdout) == (3, "")
    assert "[store_not_found]" in ran.stderr
    assert "kipu chat" in ran.stderr
    assert str(kipu.home / "sessions") in ran.stderr
    assert list(kipu.home.iterdir()) == []


def test_copy_makes_no_store_when_its_source_is_not_there(kipu: CommandLine) -> None:
    """A source that is not there is not made, and neither is the target."""
    ran = kipu.run("copy", kipu.store, f"jsonl:///{kipu.home / 'target'}")
    assert (ran.code, "[store_not_found]" in ran.stderr) == (3, True)
    assert list(kipu.home.iterdir()) == []


def test_ls_of_a_new_user_says_that_there_are_no_sessions(tmp_path: Path) -> None:
    """Who named no store and has none yet gets an empty list without an error, and nothing is made."""
    kipu = CommandLine(tmp_path, "")
    ran = kipu.run("ls")
    assert (ran.code, ran.stdout, "no sessions yet" in ran.stderr) == (0, "", True)
    assert kipu.run("ls", "--json").json == []
    assert list(tmp_path.iterdir()) == []
    assert kipu.chat("hello").code == 0
    assert len(kipu.ids()) == 1


@pytest.mark.parametrize("words", [("ls",), ("verify",), ("chat",)], ids=lambda words: words[0])
def test_a_folder_of_other_files_is_no_store(tmp_path: Path, words: tuple[str, ...]) -> None:
    """An ordinary folder is refused, for writing too, and nothing is put into it."""
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "letter.txt").write_text("dear")
    ran = CommandLine(tmp_path, f"jsonl:///{folder}").run(*words, stdin="hello\n")
    assert (ran.code, ran.stdout, "[store_url]" in ran.stderr) == (2, "", True)
    assert "empty" in ran.stderr
    assert [path.name for path in folder.iterdir()] == ["letter.txt"]
    source = CommandLine(tmp_path, f"sqlite:///{tmp_path / 'a.db'}")
    source.chat("hello")
    assert source.run("copy", source.store, f"jsonl:///{folder}").code == 2
    assert [path.name for path in folder.iterdir()] == ["letter.txt"]


def test_an_empty_folder_becomes_a_store_and_one_without_its_marker_stays_one(tmp_path: Path) -> None:
    """An empty folder may be made a store by writing, not by reading; a store that lost kipu.json is still read."""
    folder = tmp_path / "sessions"
    folder.mkdir()
    kipu = CommandLine(tmp_path, f"jsonl:///{folder}")
    assert kipu.run("ls").code == 3
    assert list(folder.iterdir()) == []
    assert kipu.chat("hello").code == 0
    (folder / "kipu.json").unlink()
    assert len(kipu.ids()) == 1
    for path in folder.iterdir():
        if path.is_file():
            path.unlink()
    assert len(kipu.ids()) == 1


@pytest.mark.parametrize("options", [(), ("--cut-over",)], ids=["copy", "move"])
@pytest.mark.parametrize("name", ["dotted", "linked", "hard"])
def test_a_store_is_not_copied_to_itself_under_another_name(
    kipu: CommandLine, name: str, options: tuple[str, ...]
) -> None:
    """A store that is also the target, however that is written, is refused as it is, and goes on taking messages (C22)."""
    kipu.chat("hello")
    place = kipu.home / kipu.store.rpartition("/")[2]
    if name == "hard" and place.is_dir():
        pytest.skip("folders have no second name")
    other = {"dotted": kipu.home / ".." / kipu.home.name / place.name}.get(name, kipu.home / "other")
    if name == "linked":
        other.symlink_to(place)
    if name == "hard":
        other.hardlink_to(place)
    ran = kipu.run("copy", kipu.store, f"{kipu.store.partition(':')[0]}:///{other}", *options)
    assert (ran.code, "both stores are the same" in ran.stderr) == (2, True)
    assert kipu.chat("another").code == 0
