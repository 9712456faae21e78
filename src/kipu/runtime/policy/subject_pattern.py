"""Patterns on what a call is about: narrow where they widen, wide where they narrow."""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import TypeAlias

# Gives the simple commands of a command line, or None where it cannot tell for certain what a shell would run.
Splitter: TypeAlias = Callable[[str], Sequence[str] | None]

_PARENT = re.compile(r"""(?:^|[\s/\\='":])\.\.(?:$|[\s/\\'";])""")
_SINGLE_QUOTED = re.compile(r"'[^']*'")
_QUOTED = re.compile(r"""'[^']*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_ACTIVE = ("`", "$(", "${", "<(", ">(")  # run or expand something also within double quotes
_OPERATORS = ("\n", ";", "&", "|", "<", ">")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_WRAPPERS = frozenset(
    {
        "bash",
        "builtin",
        "busybox",
        "bwrap",
        "chroot",
        "command",
        "dash",
        "doas",
        "env",
        "eval",
        "exec",
        "fish",
        "ionice",
    }
    | {"nice", "nohup", "parallel", "setsid", "sh", "stdbuf", "strace", "sudo", "taskset", "time", "timeout", "unshare"}
    | {"watch", "xargs", "zsh"}
)
_MAX_STARTS = 24
_WORDS_BEHIND = 4
_UNQUOTE = str.maketrans("", "", "\\'\"")


class SubjectPattern:
    """A pattern with `*` (anything) and `?` (one character); everything else stands for itself.

    What it is asked for decides how it is read. To *permit*, it must match the very text, and text that hides what it does
    (`..`, control and invisible characters, for commands also redirection, substitution and operators) is only matched by a
    pattern that names it. To *touch* (ask, deny), it may match any spelling of it: other case, compatibility forms, with
    `.` and `..` resolved, for commands without assignments, wrappers, quotes and the folder of the program.
    """

    __slots__ = ("_exact", "_folded", "_names_active", "_names_parent", "is_any", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.is_any = text.strip("*") == "" and text != ""
        self._exact = glob_regex(text)
        self._folded = glob_regex(_folded(text))
        self._names_parent = ".." in text
        self._names_active = frozenset(mark for mark in (*_ACTIVE, *_OPERATORS) if mark in text)

    @classmethod
    def below(cls, text: str, *, separator: str) -> SubjectPattern:
        """Return a pattern of `text` itself and what follows it after the separator; `*` and `?` in it are plain characters."""
        pattern = cls(text)
        pattern.is_any = False
        pattern._exact = re.compile(f"{re.escape(text)}(?:{re.escape(separator)}.*)?", re.DOTALL).fullmatch
        return pattern

    def permits(self, subject: str, *, commands: Sequence[str] | None = None, is_command: bool = False) -> bool:
        """Say whether the subject is what the pattern means, to the letter. For a command line each of its commands must be."""
        if self.is_any:
            return True
        if not is_command:
            return self._permits_one(subject)
        if not commands or (len(commands) == 1 and self._exact(commands[0]) is None):
            return False
        return all(self._permits_one(command) and self._is_plain_command(command) for command in commands)

    def _permits_one(self, text: str) -> bool:
        if not self._exact(text):
            return False
        if not self._names_parent and ".." in text and _PARENT.search(text):
            return False
        return text.isprintable() or not any(_is_hidden(char) for char in text)

    def _is_plain_command(self, command: str) -> bool:
        live = _SINGLE_QUOTED.sub("", command) if "'" in command else command
        if any(mark in live and mark not in self._names_active for mark in _ACTIVE):
            return False
        bare = _QUOTED.sub("", command) if "'" in command or '"' in command else command
        return not any(mark in bare and mark not in self._names_active for mark in _OPERATORS)

    def touches(self, spellings: Sequence[str]) -> bool:
        """Say whether the pattern means any of these spellings (see `spellings_of`)."""
        return self.is_any or any(map(self._folded, spellings))


def split_commands(splitter: Splitter, subject: str) -> list[str]:
    """Return the simple commands of a command line; none where it cannot be told what they are."""
    try:
        return [stripped for command in splitter(subject) or () if (stripped := command.strip())]
    except (ValueError, RecursionError):
        return []


def spellings_of(subject: str, *, commands: Sequence[str] | None = None, is_command: bool = False) -> list[str]:
    """Return the forms under which something that narrows may know the subject, duplicates left out."""
    forms = {_folded(subject)}
    if not is_command:
        forms.update([_normal_path(form) for form in forms if form])
        return list(forms)
    for command in commands or ():
        forms.update(_command_spellings(_folded(command)))
    return list(forms)


def glob_regex(pattern: str) -> Callable[[str], object]:
    """Return a matcher of the whole text, in time linear in the text for each `*`."""
    first, *rest = (
        "".join("." if char == "?" else re.escape(char) for char in piece) for piece in re.split(r"\*+", pattern)
    )
    if not rest:
        return re.compile(first, re.DOTALL).fullmatch
    *middle, last = rest
    # Atomic: once a middle piece was found at its first place, no later place can make a difference.
    body = first + "".join(f"(?>.*?{piece})" for piece in middle) + ".*" + last
    return re.compile(body, re.DOTALL).fullmatch


def _normal_path(path: str) -> str:
    normal = posixpath.normpath(path.replace("\\", "/"))
    return normal[1:] if normal.startswith("//") else normal


def _folded(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text.lower()
    visible = "".join(char for char in unicodedata.normalize("NFKC", text) if not _is_hidden(char))
    return unicodedata.normalize("NFKC", visible.casefold())


def _is_hidden(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") and char not in "\n\t"


def _command_spellings(command: str) -> set[str]:
    """Return the command as it may also be written: without quotes, and from each word on that may be its program."""
    words = command.translate(_UNQUOTE).split()
    forms = {command, command.strip()}
    starts, seen = [0], 0
    while seen < len(starts) and seen < _MAX_STARTS:
        at = starts[seen]
        seen += 1
        if at >= len(words):
            continue
        program = words[at].rpartition("/")[2]
        forms.add(" ".join(words[at:]))
        forms.add(" ".join([program, *words[at + 1 :]]))
        if program in _WRAPPERS or _ASSIGNMENT.match(words[at]):  # what it runs is one of the next words
            starts += [behind for behind in range(at + 1, at + 1 + _WORDS_BEHIND) if behind not in starts]
    return forms
