"""Files of sessions that are kept in the store: whichever machine takes the next turn has them (B61)."""

from __future__ import annotations

from pathlib import Path

from kipu.wiring import open_manager
from tests.acceptance.workspaces.machines import done, machine, results


def write(path: str, content: str) -> tuple[str, dict[str, str]]:
    return "write_file", {"path": path, "content": content}


def shell(command: str) -> tuple[str, dict[str, str]]:
    return "shell", {"command": command}


async def test_files_are_there_for_the_next_turn_on_another_machine(tmp_path: Path) -> None:
    """What one machine's turn wrote, another's reads and edits, and the first sees that again (B61)."""
    url = f"sqlite:///{tmp_path}/store.db"
    first, second = tmp_path / "a", tmp_path / "b"
    async with await open_manager(url) as manager:
        async with machine(url, first, workspaces_mode="stored"):
            await done(
                manager, write("src/a.txt", "one\n"), shell("mkdir empty; ln -s src/a.txt link; chmod 755 src/a.txt")
            )
        async with machine(url, second, workspaces_mode="stored"):
            edits = [{"old_text": "one", "new_text": "two"}]
            events = await done(
                manager,
                ("read_file", {"path": "src/a.txt"}),
                ("edit_file", {"path": "src/a.txt", "edits": edits}),
                shell("stat -c %a src/a.txt; readlink link; ls -d empty"),
            )
            assert "one" in results(events)[0]
            assert "755\nsrc/a.txt\nempty" in results(events)[2], results(events)
        async with machine(url, first, workspaces_mode="stored"):
            assert "two" in results(await done(manager, ("read_file", {"path": "src/a.txt"})))[0]
