"""Which rules are in force."""

from __future__ import annotations

from dataclasses import dataclass

from kipu.errors import ConfigurationError
from kipu.security.redaction import context, surroundings
from kipu.security.redaction.families import (
    cloud,
    forge,
    gathered,
    ledger,
    messaging,
    model_provider,
    observing,
    payment,
    standard,
)
from kipu.security.redaction.finder import UNNAMED
from kipu.security.redaction.places import INTERNAL_ADDRESSES, TEMPORARY_PATHS
from kipu.security.redaction.rule import Rule

_FAMILIES = (cloud, forge, messaging, payment, model_provider, observing, gathered, ledger, standard)
FORMATS: tuple[Rule, ...] = tuple(rule for family in _FAMILIES for rule in family.RULES)
CONTEXTS: tuple[Rule, ...] = (*context.RULES, *surroundings.RULES)


@dataclass(frozen=True, slots=True)
class RedactionPolicy:
    """What is looked for besides the formats of secrets, which always are.

    `context` takes what names and headers give away, `custom` what your own patterns find: (name, RE2 pattern); without RE2 a
    pattern could take for ever, and is refused. `temporary_paths` and `internal_addresses` take places out of tool results (B57).
    `excluded` names rules that are not to be used.
    """

    context: bool = True
    temporary_paths: bool = False
    internal_addresses: bool = False
    custom: tuple[tuple[str, str], ...] = ()
    excluded: frozenset[str] = frozenset()

    def rules(self, *, places: bool) -> list[Rule]:
        """Return the rules in force. Raises: ConfigurationError (a rule to be excluded is not there)."""
        every = [*FORMATS, *CONTEXTS, *TEMPORARY_PATHS, *INTERNAL_ADDRESSES]
        unknown = sorted(self.excluded - {rule.name for rule in every} - UNNAMED)
        if unknown:
            raise ConfigurationError(reason=f"there is no redaction rule {unknown[0]!r}")
        chosen = [*FORMATS, *(CONTEXTS if self.context else ())]
        if places:
            chosen += TEMPORARY_PATHS if self.temporary_paths else ()
            chosen += INTERNAL_ADDRESSES if self.internal_addresses else ()
        return [rule for rule in chosen if rule.name not in self.excluded]
