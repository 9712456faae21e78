"""The simple commands of a command line, for policies: what cannot be seen through says so."""

from __future__ import annotations

from kipu.runtime.tools.shell_wrappers import LEADING_WORDS, OPAQUE, is_opaque, unwrapped

MAX_LENGTH = 16 * 1024
MAX_DEPTH = 8

__all__ = ["OPAQUE", "commands_of", "is_opaque"]


def commands_of(text: str, *, depth: int = 0) -> list[str]:
    r"""Return each simple command that a shell would run for `text`, as it is written there.

    Lists, pipes, groups, substitutions, `bash -c` and `eval` are taken apart; wrappers that change nothing (`timeout 5 make`)
    are left away. A command that is only known at run time (expansions, here-documents, functions, loops, `xargs`, …) starts
    with NUL, so that no pattern of a person matches it to the letter; what it is seen to run follows all the same. Pure, total.

    >>> commands_of("cd src && timeout 5 make test | tail -3")
    ['cd src', 'make test', 'tail -3']
    >>> commands_of("echo $(rm -rf x)")
    ['rm -rf x', '\x00echo $(rm -rf x)']
    """
    unreadable = any(not character.isprintable() and character not in "\n\t" for character in text)
    if unreadable or len(text) > MAX_LENGTH or depth > MAX_DEPTH:
        return [OPAQUE + text]
    scanner = _Scanner(text, depth)
    scanner.scan(0, closing="")
    if scanner.is_broken:
        return [*scanner.commands, OPAQUE + text]
    return scanner.commands


class _Scanner:
    """Read a command line once from left to right, as a shell's own parser does."""

    def __init__(self, text: str, depth: int) -> None:
        self.text = text
        self.depth = depth
        self.commands: list[str] = []
        self.is_broken = False
        self._levels = 0

    def scan(self, at: int, *, closing: str) -> int:
        """Take commands from `at` on, until what closes them; return where to go on."""
        self._levels += 1
        if self._levels > 50:
            self.is_broken = True
            return len(self.text)
        command = _Command()
        while at < len(self.text):
            character = self.text[at]
            if character == ")" and closing:
                self._end(command)
                self._levels -= 1
                return at + 1
            at = self._step(character, at, command)
        self.is_broken |= bool(closing)
        self._end(command)
        self._levels -= 1
        return at

    def _step(self, character: str, at: int, command: _Command) -> int:
        if character == "\\":
            return self._escape(at, command)
        if character == "'":
            return self._single_quotes(at, command)
        if character == '"':
            return self._double_quotes(at, command)
        if character in "$`":
            return self._expansion(at, command)
        if character in "<>":
            return self._redirection(at, command)
        if character in "()":
            return self._parenthesis(character, at, command)
        if character == "#" and command.is_between_words():
            end = self.text.find("\n", at)
            return len(self.text) if end < 0 else end
        if character in ";\n|" or (character == "&" and self.text[at + 1 : at + 2] != ">"):
            # A case's ;; is nothing that could be taken apart.
            command.is_opaque |= self.text[at : at + 2] in (";;", ";&")
            self._end(command)
            return at + 1
        if character == "&":
            command.text += "&>"
            return at + 2
        command.text += character
        return at + 1

    def _end(self, command: _Command) -> None:
        text = command.text.strip()
        if command.is_opaque:
            self.commands.append(OPAQUE + text)
        elif text:
            self.commands += unwrapped(text, lambda inner: commands_of(inner, depth=self.depth + 1))
        command.text, command.is_opaque, command.escaped_until = "", False, 0

    def _escape(self, at: int, command: _Command) -> int:
        following = self.text[at + 1 : at + 2]
        self.is_broken |= not following
        if following != "\n":
            command.text += "\\" + following
            command.escaped_until = len(command.text)
        return at + 2

    def _single_quotes(self, at: int, command: _Command) -> int:
        end = self.text.find("'", at + 1)
        if end < 0:
            self.is_broken = True
            end = len(self.text)
        command.text += self.text[at : end + 1]
        return end + 1

    def _double_quotes(self, at: int, command: _Command) -> int:
        command.text += '"'
        at += 1
        while at < len(self.text):
            character = self.text[at]
            if character == "\\":
                at = self._escape(at, command)
            elif character in "$`":
                at = self._expansion(at, command)
            else:
                command.text += character
                at += 1
                if character == '"':
                    return at
        self.is_broken = True
        return at

    def _expansion(self, at: int, command: _Command) -> int:
        """Take the commands out of a substitution; whatever is expanded leaves a command that nobody knows yet."""
        begin = at
        if self.text[at] == "`":
            at = self._backquotes(at)
        elif self.text[at + 1 : at + 2] == "(":
            at = self.scan(at + 2, closing=")")
        elif self.text[at + 1 : at + 2] == "?":
            command.text += "$?"
            return at + 2
        elif self.text[at + 1 : at + 2] in ("", " ", "\n", "\t", '"'):
            command.text += "$"
            return at + 1
        else:
            at += 1
        command.text += self.text[begin:at]
        command.is_opaque = True
        return at

    def _backquotes(self, at: int) -> int:
        inner = ""
        at += 1
        while at < len(self.text) and self.text[at] != "`":
            if self.text[at] == "\\" and self.text[at + 1 : at + 2] in ("`", "\\", "$"):
                at += 1
            inner += self.text[at : at + 1]
            at += 1
        self.is_broken |= at >= len(self.text)
        self.commands += commands_of(inner, depth=self.depth + 1)
        return at + 1

    def _redirection(self, at: int, command: _Command) -> int:
        begin = at
        if self.text[at + 1 : at + 2] == "(":
            at = self.scan(at + 2, closing=")")
            command.is_opaque = True
        elif self.text[at : at + 3] == "<<<":
            at += 3
        elif self.text[at : at + 2] == "<<":
            # What follows on the next lines is data or a script, whoever reads it.
            command.is_opaque = True
            at += 2
        elif self.text[at + 1 : at + 2] in ("&", "|", ">"):
            at += 2
        else:
            at += 1
        command.text += self.text[begin:at]
        return at

    def _parenthesis(self, character: str, at: int, command: _Command) -> int:
        is_start = all(word in LEADING_WORDS for word in command.text.split())
        if character == "(" and is_start and self.text[at + 1 : at + 2] != "(":
            command.text = ""
            return self.scan(at + 1, closing=")")
        # A function, an array, arithmetic, a pattern.
        command.text += character
        command.is_opaque = True
        self.is_broken = True
        return at + 1


class _Command:
    """The command that is being read."""

    def __init__(self) -> None:
        self.text = ""
        self.is_opaque = False
        self.escaped_until = 0

    def is_between_words(self) -> bool:
        """Tell whether the next character begins a word."""
        # A blank behind a backslash is part of a word.
        return not self.text or (self.text[-1] in " \t" and len(self.text) != self.escaped_until)
