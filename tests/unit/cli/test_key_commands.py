"""`kipu key`, `encrypt`, `decrypt` and `verify --chain`: every command opens an encrypted store without being told again."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from kipu.cli.exit_code import ExitCode
from kipu.security.key_file import key_line
from kipu.testing.conformance.erasing import files_with
from tests.unit.cli.command_line import KIPU, CommandLine

WORD = "canary7f3a9"
HOLDER = """
import asyncio, sys
from kipu import open_manager

async def main():
    async with await open_manager(sys.argv[1]):
        print("open", flush=True)
        sys.stdin.readline()

asyncio.run(main())
"""


def test_a_store_is_encrypted_and_every_command_opens_it(kipu: CommandLine, tmp_path: Path) -> None:
    """After `key init` and `encrypt` all commands work with the store's plain URL, and no file has a word of it (B55, C20)."""
    kipu.chat(f"hello {WORD}")
    made = kipu.run("key", "init", "file:keys/mine", "--json")
    assert (made.code, made.json["made"], made.json["encrypted"]) == (0, True, False)
    done = kipu.run("encrypt", "--key", "file:keys/mine", "--chain", "--json")
    assert (done.code, done.json["sessions"], done.json["kept"]) == (0, 1, None)
    assert files_with(tmp_path, WORD) == []
    (session_id,) = kipu.ids()
    assert kipu.head(session_id)["title"] or WORD in str(kipu.head(session_id))
    for words in (
        ("search", WORD),
        ("show", session_id),
        ("window", session_id),
        ("stats",),
        ("verify",),
        ("export", session_id, "-o", str(tmp_path / "out.jsonl")),
        ("fork", session_id),
        ("rename", session_id, "new name"),
        ("copy", kipu.store, f"sqlite:///{tmp_path}/copy.db", "--decrypt"),
        ("queue", session_id),
        ("approvals",),
        ("scan",),
    ):
        ran = kipu.run(*words)
        assert ran.code == 0, (words, ran.stderr)
    assert kipu.chat("again", options=("--continue",)).code == 0
    assert kipu.process("ls", "--json").json
    assert kipu.run("key", "status", "--json").json["state"] == "opens"
    assert kipu.run("key").code == 0


def test_a_store_is_encrypted_from_its_beginning(kipu_sqlite: CommandLine, tmp_path: Path) -> None:
    """`key init` for a store that holds nothing makes it encrypted; again it is refused; fields alone can be chosen (B55)."""
    made = kipu_sqlite.run("key", "init", "file:key", "--fields", "content,result", "--json")
    assert made.json["encrypted"]
    assert kipu_sqlite.run("key", "init", "file:key").code == ExitCode.USAGE
    kipu_sqlite.chat(f"hello {WORD}")
    state = kipu_sqlite.run("key", "status", "--json").json
    assert (state["state"], state["fields"], state["sessions"]) == ("opens", ["content", "result"], 1)
    assert WORD in str(kipu_sqlite.head(kipu_sqlite.ids()[0]))
    assert files_with(tmp_path, WORD) == []
    connection = apsw.Connection(str(tmp_path / "sessions.db"))
    bodies = "".join(str(row[0]) for row in connection.execute("SELECT CAST(body AS TEXT) FROM events"))
    connection.close()
    assert '"channel"' in bodies


def test_a_passphrase_comes_from_the_environment(kipu: CommandLine) -> None:
    """With KIPU_PASSPHRASE commands work; without it and a terminal they end with 2, with a wrong one with 5 (A50, B55)."""
    kipu.chat("hello")
    kipu.environment["KIPU_PASSPHRASE"] = "correct horse"
    assert kipu.run("encrypt", "--key", "passphrase").code == 0
    assert len(kipu.ids()) == 1
    kipu.environment["KIPU_PASSPHRASE"] = "wrong horse"
    wrong = kipu.run("ls")
    assert (wrong.code, "[key_unavailable]" in wrong.stderr, "kipu key status" in wrong.stderr) == (5, True, True)
    state = kipu.run("key", "status", "--json")
    assert (state.code, state.json["state"]) == (5, "wrong_key")
    del kipu.environment["KIPU_PASSPHRASE"]
    missing = kipu.run("ls")
    assert (missing.code, "KIPU_PASSPHRASE" in missing.stderr) == (2, True)
    kipu.environment |= {"KIPU_PASSPHRASE": "correct horse", "KIPU_NEW_PASSPHRASE": "battery"}
    assert kipu.run("key", "rotate").code == 0
    assert kipu.run("ls").code == 5
    kipu.environment["KIPU_PASSPHRASE"] = "battery"
    assert len(kipu.ids()) == 1
    assert kipu.run("decrypt").code == 0
    del kipu.environment["KIPU_PASSPHRASE"]
    assert len(kipu.ids()) == 1
    assert kipu.run("key", "status", "--json").json["state"] == "plain"


def test_a_passphrase_is_asked_for_on_a_terminal(kipu_sqlite: CommandLine) -> None:
    """On a terminal the passphrase is asked for, is not shown, and opens the store (B55)."""
    kipu_sqlite.chat("hello")
    kipu_sqlite.environment["KIPU_PASSPHRASE"] = "correct horse"
    assert kipu_sqlite.run("encrypt", "--key", "passphrase").code == 0
    del kipu_sqlite.environment["KIPU_PASSPHRASE"]
    main, side = pty.openpty()
    process = subprocess.Popen(
        [*KIPU, "stats", "--json"],
        stdin=side,
        stdout=subprocess.PIPE,
        stderr=side,
        env=kipu_sqlite.process_environment(),
        start_new_session=True,
    )
    os.close(side)
    seen = b""
    while b"Passphrase of the store" not in seen:
        seen += os.read(main, 1000)
    os.write(main, b"correct horse\n")
    out, _ = process.communicate(timeout=60)
    os.close(main)
    assert process.returncode == 0
    assert b'"sessions"' in out
    assert b"correct" not in seen


def test_the_key_is_named_by_variable_or_configuration(kipu_sqlite: CommandLine, tmp_path: Path) -> None:
    """KIPU_KEY wins over the configuration's `key`, that over what the vault remembers; an unset variable says so (B55, EN-14)."""
    kipu_sqlite.chat("hello")
    line = kipu_sqlite.run("key", "init", "env:MY_KEY")
    assert line.stdout.startswith("kipu-key-1 ")
    kipu_sqlite.environment["MY_KEY"] = line.stdout.strip()
    assert kipu_sqlite.run("encrypt", "--key", "env:MY_KEY").code == 0
    assert len(kipu_sqlite.ids()) == 1
    kipu_sqlite.environment["OTHER"] = key_line(bytes(32)).strip()
    assert kipu_sqlite.run("config", "set", "key", "env:OTHER").code == 0
    assert kipu_sqlite.run("ls").code == 5
    kipu_sqlite.environment["KIPU_KEY"] = "env:MY_KEY"
    assert len(kipu_sqlite.ids()) == 1
    kipu_sqlite.environment["KIPU_KEY"] = "env:NOT_SET"
    ran = kipu_sqlite.run("ls")
    assert (ran.code, "NOT_SET" in ran.stderr) == (2, True)


def test_what_is_wrong_with_a_key_is_said(kipu_sqlite: CommandLine, tmp_path: Path) -> None:
    """Missing or wrong key, missing or damaged vault: each has its word, its advice and code 5; nothing is changed (A50, C20)."""
    kipu_sqlite.chat("hello")
    kipu_sqlite.run("key", "init", "file:key")
    kipu_sqlite.run("encrypt", "--key", "file:key")
    vault, key = tmp_path / "sessions.db.keys", tmp_path / "key"

    def said(state: str) -> None:
        before = {
            path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file() and "-" not in path.name
        }
        ran = kipu_sqlite.run("key", "status", "--json")
        assert (ran.code, ran.json["state"]) == (5, state)
        assert ran.json["advice"]
        assert kipu_sqlite.run("ls").code in {2, 5}
        assert kipu_sqlite.chat("lost?").code in {2, 5}
        after = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file() and "-" not in path.name}
        assert {name: after.get(name) for name in before} == before

    key.rename(tmp_path / "away")
    said("key_unusable")
    (tmp_path / "away").rename(key)
    key.chmod(0o644)
    said("key_unusable")
    key.chmod(0o600)
    right = key.read_text()
    key.write_text(key_line(bytes(32)))
    said("wrong_key")
    key.write_text(right)
    vault.rename(tmp_path / "away")
    said("vault_missing")
    vault.write_bytes(b"x" * 4096)
    said("vault_unreadable")
    vault.unlink()
    (tmp_path / "away").rename(vault)
    connection = apsw.Connection(str(vault))
    connection.execute("UPDATE data_keys SET kek = 'kother' WHERE session_id <> ''")
    connection.close()
    said_state = kipu_sqlite.run("key", "status", "--json")
    assert (said_state.code, said_state.json["state"]) == (5, "rotation_unfinished")
    assert len(kipu_sqlite.ids()) == 1, "a session that cannot be read is still listed"


def test_a_store_in_use_is_not_encrypted(kipu_sqlite: CommandLine) -> None:
    """While another process has the store open, `encrypt` ends with 4 and changes nothing (EN-32)."""
    kipu_sqlite.chat("hello")
    kipu_sqlite.run("key", "init", "file:key")
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, kipu_sqlite.store],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=kipu_sqlite.process_environment(),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"open\n"
    ran = kipu_sqlite.run("encrypt", "--key", "file:key")
    assert (ran.code, "[store_in_use]" in ran.stderr) == (ExitCode.BUSY, True)
    process.communicate(b"\n")
    assert kipu_sqlite.run("encrypt", "--key", "file:key").code == 0


@pytest.mark.parametrize("how", ["dropped", "cut", "whole"])
def test_verify_chain_names_the_first_break(how: str, kipu_sqlite: CommandLine, tmp_path: Path) -> None:
    """`verify --chain` ends with 1 and names the event that is gone, and with 0 where the chains hold (C20, EN-21)."""
    kipu_sqlite.run("key", "init", "file:key", "--chain")
    kipu_sqlite.chat("one", "two")
    whole = kipu_sqlite.run("verify", "--chain", "--save", str(tmp_path / "links"), "--json")
    assert (whole.code, whole.json["chains"], whole.json["breaks"]) == (0, 1, [])
    assert kipu_sqlite.run("verify", "--chain", "--against", str(tmp_path / "links")).code == 0
    connection = apsw.Connection(str(tmp_path / "sessions.db"))
    last = connection.execute("SELECT max(seq) FROM events").get
    if how != "whole":
        connection.execute("DELETE FROM events WHERE seq = ?", (3 if how == "dropped" else last,))
    connection.close()
    ran = kipu_sqlite.run("verify", "--chain", "--json")
    if how == "whole":
        assert ran.code == 0
        return
    assert ran.code == 1
    (found,) = ran.json["breaks"]
    assert (found["kind"], found["seq"]) == (("dropped", 3) if how == "dropped" else ("cut", last))
    assert kipu_sqlite.run("verify").code == 1


def test_verify_chain_of_an_unchained_store_says_how(kipu_sqlite: CommandLine) -> None:
    """A store without a chain is a usage error that says how one is begun."""
    kipu_sqlite.chat("hello")
    ran = kipu_sqlite.run("verify", "--chain")
    assert (ran.code, "kipu encrypt --chain" in ran.stderr) == (2, True)


def test_fresh_data_keys_and_other_sources(kipu_sqlite: CommandLine) -> None:
    """`rotate --data-keys` makes an epoch, `--to` moves the key, and each is told by `status` (B55, C20, EN-9)."""
    kipu_sqlite.run("key", "init", "file:key")
    kipu_sqlite.chat("one")
    assert kipu_sqlite.run("key", "rotate", "--data-keys", "--json").json == {"sessions": 1}
    assert kipu_sqlite.run("key", "status", "--json").json["epochs"] == 1
    moved = kipu_sqlite.run("key", "rotate", "--to", "file:other", "--json")
    assert (moved.code, moved.json["rewrapped"]) == (0, 3)
    (kipu_sqlite.home / "key").unlink()
    state = kipu_sqlite.run("key", "status", "--json").json
    assert (state["state"], state["source"]) == ("opens", f"file:{kipu_sqlite.home}/other")
    assert kipu_sqlite.chat("two", options=("--continue",)).code == 0
    assert len(kipu_sqlite.ids()) == 1
