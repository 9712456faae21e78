"""The shell tool: what it returns, what it shows while it runs, and what its commands get."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kipu.runtime.sandbox.limits import CommandLimits
from kipu.runtime.sandbox.opening import open_sandbox
from kipu.runtime.sandbox.probe import BubblewrapProbe
from tests.acceptance.runtime.shell_session import KINDS, open_shell, output_of

pytestmark = pytest.mark.parametrize("kind", KINDS)


async def test_shell_returns_output_in_order_and_exit_code(tmp_path: Path, kind: str) -> None:
    """Both streams come in the order in which they were written, live and in the result, and a failure is an error."""
    async with open_shell(tmp_path / "w", kind) as session:
        result = await session.shell("echo one; echo two >&2; echo three >/dev/stdout; echo four >/dev/stderr; exit 3")
        assert output_of(result) == "one\ntwo\nthree\nfour\n"
        assert str(result.content).startswith("exit code 3 after ")
        assert result.is_error
        assert result.error_info == "exit_code"
        assert "".join(session.live) == "one\ntwo\nthree\nfour\n"
        assert not (await session.shell("true")).is_error


async def test_shell_runs_in_the_workspace_and_its_directories(tmp_path: Path, kind: str) -> None:
    """A command starts at the root or in a directory beneath it, and nowhere else (A19)."""
    root = tmp_path / "w"
    (root / "sub dir").mkdir(parents=True)
    (root / "out").symlink_to(tmp_path)
    async with open_shell(root, kind) as session:
        assert await session.text("pwd") == f"{root}\n"
        assert await session.text("pwd", cwd="sub dir") == f"{root}/sub dir\n"
        for outside, word in [
            ("..", "path_outside"),
            ("/etc", "path_outside"),
            ("out", "path_outside"),
            ("no", "not_found"),
        ]:
            result = await session.shell("pwd", cwd=outside)
            assert (result.is_error, result.error_info) == (True, word), outside


async def test_shell_leaves_files_to_the_owner_of_the_workspace(tmp_path: Path, kind: str) -> None:
    """What a command makes belongs to whom the workspace belongs, who may change and remove it (B41)."""
    root = tmp_path / "w"
    async with open_shell(root, kind) as session:
        await session.text("mkdir d; echo made > d/f; echo kept > old; chmod 600 d/f; git init -q . 2>/dev/null; true")
        (root / "mine").write_text("by hand")
        await session.text("cat mine; echo more >> mine")
    owner = root.stat().st_uid
    assert {path.stat().st_uid for path in root.rglob("*")} == {owner}
    assert (root / "d/f").read_text() == "made\n"
    assert (root / "mine").read_text() == "by handmore\n"
    (root / "d/f").write_text("changed")
    (root / "d/f").unlink()


async def test_shell_does_not_run_as_root(tmp_path: Path, kind: str) -> None:
    """When Kipu is root's, commands are a user of their session, another one in another session, who reads no shadow file."""
    if os.geteuid() != 0:
        pytest.skip("this run is not root's")
    seen = []
    for session_id in ["sess_a", "sess_b"]:
        async with open_shell(tmp_path / session_id, kind, session_id=session_id) as session:
            assert session.tools.shell.is_sandboxed == (kind == "bubblewrap")
            seen.append(int(await session.text("id -u")))
            result = await session.shell("cat /etc/shadow")
            assert result.is_error
            assert "root:" not in str(result.content)
    assert 0 not in seen
    assert len(set(seen)) == 2


async def test_shell_gives_commands_only_the_environment_they_should_have(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of this process's variables none reaches a command but PATH; the session's do, and credentials for their call only."""
    monkeypatch.setenv("KIPU_TEST_SECRET", "of the process")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    async with open_shell(tmp_path / "w", kind) as session:
        session.environment = {"GREETING": "hello\nworld=1", "LANG": "C", "": "no name", "A=B": "no name"}
        lines = await session.text("env -0 | tr '\\0\\n' '\\n ' | sort")
        names = {line.partition("=")[0] for line in lines.splitlines()}
        assert names - {"KIPU_COMMAND", "TMPDIR"} == {"GREETING", "HOME", "LANG", "PATH", "PWD", "SHLVL", "TERM", "_"}
        assert "GREETING=hello world=1" in lines
        assert "LANG=C\n" in lines
        given = await session.tools.shell.run({"command": "echo $TOKEN"}, session.context({"TOKEN": "s3cret"}))
        assert output_of(given) == "s3cret\n"
        assert await session.text("echo $TOKEN") == "\n"


async def test_shell_has_a_home_and_temporary_files_of_its_own(tmp_path: Path, kind: str) -> None:
    """HOME and the place for temporary files are the session's, last over its commands, and are gone after it (B41, B49)."""
    async with open_shell(tmp_path / "w", kind) as session:
        await session.text('echo kept > ~/file; echo kept > "${TMPDIR:-/tmp}/file"')
        assert await session.text('cat ~/file "${TMPDIR:-/tmp}/file"') == "kept\nkept\n"
        places = [place for place in session.tools.shell._table.sandbox.writable if place != session.root]
        assert all((place / "file").is_file() for place in places)
    assert not any(place.exists() for place in places)


async def test_shell_reads_nothing(tmp_path: Path, kind: str) -> None:
    """Standard input is empty: what asks for input gets its end and does not hang."""
    async with open_shell(tmp_path / "w", kind) as session:
        assert await session.text('cat; read -r line; echo "end:$line"') == "end:\n"


async def test_shell_decodes_characters_that_come_in_pieces(tmp_path: Path, kind: str) -> None:
    """A character whose bytes come one by one is shown whole, and bytes that are none become a mark."""
    async with open_shell(tmp_path / "w", kind) as session:
        command = "printf '\\xe4'; sleep 0.1; printf '\\xbd'; sleep 0.1; printf '\\xa0\\n'; printf 'a\\xffb\\n'"
        assert await session.text(command) == "你\na\ufffdb\n"
        assert "".join(session.live) == "你\na\ufffdb\n"


async def test_shell_bounds_what_it_keeps_of_a_flood(tmp_path: Path, kind: str) -> None:
    """Of a flood the beginning, the end and the count are kept, and only so much is shown live; memory does not grow."""
    limits = CommandLimits(kept_output_bytes=100_000, live_bytes_per_s=10_000)
    async with open_shell(tmp_path / "w", kind, limits=limits) as session:
        before = _resident_kb()
        result = await session.shell("echo first; yes | head -c 300000000; echo last")
        assert not result.is_error
        output = output_of(result)
        assert output.startswith("first\ny\n")
        assert output.endswith("y\nlast\n")
        assert len(output) < 160_000
        assert "bytes left out …]" in output
        assert "bytes not shown …]" in "".join(session.live)
        assert len("".join(session.live)) < 10_000 * 60
        assert _resident_kb() - before < 40_000


async def test_shell_refuses_command_lines_that_cannot_be_passed_on(tmp_path: Path, kind: str) -> None:
    """A command line that no program can be given is a result that says why, and a long one that can is run."""
    async with open_shell(tmp_path / "w", kind) as session:
        for command, word in [("echo \0", "invalid"), ("echo \ud800", "invalid"), ("#" * 200_000, "too_long")]:
            result = await session.shell(command)
            assert (result.is_error, result.error_info) == (True, word)
        assert await session.text("echo " + "x" * 100_000) == "x" * 100_000 + "\n"


async def test_shell_says_what_confines_it(tmp_path: Path, kind: str) -> None:
    """The tool tells policies whether a sandbox is in force, and people in its description and preview; it always asks (A19)."""
    async with open_shell(tmp_path / "w", kind) as session:
        shell = session.tools.shell
        assert shell.spec.default_policy == "ask"
        assert shell.is_sandboxed == (kind == "bubblewrap")
        assert shell.spec.is_external == (kind == "none")
        preview = await shell.preview({"command": "make", "cwd": "src", "background": True}, session.context())
        assert preview.summary.startswith("make (in src) (in the background)")
        assert ("without a sandbox" in preview.summary) == (kind == "none")
        assert ("without a sandbox (the test wants none)" in shell.spec.description) == (kind == "none")
        assert shell.subject({"command": "make -j2"}) == "make -j2"


async def test_shell_starts_nothing_after_its_end(tmp_path: Path, kind: str) -> None:
    """A closed session's tools start nothing, and may be closed again (B49)."""
    async with open_shell(tmp_path / "w", kind) as session:
        await session.tools.aclose()
        result = await session.shell("touch made")
        assert result.is_error
        assert result.error_info == "sandbox"
        assert not (session.root / "made").exists()


async def test_sandbox_says_why_there_is_none(tmp_path: Path, kind: str) -> None:
    """Where bubblewrap does not work the reason is kept for people, and who requires it gets no shell at all."""
    from kipu.errors import SandboxError

    del kind
    probe = BubblewrapProbe(None, "namespaces are forbidden")
    sandbox = await open_sandbox(tmp_path, session_id="s", probe=probe)
    assert not sandbox.report.is_in_force
    assert "namespaces are forbidden" in sandbox.report.sentence()
    await sandbox.aclose()
    with pytest.raises(SandboxError, match="namespaces are forbidden"):
        await open_sandbox(tmp_path, session_id="s", probe=probe, choice="required")


def _resident_kb() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0
