"""What all commands share: exit codes, errors, options, settings, completion."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kipu import errors
from kipu.cli.chat.commands import COMMANDS
from kipu.cli.exit_code import ExitCode, exit_code_of
from kipu.cli.settings import config_path
from kipu.store_url import StoreUrl, default_store_url
from tests.unit.cli.command_line import CommandLine


def test_version_is_shown(kipu_sqlite: CommandLine) -> None:
    """`kipu --version` prints one line."""
    assert re.fullmatch(r"kipu \d+\.\d+\.\d+\n", kipu_sqlite.run("--version").stdout)


def test_help_lists_every_command(kipu_sqlite: CommandLine) -> None:
    """`--help` names all commands and the exit codes, and every command has help of its own and takes --json."""
    text = kipu_sqlite.run("--help").stdout
    names = [
        "chat",
        "pick",
        "ls",
        "show",
        "search",
        "stats",
        "fork",
        "rewind",
        "rename",
        "tag",
        "pin",
        "window",
        "replay",
        "export",
        "import",
        "copy",
        "trash",
        "restore",
        "erase",
        "verify",
        "scan",
        "conformance",
        "config",
    ]
    assert "130 Ctrl-C" in " ".join(text.split())
    for name in names:
        assert f" {name} " in text
        assert "--json" in kipu_sqlite.run(name, "--help").stdout


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.SessionNotFoundError(session_id="x"), ExitCode.NOT_FOUND),
        (errors.SessionErasedError(session_id="x"), ExitCode.NOT_FOUND),
        (errors.SessionBusyError(session_id="x", owner="y"), ExitCode.BUSY),
        (errors.ConflictError(session_id="x", expected=1, actual=2), ExitCode.BUSY),
        (errors.InvalidSessionIdError(session_id="x", reason="y"), ExitCode.USAGE),
        (errors.StoreUrlError(url="x", reason="y"), ExitCode.USAGE),
        (errors.StoreFullError(store="x", reason="y"), ExitCode.UNREADABLE),
        (errors.NewerFormatError(store="x", found=2, known=1), ExitCode.UNREADABLE),
        (errors.ModelAuthError(model="x", status=401, reason="y", key_variable="z"), ExitCode.FAILURE),
    ],
)
def test_exit_codes_follow_the_kind_of_error(error: errors.KipuError, code: ExitCode) -> None:
    """Each kind of error has its documented exit code."""
    assert exit_code_of(error) is code


def test_errors_have_message_and_code_but_no_traceback(tmp_path: Path) -> None:
    """What Kipu can name ends with its message and stable code on stderr, nothing on stdout, and the documented exit code."""
    (tmp_path / "file.db").write_bytes(b"this is no database at all, but somebody's notes\n" * 100)
    (tmp_path / "folder").mkdir()
    cases = {
        "nonsense": (2, "store_url"),
        "sqlite:///": (2, "store_url"),
        f"sqlite:///{tmp_path}/a.db?durability=none": (2, "store_url"),
        f"sqlite:///{tmp_path / 'file.db'}": (5, "store"),
        f"sqlite:///{tmp_path / 'folder'}": (2, "store_url"),
        f"jsonl:///{tmp_path / 'file.db'}": (2, "store_url"),
    }
    for url, (code, kind) in cases.items():
        ran = CommandLine(tmp_path, url).run("ls", "--json")
        assert (ran.code, ran.stdout) == (code, ""), url
        assert re.search(rf"^error: .+ \[{kind}\w*\]$", ran.stderr, re.MULTILINE), ran.stderr
        assert "Traceback" not in ran.stderr
    assert (tmp_path / "file.db").read_bytes().startswith(b"this is no database")


@pytest.mark.parametrize("words", [("nope",), ("ls", "--nope"), ("--nope",), ("show",), ("ls", "-n", "0"), ("export",)])
def test_usage_errors_are_one_line_with_the_next_step(kipu_sqlite: CommandLine, words: tuple[str, ...]) -> None:
    """Words that cannot be used end like every other error: one line on stderr with the next step and a code, and 2."""
    ran = kipu_sqlite.run(*words)
    assert (ran.code, ran.stdout) == (2, "")
    assert re.fullmatch(r"error: .+ See kipu.* --help \[usage\]\n", ran.stderr), ran.stderr


def test_the_command_alone_shows_its_help(kipu_sqlite: CommandLine) -> None:
    """`kipu` without a word lists its commands."""
    ran = kipu_sqlite.run()
    assert " chat " in ran.stdout + ran.stderr
    assert "[usage]" not in ran.stderr


def test_the_overflow_error_names_no_command_that_is_not_there() -> None:
    """A window too long for a model is told without a command that the chat does not have."""
    error = errors.ModelContextOverflowError(model="m", status=400, reason="long")
    assert set(re.findall(r"/(\w+)", str(error))) <= set(COMMANDS)


def test_store_option_counts_before_and_after_the_command(kipu_sqlite: CommandLine, tmp_path: Path) -> None:
    """`--store` and `--json` may stand on either side of the command, and win over KIPU_STORE."""
    other = f"sqlite:///{tmp_path / 'other.db'}"
    kipu_sqlite.chat()
    kipu_sqlite.chat("hello", options=("--store", other))
    assert kipu_sqlite.ids() == []
    assert len(kipu_sqlite.run("--store", other, "--json", "ls").json) == 1
    assert len(kipu_sqlite.run("ls", "--store", other, "--json").json) == 1


def test_config_shows_what_is_in_force_and_why(kipu_sqlite: CommandLine) -> None:
    """Each setting has its value and source: option, environment, file or default, in that order."""

    def shown(*words: str) -> dict[str, tuple[str | None, str]]:
        settings = kipu_sqlite.run("config", *words, "--json").json["settings"]
        return {each["name"]: (each["value"], each["source"]) for each in settings}

    assert shown()["store"] == (kipu_sqlite.store, "KIPU_STORE")
    assert shown()["project"] == ("default", "default")
    assert shown("--store", "memory://")["store"] == ("memory://", "--store")
    file = kipu_sqlite.home / ".config" / "kipu" / "config.toml"
    assert kipu_sqlite.run("config", "set", "project", "birds").code == 0
    assert shown()["project"] == ("birds", str(file))
    kipu_sqlite.environment["KIPU_PROJECT"] = "cats"
    assert shown()["project"] == ("cats", "KIPU_PROJECT")
    del kipu_sqlite.environment["KIPU_PROJECT"]
    kipu_sqlite.run("config", "unset", "project")
    assert shown()["project"] == ("default", "default")


def test_config_file_is_used_by_commands(kipu_sqlite: CommandLine) -> None:
    """A store and a model set once are used from then on."""
    store = kipu_sqlite.environment.pop("KIPU_STORE")
    del kipu_sqlite.environment["KIPU_MODEL"]
    assert kipu_sqlite.run("config", "set", "store", store).code == 0
    assert kipu_sqlite.run("config", "set", "model", "demo").code == 0
    assert kipu_sqlite.chat("hello").stdout.startswith("demo model")
    assert (kipu_sqlite.home / "sessions.db").exists()


def test_config_keeps_what_people_wrote(kipu_sqlite: CommandLine) -> None:
    """Comments, unknown names and tables stay; a secret is never shown whole, and only the owner may read the file (A51)."""
    file = kipu_sqlite.home / ".config" / "kipu" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('# mine\nfuture = "x"\nmodel = "demo"  # fast\n\n[later]\nmodel = "other"\n')
    secret = "sk-" + "a1" * 20
    ran = kipu_sqlite.run("config", "set", "api_key", secret)
    kipu_sqlite.run("config", "set", "model", 'openai:"quoted" \\ name')
    assert secret not in ran.stdout + kipu_sqlite.run("config", "--json").stdout
    assert "'future'" in ran.stderr
    text = file.read_text()
    assert text.startswith('# mine\nfuture = "x"\nmodel = "openai:\\"quoted\\" \\\\ name"\n')
    assert text.endswith('[later]\nmodel = "other"\n')
    assert file.stat().st_mode & 0o777 == 0o600


def test_config_that_cannot_be_read_is_left_alone(kipu_sqlite: CommandLine) -> None:
    """A file that is no TOML, or holds no text, is an error with its place, and is never overwritten."""
    file = kipu_sqlite.home / ".config" / "kipu" / "config.toml"
    file.parent.mkdir(parents=True)
    for text in ("model = \n", "model = 3\n", '[model]\nx = "1"\n', 'model = """\nx"""\n'):
        file.write_text(text)
        ran = kipu_sqlite.run("config", "set", "model", "demo")
        assert (ran.code, "[configuration]" in ran.stderr) == (2, True), text
        assert file.read_text() == text


@pytest.mark.parametrize(
    ("name", "value"),
    [("nope", "x"), ("store", "x"), ("colours", "pink"), ("tokens", "guess"), ("project", "\x07"), ("model", " ")],
)
def test_config_refuses_values_that_cannot_be_used(kipu_sqlite: CommandLine, name: str, value: str) -> None:
    """A name or value that cannot be used is refused before it is written."""
    assert kipu_sqlite.run("config", "set", name, value).code == 2
    assert not (kipu_sqlite.home / ".config").exists()


@pytest.mark.parametrize(
    ("words", "never"),
    [
        (("ls", "--json"), {"rich", "kipu.manager.manager", "kipu.events.registry", "kipu.runtime"}),
        (("search", "x"), {"rich", "kipu.runtime"}),
        (("chat",), {"rich"}),
    ],
)
def test_commands_load_no_more_than_they_need(
    kipu_sqlite: CommandLine, words: tuple[str, ...], never: set[str]
) -> None:
    """No command loads a model or screen library that it does not use: that is what keeps `kipu ls` quick."""
    program = (
        "import sys, kipu.cli, json\ntry: kipu.cli.main()\nexcept SystemExit: print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        input="hello\n", capture_output=True, text=True, env=kipu_sqlite.process_environment(), check=True,
    )  # fmt: skip
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    screens_and_models = {"textual", "prompt_toolkit", "pydantic_ai", "openai", "anthropic", "kipu.testing"}
    assert not loaded & (never | screens_and_models)


def test_public_door_names_each_home_once() -> None:
    """Every public name is loaded from the home that the type checker sees."""
    import ast
    import importlib

    import kipu

    source = Path(kipu.__file__).read_text(encoding="utf-8")
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: node.module for node in imports for alias in node.names}
    for name in kipu.__all__:
        if name != "errors":
            assert getattr(kipu, name) is getattr(importlib.import_module(str(homes[name])), name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = kipu.nothing


def test_relative_xdg_folders_and_an_empty_home_count_as_none(tmp_path: Path) -> None:
    """The store stands in an absolute folder whatever the variables say, and odd characters in it are no settings."""
    assert default_store_url({"XDG_DATA_HOME": "here", "HOME": "/h"}) == "sqlite:////h/.local/share/kipu/sessions.db"
    assert default_store_url({"HOME": ""}) == "sqlite:///~/.local/share/kipu/sessions.db"
    odd = default_store_url({"XDG_DATA_HOME": f"{tmp_path}/a?b%41"})
    assert StoreUrl.parse(odd).path == tmp_path / "a?b%41" / "kipu" / "sessions.db"
    assert config_path({"XDG_CONFIG_HOME": "here", "HOME": "/h"}) == Path("/h/.config/kipu/config.toml")


@pytest.mark.parametrize("url", ["sqlite:///{}/s.db", "postgresql://host/db", "valkey://host/0"])
def test_a_plus_in_a_url_is_a_plus(tmp_path: Path, url: str) -> None:
    """A folder with one in its name is that folder, as it is written or escaped, and no other with a space (C22)."""
    for written in ("/srv/c++", "/srv/c%2B%2B"):
        assert StoreUrl.parse(f"{url.format(tmp_path)}?archive={written}").settings["archive"] == "/srv/c++"


def test_errors_of_paths_say_what_is_wrong_with_them(tmp_path: Path, kipu: CommandLine) -> None:
    """A folder given for a file, and a folder that is not there, are told as such, with the next step."""
    kipu.chat("hello")
    session_id = kipu.ids()[0]
    nowhere = kipu.run("export", session_id, "-o", str(tmp_path / "nowhere" / "a.html"))
    assert (nowhere.code, "[Errno" in nowhere.stderr) == (1, False)
    assert "Correct the path" in nowhere.stderr
    assert "not a regular file" in kipu.run("import", str(tmp_path)).stderr
    assert "it names a folder" in kipu.run("ls", "--store", f"sqlite:///{tmp_path}").stderr


def test_ls_names_sessions_that_cannot_be_read(tmp_path: Path) -> None:
    """A locked session is told on stderr; a store of nothing else is not said to be empty (A50, situation 73)."""
    kipu = CommandLine(tmp_path, f"jsonl:///{tmp_path}/sessions")
    kipu.chat("hello")
    session_id = kipu.ids()[0]
    log = tmp_path / "sessions" / session_id / "000001.jsonl"
    log.unlink()
    log.mkdir()
    (tmp_path / "sessions" / "index.sqlite").unlink()
    listed = kipu.run("ls")
    assert session_id in listed.stderr
    assert "no sessions yet" not in listed.stderr


def test_an_import_that_finds_nothing_fails(tmp_path: Path, kipu: CommandLine) -> None:
    """A file of another kind is kept in quarantine and told, and the command says that it could not be done."""
    page = tmp_path / "page.html"
    page.write_text("<!doctype html>\n<p>hello\n")
    ran = kipu.run("import", str(page), "--json")
    assert (ran.code, ran.json["quarantined"]) == (1, 2)


def test_config_chooses_how_tokens_are_counted(kipu_sqlite: CommandLine) -> None:
    """Tokens are estimated unless `tokens` is exact: then a message costs what the tokenizer says (B36)."""
    pytest.importorskip("splintr")
    text = "session_init {}[]();;;" * 20

    def cost() -> int:
        ran = kipu_sqlite.chat(text, options=("--new",))
        assert ran.code == 0, ran.stderr
        return int(kipu_sqlite.head(kipu_sqlite.ids()[0])["token_count"])

    estimated = cost()
    assert kipu_sqlite.run("config", "set", "tokens", "exact").code == 0
    settings = {each["name"]: each for each in kipu_sqlite.run("config", "--json").json["settings"]}
    assert settings["tokens"]["value"] == "exact"
    assert cost() != estimated
    kipu_sqlite.environment["KIPU_TOKENS"] = "estimate"
    assert cost() == estimated


def test_config_of_exact_tokens_needs_the_extra(kipu_sqlite: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the tokenizer is not installed, the setting is refused, and a command that finds it set says what to install."""
    monkeypatch.setitem(sys.modules, "splintr", None)
    refused = kipu_sqlite.run("config", "set", "tokens", "exact")
    assert (refused.code, "kipu[tokens]" in refused.stderr) == (2, True)
    kipu_sqlite.environment["KIPU_TOKENS"] = "exact"
    ran = kipu_sqlite.chat("hello")
    assert (ran.code, "kipu[tokens]" in ran.stderr) == (2, True)
    kipu_sqlite.environment["KIPU_TOKENS"] = "guess"
    assert kipu_sqlite.run("ls").code == 2
