"""From settings and the configuration file to what takes secrets out of sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kipu.errors import ConfigurationError
from kipu.ports.home_path import home_path

if TYPE_CHECKING:
    from kipu.cli.settings import Settings
    from kipu.security.redaction.policy import RedactionPolicy
    from kipu.security.redaction.redactor import Redactor
    from kipu.security.redaction.vault import SecretVault

TABLE = "redaction_rules"
_SWITCHES = ("context", "temporary_paths", "internal_addresses")
_NAMES = (*_SWITCHES, "exclude", "patterns", "known", "vault")


def redactor_source(settings: Settings, environment: Mapping[str, str]) -> Callable[[], Redactor] | None:
    """Return what makes the redactor of these settings when something is written, None where redaction is off.

    Raises: ConfigurationError, MissingExtraError (a pattern of one's own without RE2), KeySourceError (the vault's key): now, and
    not in the middle of a turn.
    """
    if settings["redaction"] == "off":
        return None
    table = settings.table(TABLE)
    _check_names(table, settings.path)
    if table:
        redactor = redactor_of(settings, environment)
        return lambda: redactor
    return lambda: redactor_of(settings, environment)


def redactor_of(settings: Settings, environment: Mapping[str, str]) -> Redactor:
    """Return the redactor of these settings, whether it is on or off: it knows the secrets of environment and configuration.

    Raises: ConfigurationError, MissingExtraError, KeySourceError.
    """
    from kipu.security.redaction.known import secrets_of_settings
    from kipu.wiring import open_redactor

    table = settings.table(TABLE)
    _check_names(table, settings.path)
    vault = vault_of(settings, environment)
    own = [text for text in (settings["api_key"],) if text]
    configured = {name: settings.table(name) for name in ("credentials", "mcp")}
    try:
        return open_redactor(
            environment,
            known=[*own, *secrets_of_settings(configured), *_known(table, environment, settings.path)],
            policy=_policy(table, settings.path),
            seal=vault.seal if vault is not None else None,
        )
    except ConfigurationError as error:
        raise ConfigurationError(reason=f"{TABLE} in {settings.path}: {error.data.get('reason', error)}") from error


def vault_of(settings: Settings, environment: Mapping[str, str]) -> SecretVault | None:
    """Return the vault of what is taken out, None where none is configured: then nothing can be brought back.

    Raises: KeySourceError, ConfigurationError.
    """
    named = settings.table(TABLE).get("vault")
    if named is None:
        return None
    from kipu.security.key_file import file_keys, keys_in
    from kipu.security.redaction.vault import SecretVault
    from kipu.stores.host import SystemEntropy

    kind, _, name = str(named).partition(":")
    if kind == "env" and environment.get(name):
        keys = keys_in(environment[name], source=f"the environment variable {name}")
    elif kind == "file" and name:
        path = home_path(name)
        file_keys(path, entropy=SystemEntropy())  # its owner's only, and keys in it
        keys = keys_in(path.read_text(encoding="utf-8"), source=f"the file {path}")
    else:
        reason = f"vault in {TABLE} of {settings.path} is {named!r}, not file:PATH or env:NAME of a key that is there"
        raise ConfigurationError(reason=reason)
    return SecretVault(keys, entropy=SystemEntropy())


def _policy(table: Mapping[str, Any], path: Path) -> RedactionPolicy:
    from kipu.security.redaction.policy import RedactionPolicy

    for name in _SWITCHES:
        if not isinstance(table.get(name, False), bool):
            raise ConfigurationError(reason=f"{name} is true or false, not {table[name]!r:.80}")
    patterns = table.get("patterns", {})
    if not isinstance(patterns, Mapping) or not all(isinstance(text, str) and text for text in patterns.values()):
        raise ConfigurationError(reason=f"patterns is a table of names and patterns, such as [{TABLE}.patterns]")
    return RedactionPolicy(
        context=table.get("context", True),
        temporary_paths=table.get("temporary_paths", False),
        internal_addresses=table.get("internal_addresses", False),
        custom=tuple((str(name), text) for name, text in patterns.items()),
        excluded=frozenset(_texts(table, "exclude")),
    )


def _known(table: Mapping[str, Any], environment: Mapping[str, str], path: Path) -> list[str]:
    """Return the secrets that the file names as known: `${NAME}` is a variable, other text the secret itself."""
    found = []
    for text in _texts(table, "known"):
        if text.startswith("${") and text.endswith("}"):
            if text[2:-1] not in environment:
                raise ConfigurationError(reason=f"known needs the environment variable {text[2:-1]}, which is not set")
            found.append(environment[text[2:-1]])
        else:
            found.append(text)
    return found


def _texts(table: Mapping[str, Any], name: str) -> list[str]:
    given = table.get(name, [])
    if not isinstance(given, list) or not all(isinstance(text, str) for text in given):
        raise ConfigurationError(reason=f"{name} is a list of texts")
    return given


def _check_names(table: Mapping[str, Any], path: Path) -> None:
    unknown = next((name for name in table if name not in _NAMES), None)
    if unknown is not None:
        raise ConfigurationError(reason=f"{TABLE} in {path} has no {unknown!r}; it has {', '.join(_NAMES)}")


def told(normalised: Any) -> str | None:
    """Return in words what was left out of an event, None where nothing was."""
    rules: dict[str, int] = {}
    for note in normalised if isinstance(normalised, list) else ():
        if isinstance(note, dict) and note.get("kind") == "redacted":
            rules[str(note.get("rule"))] = rules.get(str(note.get("rule")), 0) + int(note.get("count", 1))
    if not rules:
        return None
    count = sum(rules.values())
    named = ", ".join(f"{rule}{f' ×{many}' if many > 1 else ''}" for rule, many in sorted(rules.items()))
    return f"{count} secret{'s' if count > 1 else ''} left out ({named})"
