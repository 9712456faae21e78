"""Which key opens a store: what its URL names, what the settings name, what its vault remembers, a passphrase."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kipu.ports.clock import Entropy
from kipu.security.key_provider import ChangingKeys, KeySource
from kipu.security.key_sources import PASSPHRASE, key_source

KEY_VARIABLE = "KIPU_KEY"


class KeyFinder:
    """Find the source of a store's keys, so that nobody has to name it in every command.

    The first that is there counts: `named` (encrypt= in the URL), `setting` (KIPU_KEY, or the configuration), what the vault
    remembers of `kipu key init`, `encrypt` and `rotate`, KIPU_PASSPHRASE. `ask` gives a passphrase that no variable holds.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        entropy: Entropy,
        setting: str | None = None,
        ask: Callable[[], str] | None = None,
    ) -> None:
        self.environment = environment
        self.entropy = entropy
        self._setting = setting or environment.get(KEY_VARIABLE) or None
        self.ask = ask

    def name_of(self, named: str | None, remembered: Mapping[str, Any]) -> str | None:
        """Return the text that names the source, None where nobody named one."""
        text = named or self._setting or remembered.get("source")
        if text is None and self.environment.get(PASSPHRASE):
            return "passphrase"
        return text

    def find(self, named: str | None, remembered: Mapping[str, Any]) -> KeySource | None:
        """Return the source, None where nobody named one. Raises: KeySourceError, MissingExtraError."""
        text = self.name_of(named, remembered)
        if text is None:
            return None
        older = [each for each in remembered.get("older", ()) if each != text]  # of a rotation to another source
        found = self.open(text)
        return ChangingKeys(found, *map(self.open, older)) if older else found

    def open(self, text: str) -> KeySource:
        """Return the source that a text names. Raises: KeySourceError, MissingExtraError."""
        return key_source(text, environment=self.environment, entropy=self.entropy, ask=self.ask)
