"""The configuration file: flat TOML text that people may also edit; what they wrote beside the settings stays."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kipu.errors import ConfigurationError

_TABLE = re.compile(r"\s*\[")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


class ConfigFile:
    """Read and change one file. Whole-file writes are atomic and durable, and only the owner may read them (A51)."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, Any]:
        """Return what it says; empty where there is no file.

        Raises:
            ConfigurationError: it cannot be read, or is not TOML.
        """
        text = self._text()
        if text is None:
            return {}
        import tomllib

        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigurationError(reason=f"{self._path} is not TOML: {error}") from error

    def change(self, values: Mapping[str, str | None]) -> None:
        """Set these names, or with None remove them; every other line stays as it is."""
        wanted = self.read()  # a file that cannot be understood is not rewritten
        lines = (self._text() or "").split("\n")
        while lines and not lines[-1]:
            lines.pop()
        for name, value in values.items():
            lines = _changed(lines, name, value)
            wanted = {**wanted, name: value} if value is not None else {k: v for k, v in wanted.items() if k != name}
        text = "\n".join(lines) + "\n" if lines else ""
        if not _says(text, wanted):
            raise ConfigurationError(
                reason=f"{self._path} is written in a way that only you can change: edit it by hand"
            )
        self._write(text)

    def _text(self) -> str | None:
        try:
            return self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(reason=f"{self._path} cannot be read: {error}") from error

    def _write(self, text: str) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=".config-")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self._path)
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise ConfigurationError(reason=f"{self._path} cannot be written: {error}") from error


def _says(text: str, wanted: Mapping[str, Any]) -> bool:
    import tomllib

    try:
        return tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        return False


def _changed(lines: list[str], name: str, value: str | None) -> list[str]:
    """Return the lines with one setting changed. Settings stand before the first table."""
    end = next((index for index, line in enumerate(lines) if _TABLE.match(line)), len(lines))
    forms = "|".join(re.escape(form) for form in (name, _quoted(name), f"'{name}'"))
    mine = re.compile(rf"\s*(?:{forms})\s*=")
    at = next((index for index in range(end) if mine.match(lines[index])), None)
    written = name if _BARE.fullmatch(name) else _quoted(name)
    line = [] if value is None else [f"{written} = {_quoted(value)}"]
    if at is None:
        return [*lines[:end], *line, *lines[end:]]
    return [*lines[:at], *line, *lines[at + 1 :]]


def _quoted(value: str) -> str:
    escaped = "".join(
        f"\\u{ord(char):04x}" if ord(char) < 0x20 or ord(char) == 0x7F else f"\\{char}" if char in '\\"' else char
        for char in value
    )
    return f'"{escaped}"'
