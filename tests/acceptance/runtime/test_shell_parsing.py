"""What policies see of a command line: everything that a real shell runs, or that it cannot be told."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kipu.runtime.tools.shell_commands import OPAQUE, commands_of, is_opaque

PLAIN: list[tuple[str, list[str]]] = [
    ("ls", ["ls"]),
    ("  git status  ", ["git status"]),
    ("cd src && make test", ["cd src", "make test"]),
    ("make || echo failed; ls", ["make", "echo failed", "ls"]),
    ("make | tail -3 |& cat", ["make", "tail -3", "cat"]),
    ("make & ls &", ["make", "ls"]),
    ("ls\nrm x\n", ["ls", "rm x"]),
    ("echo 'a; rm x' \"b && c\" d\\;e", ["echo 'a; rm x' \"b && c\" d\\;e"]),
    ("make 2>&1 >out &>all", ["make 2>&1 >out &>all"]),
    ("ls # ; rm x", ["ls"]),
    ("echo a#b c", ["echo a#b c"]),
    ("echo \\ #; rm x", ["echo \\ #", "rm x"]),
    ("echo one \\\n two", ["echo one  two"]),
    ("(cd a; ls)", ["cd a", "ls"]),
    ("{ ls; rm x; }", ["ls", "rm x"]),
    ("! test -f x", ["test -f x"]),
    ("if true; then ls; else rm x; fi", ["true", "ls", "rm x"]),
    ("bash -c 'ls; rm x'", ["ls", "rm x"]),
    ("/bin/sh -ec \"rm 'a b'\"", ["rm 'a b'"]),
    ("bash -c \"bash -c 'rm x'\"", ["rm x"]),
    ("eval 'rm x' y", ["rm x y"]),
    ("timeout 5 make test", ["make test"]),
    ("timeout -k 5 --signal=KILL 10 nice -n5 nohup make", ["make"]),
    ("env make", ["make"]),
    ("env A=1 make", ["A=1 make", "make"]),
    ("A=1 B='2 3' make", ["A=1 B='2 3' make", "make"]),
    ("sudo -u bob rm x", ["sudo -u bob rm x", "rm x"]),
    ("command -v ls", ["command -v ls"]),
    ("echo $?", ["echo $?"]),
    ("", []),
    (" ; \n", []),
]
# What must never look like something plain, whatever else is said of it.
UNSEEN = [
    *("echo $(rm x)", "echo `rm x`", 'echo "$(rm x)"', "echo $X", 'echo "${X:-$(rm x)}"', "$X", "cat <(rm x)"),
    *("cat <<EOF\nrm x\nEOF", "bash <<< 'rm x' <<E\nE", "for i in a; do rm $i; done", "while :; do rm $x; done"),
    *("f() { rm x; }; f", "function f { rm x; }", "alias ls='rm x'", "case x in x) rm y;; esac", "[[ -v x ]]"),
    *("xargs rm", "ls | xargs rm", "find . -exec rm {} +", "fd -x rm", "git -c core.pager='rm x' log", "env -S 'rm x'"),
    *(
        "timeout --unknown 5 rm x",
        "bash --rcfile x -c 'ls'",
        "bash -c",
        "su -c 'rm x'",
        "ssh host rm x",
        "source x",
        ". x",
    ),
    *(
        "/bin/r[m] x",
        "{rm,-rf,x}",
        "r? x",
        "~/x",
        "> out rm x",
        "echo 'unfinished",
        'echo "unfinished',
        "echo (",
        "echo )",
    ),
    *(
        "ls \\",
        "a=(1 2)",
        "((x = 1))",
        "$'\\x72m' x",
        "rm\rx",
        "ls\x00rm x",
        "rm\u2028x",
        "ls\u00a0x",
        "trap 'rm x' EXIT",
    ),
    *(
        "coproc rm x",
        "test -v 'a[$(rm x)]'",
        "busybox rm x",
        "export PATH=.",
        "'' x",
        "watch rm x",
        "sudo -i",
        "exec -a ls rm x",
    ),
    "x" * 20_000,
]
# Fragments that a shell puts together in its own way; `victim` is what must not run unseen.
FRAGMENTS = [
    *(
        "victim",
        "echo",
        "ls",
        "true",
        "'",
        '"',
        "\\",
        "`",
        "$(",
        ")",
        "(",
        "{ ",
        "; }",
        "#",
        " #",
        "\\ #",
        "\n",
        "\\\n",
        ";",
    ),
    *(
        "&&",
        "||",
        "|",
        "|&",
        "&",
        "&>f",
        ">&2",
        ">f",
        ">|f",
        "<f",
        "<<<",
        "<<E\n",
        "\nE\n",
        "<(",
        ">(",
        "$",
        "${x",
        "}",
        "x=",
    ),
    *(
        "bash -c ",
        "eval ",
        "env ",
        "timeout 5 ",
        "nice ",
        "command ",
        "exec ",
        "time ",
        "! ",
        "if ",
        "then ",
        "fi",
        "do ",
        "done",
    ),
    *(
        "while ",
        "for x in ",
        "case x in ",
        "esac",
        ";;",
        "f() ",
        "[[ ",
        "]]",
        "((",
        "))",
        "-c",
        "--",
        "$'",
        "\\'",
        "\\n",
        "''",
        '""',
    ),
    *("v", "ictim", "{victim,a}", "*", "?", "~", "=", "A=1 ", "x[0]=", "\t", " ", " ", " ", "\x0b", "\u00a0", "é"),
]


@pytest.mark.parametrize(("line", "commands"), PLAIN)
def test_commands_are_taken_apart(line: str, commands: list[str]) -> None:
    """Lists, pipes, groups, shells and wrappers are seen through, and what is quoted stays whole (A19)."""
    assert commands_of(line) == commands


@pytest.mark.parametrize("line", UNSEEN)
def test_commands_that_cannot_be_seen_are_opaque(line: str) -> None:
    """Whatever is only known at run time is reported as such, so that no allowing pattern matches all of the line (A19)."""
    commands = commands_of(line)
    assert any(is_opaque(command) for command in commands)
    assert all(command.startswith(OPAQUE) == is_opaque(command) for command in commands)


@pytest.mark.parametrize(
    "line", ["echo $(rm x)", "ls `rm x`", "cat <(rm x)", 'echo "a $(b \'c\' "$(rm x)")"', "x=$(rm x)"]
)
def test_commands_within_substitutions_are_reported_too(line: str) -> None:
    """What a substitution runs is a command of its own, so that a denying pattern sees it (A19)."""
    assert "rm x" in commands_of(line)


def test_commands_are_found_in_bounded_time_and_depth() -> None:
    """Deep nesting is opaque, never an endless search or a crash."""
    for line in [
        "(" * 5_000,
        "$(" * 5_000,
        "`" * 5_000,
        "sudo " * 3_000 + "x",
        "! " * 5_000,
        '"$(' * 3_000,
    ]:
        assert any(map(is_opaque, commands_of(line))), line[:10]
    nested = "rm x"
    for _ in range(12):
        nested = "bash -c " + "'" + nested.replace("'", "'\\''") + "'"
    assert any(map(is_opaque, commands_of(nested)))


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder of programs of which one leaves a mark."""
    folder = tmp_path_factory.mktemp("programs")
    for name in ["env", "timeout", "nice", "bash", "sh", "sleep"]:
        found = shutil.which(name, path="/usr/bin:/bin")
        if found is not None:
            (folder / name).symlink_to(found)
    for name in ["ls", "v", "ictim", "E", "x", "f"]:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    (folder / "victim").write_text(f"#!/bin/sh\n: > {folder}/mark\n")
    (folder / "victim").chmod(0o755)
    return folder


def runs_victim(line: str, recorder: Path) -> bool:
    """Tell whether a real shell runs the program for the line."""
    mark = recorder / "mark"
    mark.unlink(missing_ok=True)
    work = recorder / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    command = ["/bin/bash", "-c", f'ulimit -u 400 -f 64 -t 2; PATH={recorder}; eval "$LINE"']
    environment = {"PATH": str(recorder), "LINE": line.replace("\0", "")}
    with subprocess.Popen(
        ["timeout", "-k", "1", "2", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=work,
        env={**environment, "PATH": f"{recorder}:/usr/bin:/bin"},
    ) as shell:
        shell.wait()
    return mark.exists()


def is_seen(line: str) -> bool:
    """Tell whether what `commands_of` says would stop somebody who allows all but the program."""
    commands = commands_of(line)
    return any(
        is_opaque(command) or not command.startswith(("ls", "echo", "true", "v ", "f", "x ")) for command in commands
    )


@pytest.mark.parametrize("line", [line.replace("rm", "victim") for line in UNSEEN[:30]])
def test_red_team_lines_do_not_run_unseen(line: str, recorder: Path) -> None:
    """A line that makes a real shell run a program never looks as if it ran harmless ones only (A19)."""
    assert is_seen(line) or not runs_victim(line, recorder)


@pytest.mark.parametrize(
    "line", ["victim", "if ls; then eval 'bash -c victim'; fi", "timeout 5 env A=1 nice victim", "vic\\tim"]
)
def test_programs_are_noticed_when_they_run(line: str, recorder: Path) -> None:
    """What really runs is noticed by these tests and reported by the parser: the comparison can fail."""
    assert runs_victim(line, recorder)
    assert is_seen(line)


@settings(max_examples=400)
@given(st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=9))
def test_random_lines_do_not_run_unseen(recorder: Path, pieces: list[str]) -> None:
    """Whatever fragments of the shell's grammar are put together, a program that really runs was reported (A19)."""
    line = "".join(pieces)
    if not is_seen(line):
        assert not runs_victim(line, recorder), (line, commands_of(line))
