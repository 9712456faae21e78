"""One rule of a policy, and how people write it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, cast

from kipu.errors import ConfigurationError
from kipu.ports.principal import Principal
from kipu.ports.tool import PolicyAnswer
from kipu.runtime.policy.subject_pattern import SubjectPattern

ANSWERS: tuple[PolicyAnswer, ...] = ("allow", "ask", "deny")
MAX_RULES = 1_000
MAX_PATTERN_CHARACTERS = 1_000
_SHORT = re.compile(r"([^()\s]+)(?:\((.*)\))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """Allow, ask or deny calls of the tools that `tool` matches, on subjects that `subject` matches, by whom it names.

    `tool` and `subject` are patterns with `*` and `?`. `principal`, `role` and `tenant` are exact; None means anybody. `reason`
    is shown to people.
    """

    answer: PolicyAnswer
    tool: str = "*"
    subject: str = "*"
    principal: str | None = None
    role: str | None = None
    tenant: str | None = None
    reason: str | None = None
    tool_pattern: SubjectPattern = field(init=False, repr=False, compare=False)
    subject_pattern: SubjectPattern = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.answer not in ANSWERS:
            raise ConfigurationError(reason=f"a policy rule says {self.answer!r}, which is none of allow, ask, deny")
        for name in ("tool", "subject"):
            text = getattr(self, name)
            if not isinstance(text, str) or not text or len(text) > MAX_PATTERN_CHARACTERS:
                raise ConfigurationError(
                    reason=f"the {name} of a policy rule is text of 1 to {MAX_PATTERN_CHARACTERS} characters, not {text!r:.80}"
                )
        for name in ("principal", "role", "tenant", "reason"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise ConfigurationError(reason=f"the {name} of a policy rule is text, not {value!r:.80}")
        object.__setattr__(self, "tool_pattern", SubjectPattern(self.tool))
        object.__setattr__(self, "subject_pattern", SubjectPattern(self.subject))

    def is_about(self, principal: Principal) -> bool:
        """Say whether the rule is for this principal."""
        if self.principal is not None and self.principal != principal.id:
            return False
        if self.role is not None and self.role not in principal.roles:
            return False
        return self.tenant is None or self.tenant == principal.tenant

    def __str__(self) -> str:
        about = self.tool if self.subject == "*" else f"{self.tool}({self.subject})"
        who = [
            f"{name} {value}" for name in ("principal", "role", "tenant") if (value := getattr(self, name)) is not None
        ]
        return " ".join([self.answer, about, *(["for", ", ".join(who)] if who else [])])

    def to_json(self) -> dict[str, str]:
        """Return what was given, for `/policy` and for files."""
        return {name: value for name in _NAMES if (value := getattr(self, name)) is not None}


_NAMES = tuple(entry.name for entry in fields(PolicyRule) if entry.init)


def parse_rules(data: object, *, source: str = "the policy") -> tuple[PolicyRule, ...]:
    """Return the rules that a configuration (TOML or JSON, parsed) writes.

    Either `allow = ["read_file", "shell(git status*)"]` and the like for `ask` and `deny`, or `rules = [{answer = "deny", tool =
    "shell", subject = "rm *", role = "guest"}]`, or both; a list alone is a list of rules.

    Raises:
        ConfigurationError: an unknown name, a wrong type, an empty pattern, more than 1 000 rules; nothing is left out silently.
    """
    if isinstance(data, list | tuple):
        data = {"rules": data}
    if not isinstance(data, Mapping):
        raise ConfigurationError(reason=f"{source} is a table or a list of rules, not {data!r:.80}")
    unknown = sorted(str(name) for name in data if name not in (*ANSWERS, "rules"))
    if unknown:
        raise ConfigurationError(reason=f"{source} has no {unknown[0]!r}; it has allow, ask, deny and rules")
    rules = [
        _short(entry, answer, source) for answer in ANSWERS for entry in _list(data.get(answer, ()), answer, source)
    ]
    rules += [_long(entry, source) for entry in _list(data.get("rules", ()), "rules", source)]
    if len(rules) > MAX_RULES:
        raise ConfigurationError(reason=f"{source} has {len(rules)} rules, and at most {MAX_RULES} are taken")
    return tuple(rules)


def _list(value: object, name: str, source: str) -> Iterable[Any]:
    if isinstance(value, list | tuple):
        return value
    raise ConfigurationError(reason=f"{name} of {source} is a list, not {value!r:.80}")


def _short(entry: object, answer: PolicyAnswer, source: str) -> PolicyRule:
    match = _SHORT.fullmatch(entry) if isinstance(entry, str) else None
    if match is None or match[2] == "":
        raise ConfigurationError(reason=f"{answer} of {source} holds {entry!r:.80}; write a tool, or tool(subject)")
    return PolicyRule(answer, match[1], "*" if match[2] is None else match[2])


def _long(entry: object, source: str) -> PolicyRule:
    if not isinstance(entry, Mapping):
        raise ConfigurationError(reason=f"a rule of {source} is a table, not {entry!r:.80}")
    unknown = sorted(str(name) for name in entry if name not in _NAMES)
    if unknown or "answer" not in entry:
        what = f"no {unknown[0]!r}; its names are {', '.join(_NAMES)}" if unknown else "needs an answer"
        raise ConfigurationError(reason=f"a rule of {source} has {what}" if unknown else f"a rule of {source} {what}")
    return PolicyRule(**cast(Mapping[str, Any], entry))
