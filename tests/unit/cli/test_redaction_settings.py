"""What the settings say about secrets: on by default, off where it is said, and rules of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.command_line import CommandLine

TOKEN = "ghp_" + "Zk3vQ8mW1xT6yB9nC4rL7pD2sF5gH0jAbXeU"


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    """Return a command line with a JSONL store, which can be searched for bytes."""
    return CommandLine(tmp_path, f"jsonl:///{tmp_path}/store")


def configure(line: CommandLine, text: str) -> None:
    """Write the configuration file."""
    path = line.home / ".config" / "kipu" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def stored(line: CommandLine) -> bytes:
    """Return everything that the store's folder holds."""
    return b"".join(path.read_bytes() for path in (line.home / "store").rglob("*") if path.is_file())


def test_commands_leave_secrets_out_and_say_so(line: CommandLine) -> None:
    """Nothing is configured, and a pasted token is in no file of the store; people are told, and how to keep such (C21)."""
    line.environment["DEPLOY_TOKEN"] = "correct-horse-77-battery"
    ran = line.run("run", f"use {TOKEN} and correct-horse-77-battery")
    assert ran.code == 0
    assert "2 secrets left out (github-token, known-secret)" in ran.stderr
    assert "kipu config set redaction off" in ran.stderr
    assert TOKEN.encode() not in stored(line)
    assert b"correct-horse-77-battery" not in stored(line)
    assert b"[redacted:github-token]" in stored(line)


def test_json_events_of_a_run_hold_no_secret(line: CommandLine) -> None:
    """What a program reads of a run, live pieces too, has what stands in the secret's place (C21)."""
    ran = line.run("run", "--json", "--deltas", f"say {TOKEN}")
    assert ran.code == 0
    assert TOKEN not in ran.stdout + ran.stderr
    assert "[redacted:github-token]" in ran.stdout


def test_redaction_can_be_switched_off(line: CommandLine) -> None:
    """The switch is a setting like others: file and environment, on or off and nothing else (C21)."""
    assert line.run("config", "set", "redaction", "off").code == 0
    assert line.run("run", f"use {TOKEN}").code == 0
    assert TOKEN.encode() in stored(line)
    line.environment["KIPU_REDACTION"] = "sometimes"
    ran = line.run("ls")
    assert ran.code != 0
    assert "redaction is 'sometimes'" in ran.stderr


def test_titles_and_labels_lose_their_secrets(line: CommandLine) -> None:
    """Every command that writes leaves secrets out, not only turns (C21)."""
    assert line.run("run", "hello").code == 0
    session_id = line.run("ls", "--json").json[0]["session_id"]
    assert line.run("rename", session_id, f"deploy {TOKEN}").code == 0
    assert TOKEN.encode() not in stored(line)


def test_rules_of_ones_own_are_used(line: CommandLine) -> None:
    """Places, patterns, known secrets and rules to leave out come from the configuration file (B57)."""
    configure(
        line,
        '[redaction_rules]\nexclude = ["github-token", "service-token"]\nknown = ["${OWN}", "another-0ne-here"]\n'
        '[redaction_rules.patterns]\nticket = "ACME-[0-9]{4}"\n',
    )
    line.environment["OWN"] = "my-own-secret-1"
    assert line.run("run", f"{TOKEN} my-own-secret-1 another-0ne-here ACME-1234").code == 0
    kept = stored(line)
    assert TOKEN.encode() in kept
    assert b"[redacted:known-secret] [redacted:known-secret] [redacted:ticket]" in kept
    assert b"my-own-secret-1" not in kept


@pytest.mark.parametrize(
    "table",
    [
        'colour = "red"',
        'temporary_paths = "yes"',
        'exclude = ["no-such-rule"]',
        "exclude = 3",
        'known = ["${NOT_SET_ANYWHERE}"]',
        'vault = "keys"',
        '[redaction_rules.patterns]\nmine = "(["',
        '[redaction_rules.patterns]\n"Not A Name" = "x"',
        "[redaction_rules.patterns]\nmine = 3",
    ],
)
def test_rules_that_cannot_be_used_are_refused_before_anything_is_written(line: CommandLine, table: str) -> None:
    """A mistake in the file is an error that names the file, at once and not in the middle of a turn (B57)."""
    configure(line, f"[redaction_rules]\n{table}\n")
    ran = line.run("run", "hello")
    assert ran.code != 0
    assert "config.toml" in ran.stderr
    assert not (line.home / "store").exists()


def test_vault_key_must_be_there(line: CommandLine, tmp_path: Path) -> None:
    """A vault without its key is an error; with one, what was taken out is kept sealed (C21)."""
    key = tmp_path / "vault.key"
    configure(line, f'[redaction_rules]\nvault = "file:{key}"\n')
    ran = line.run("run", "hello")
    assert ran.code != 0
    assert str(key) in ran.stderr
    key.write_text("kipu-key-1 " + "A" * 43 + "=\n")
    key.chmod(0o600)
    assert line.run("run", f"use {TOKEN}").code == 0
    assert b'"sealed"' in stored(line)
    assert TOKEN.encode() not in stored(line)
    session_id = line.run("ls", "--json").json[0]["session_id"]
    assert TOKEN in line.run("reveal", session_id, "2").stdout
    assert line.run("reveal", session_id, "2", "--json").json["content"] == f"use {TOKEN}"
    assert line.run("reveal", session_id, "99").code != 0
    key.write_text("kipu-key-1 " + "B" * 43 + "=\n")
    ran = line.run("reveal", session_id, "2")
    assert ran.code != 0
    assert TOKEN not in ran.stdout + ran.stderr
    configure(line, "")
    assert "no vault is configured" in line.run("reveal", session_id, "2").stderr
