"""What one simple command really runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

# Begins a command that is only known at run time. No pattern of a person contains it.
OPAQUE = "\0"
# After these words of the shell's grammar a command follows.
LEADING_WORDS = frozenset(["if", "then", "elif", "else", "while", "until", "do", "!", "{", "time"])
CLOSING_WORDS = frozenset(["fi", "done", "}", "esac"])
UNSEEN_WORDS = frozenset(["for", "select", "case", "function", "coproc", "[[", "in"])
SHELLS = frozenset(["sh", "bash", "dash", "zsh", "ksh", "ash"])
# These run with other rights: both the whole and what it runs must be allowed.
RAISING = frozenset(["sudo", "doas"])
RAISING_OPTIONS: tuple[Mapping[str, int], int] = ({"-n": 0, "-u": 1, "-E": 0, "-H": 0}, 0)
MAX_WRAPPERS = 16
# What these run depends on more than their words, or is too various to take apart.
UNSEEN_PROGRAMS = frozenset(
    [
        *("xargs", "parallel", "watch", "strace", "ltrace", "gdb", "chroot", "unshare", "nsenter", "bwrap", "flock"),
        *(
            "script",
            "su",
            "runuser",
            "setpriv",
            "capsh",
            "busybox",
            "toybox",
            "ssh",
            "entr",
            "systemd-run",
            "at",
            "batch",
        ),
        *("source", ".", "trap", "alias", "enable", "hash", "shopt", "mapfile", "readarray", "read", "declare"),
        *("typeset", "local", "export", "readonly", "unset", "let", "bind", "complete", "crontab", "ld.so", "expect"),
    ]
)
# Wrappers that only run what follows: their options, and how many words before the command each has or takes.
TRANSPARENT: Mapping[str, tuple[Mapping[str, int], int]] = {
    "timeout": (
        {"-k": 1, "--kill-after": 1, "-s": 1, "--signal": 1, "--foreground": 0, "--preserve-status": 0, "-v": 0},
        1,
    ),
    "nice": ({"-n": 1, "--adjustment": 1}, 0),
    "ionice": ({"-c": 1, "-n": 1, "-t": 0}, 0),
    "nohup": ({}, 0),
    "setsid": ({"-w": 0, "--wait": 0, "-f": 0, "--fork": 0, "-c": 0}, 0),
    "stdbuf": ({"-i": 1, "-o": 1, "-e": 1}, 0),
    "chrt": ({"-b": 0, "-i": 0}, 1),
    "time": ({"-p": 0}, 0),
    "command": ({"-p": 0}, 0),
    "builtin": ({}, 0),
    "exec": ({}, 0),
    "env": ({"-i": 0, "-": 0, "--ignore-environment": 0, "-u": 1, "--unset": 1}, 0),
}
ATTACHED_VALUE = re.compile(r"(-[a-z]\S+|--[a-z-]+=.*)\Z", re.DOTALL)
ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^\]]*\])?\+?=")
PLAIN_PROGRAM = re.compile(r"[A-Za-z0-9_./+@%:,-]+\Z|\[\Z")
SHELL_FLAGS = re.compile(r"-[elux]+\Z")
SHELL_COMMAND_FLAGS = re.compile(r"-[elux]*c\Z")
OWN_PLACES = ("", "/bin/", "/usr/bin/", "/usr/local/bin/")
WORD = re.compile(r"""(?:[^\s'"\\]|'[^']*'|"(?:[^"\\]|\\.)*"|\\.)+""", re.DOTALL)
FIND_RUNS = frozenset(["-exec", "-execdir", "-ok", "-okdir"])
FD_RUNS = frozenset(["-x", "-X", "--exec", "--exec-batch"])
# bash evaluates a subscript even where it stands in single quotes.
EVALUATING = frozenset(["test", "[", "printf", "wait", "kill"])
SUBSCRIPT = re.compile(r"\[.*[$`]", re.DOTALL)
GIT_RUNS = ("-c", "--config-env", "--exec-path")


def is_opaque(command: str) -> bool:
    """Tell whether a command of `commands_of` is only known at run time."""
    return command.startswith(OPAQUE)


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command: where it begins, as it is written, and without its quotes."""

    begin: int
    raw: str

    @property
    def value(self) -> str:
        """Return what the program gets; the text holds no expansion."""
        pieces = re.findall(r"""'[^']*'|"(?:[^"\\]|\\.)*"|\\.|[^'"\\]+""", self.raw, re.DOTALL)
        return "".join(_unquoted(piece) for piece in pieces)


def unwrapped(text: str, inside: Callable[[str], list[str]], *, level: int = 0) -> list[str]:
    """Return what a simple command without expansions runs. `inside` takes a command line within it apart."""
    words = [Word(match.start(), match.group()) for match in WORD.finditer(text)]
    if not words or level > MAX_WRAPPERS:
        return [OPAQUE + text]
    first = words[0].raw
    if first in LEADING_WORDS:
        rest = text[words[0].begin + len(first) :].strip()
        return unwrapped(rest, inside, level=level + 1) if rest else []
    if first in CLOSING_WORDS:
        return [] if len(words) == 1 else [text]
    if ASSIGNMENT.match(first):
        # The variable may change what the program does: the whole must be meant, and what it runs too.
        count = sum(1 for _ in _leading_assignments(words))
        behind = text[words[count].begin :] if count < len(words) else ""
        return [text, *(unwrapped(behind, inside, level=level + 1) if behind else [])]
    if first in UNSEEN_WORDS or not PLAIN_PROGRAM.match(words[0].value) or re.search(r"[<>*?{}~]", first):
        return [OPAQUE + text]
    return _by_program(text, words, inside, level=level + 1)


def _by_program(text: str, words: list[Word], inside: Callable[[str], list[str]], *, level: int) -> list[str]:
    place, _, name = words[0].value.rpartition("/")
    values = [word.value for word in words]
    if f"{place}/" * bool(place) not in OWN_PLACES:
        return [text]
    if name == "eval":
        return inside(" ".join(values[1:]))
    if name in UNSEEN_PROGRAMS or _runs_others(name, values):
        return [OPAQUE + text]
    if name in SHELLS:
        return _shell(text, values, inside)
    if name in RAISING:
        return [text, *_behind(text, words[1:], RAISING_OPTIONS, inside, level=level)]
    if name in TRANSPARENT:
        # `command -v x` only asks.
        is_question = name == "command" and values[1:2] in (["-v"], ["-V"])
        if is_question or len(words) == 1:
            return [text]
        return _behind(text, words[1:], TRANSPARENT[name], inside, level=level)
    return [text]


def _behind(
    text: str,
    words: list[Word],
    options: tuple[Mapping[str, int], int],
    inside: Callable[[str], list[str]],
    *,
    level: int,
) -> list[str]:
    """Return what runs behind a wrapper's options and own words, opaque where an option is not known."""
    known, own_words = options
    at = 0
    while at < len(words) and words[at].raw.startswith("-"):
        value = words[at].value
        at += 1
        if value == "--":
            break
        if value in known:
            at += known[value]
        elif not (ATTACHED_VALUE.match(value) and known.get(value.partition("=")[0] if "=" in value else value[:2])):
            return [OPAQUE + text]
    at += own_words
    if at >= len(words):
        return [OPAQUE + text]
    return unwrapped(text[words[at].begin :], inside, level=level + 1)


def _shell(text: str, values: list[str], inside: Callable[[str], list[str]]) -> list[str]:
    at = 1
    while at < len(values) and SHELL_FLAGS.match(values[at]):
        at += 1
    if at < len(values) and SHELL_COMMAND_FLAGS.match(values[at]):
        if at + 1 < len(values):
            return inside(values[at + 1])
        return [OPAQUE + text]
    # A script by its name is a command like any other; options that are not known may hide one.
    has_option = at < len(values) and values[at][:1] in ("-", "+")
    return [OPAQUE + text] if has_option else [text]


def _runs_others(name: str, values: list[str]) -> bool:
    if name == "find":
        return not FIND_RUNS.isdisjoint(values)
    if name in ("fd", "fdfind"):
        return any(value in FD_RUNS or value.startswith(("--exec", "-x", "-X")) for value in values)
    if name in EVALUATING:
        return any(SUBSCRIPT.search(value) for value in values)
    if name == "git":
        return any(value.startswith(GIT_RUNS) for value in values[1:] if value.startswith("-"))
    return False


def _leading_assignments(words: list[Word]) -> list[Word]:
    found: list[Word] = []
    for word in words:
        if not ASSIGNMENT.match(word.raw):
            break
        found.append(word)
    return found


def _unquoted(piece: str) -> str:
    if piece.startswith("'"):
        return piece[1:-1]
    if piece.startswith('"'):
        return re.sub(r'\\([\\"$`])', r"\1", piece[1:-1])
    return piece.removeprefix("\\")
