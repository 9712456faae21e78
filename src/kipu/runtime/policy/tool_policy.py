"""What a call may do: rules in layers, of which no lower one widens a higher one (A19)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from kipu.ports.principal import Principal
from kipu.ports.tool import PolicyAnswer, ToolSpec
from kipu.runtime.policy.policy_rule import PolicyRule
from kipu.runtime.policy.subject_pattern import Splitter, spellings_of, split_commands

LayerName: TypeAlias = Literal["organisation", "user", "project", "session"]
LAYERS: tuple[LayerName, ...] = ("organisation", "user", "project", "session")
_MAX_TOOLS = 1_000  # whose rules are kept sorted out; tools beyond are looked up anew
STRICTNESS: Mapping[PolicyAnswer, int] = {"allow": 0, "ask": 1, "deny": 2}


@dataclass(frozen=True, slots=True)
class PolicyLayer:
    """The rules of one place. With `narrows_only` its allows count for nothing: it can only ask or deny."""

    name: LayerName
    rules: tuple[PolicyRule, ...] = ()
    narrows_only: bool = False


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """What is answered, and why: `layer` and `rule` that decided (`default` and None where no rule did)."""

    answer: PolicyAnswer
    layer: str
    rule: PolicyRule | None
    reason: str
    tool: str
    subject: str

    def to_json(self) -> dict[str, Any]:
        """Return it for `/policy` and for the log."""
        rule = None if self.rule is None else self.rule.to_json()
        return {
            "answer": self.answer,
            "layer": self.layer,
            "rule": rule,
            "reason": self.reason,
            "tool": self.tool,
            "subject": self.subject,
        }


class _Asked(NamedTuple):
    """One subject in the forms that rules are matched against; those that only narrowing rules need are made on demand."""

    text: str
    is_command: bool
    command: str | None
    spellings: Callable[[], Sequence[str]]


class ToolPolicy:
    """Decide about calls: pure, without memory, the same for the same rules in any order.

    - Within a layer the strictest matching rule counts: deny beats ask beats allow.
    - Over layers (organisation, user, project, session) the strictest layer counts. So no lower layer widens a higher one.
    - Where no layer that may widen has a matching rule, the tool's own default counts as one more layer: it takes an allow of
      the organisation, the user or a trusted project to be wider than what the tool declares. A session never can, nor can a
      project that nobody trusts, for its rules travel with its files.
    - A command line is as strict as the strictest of its commands, and where it cannot be split into them, only a rule for
      any subject allows it.
    - A tool that is not known is denied.

    `splitters` give, by tool, the commands of a subject. The defaults of tools named in `unsandboxed` are never wider than ask.
    """

    def __init__(
        self,
        layers: Sequence[PolicyLayer] = (),
        *,
        splitters: Mapping[str, Splitter] | None = None,
        unsandboxed: frozenset[str] = frozenset(),
    ) -> None:
        kept = [replace(layer, narrows_only=True) if layer.name == "session" else layer for layer in layers]
        self.layers = tuple(sorted(kept, key=lambda layer: LAYERS.index(layer.name)))
        self._splitters = dict(splitters or {})
        self._by_tool: dict[str, list[tuple[PolicyLayer, list[PolicyRule]]]] = {}
        self._unsandboxed = unsandboxed

    def narrowed(self, rules: Sequence[PolicyRule]) -> ToolPolicy:
        """Return this policy with a session's rules, which only narrow it (A19)."""
        if not rules:
            return self
        layer = PolicyLayer("session", tuple(rules), narrows_only=True)
        return ToolPolicy((*self.layers, layer), splitters=self._splitters, unsandboxed=self._unsandboxed)

    def decide(
        self, spec: ToolSpec | None, subject: str = "", *, principal: Principal, name: str = ""
    ) -> PolicyDecision:
        """Return what a call of this tool on this subject by this principal may do. `spec` is None for a tool there is not."""
        if spec is None:
            return PolicyDecision("deny", "default", None, "there is no such tool", name, subject)
        splitter = self._splitters.get(spec.name)
        if splitter is None:
            return self._decide_one(spec, _plain(subject), principal)
        commands = split_commands(splitter, subject)
        if len(commands) == 1 and commands[0] == subject:
            return self._decide_one(spec, _command(subject), principal)
        whole = self._decide_one(spec, _line(subject, commands), principal)
        if not commands:
            return whole
        decisions = [self._decide_one(spec, _command(command), principal) for command in commands]
        if whole.rule is not None and whole.answer != "allow":  # a rule about the line, such as one on `* | sh`
            decisions.insert(0, whole)
        strictest = max(decisions, key=lambda decision: STRICTNESS[decision.answer])
        return replace(strictest, subject=subject)

    def _decide_one(self, spec: ToolSpec, asked: _Asked, principal: Principal) -> PolicyDecision:
        found: tuple[PolicyAnswer, str, PolicyRule] | None = None
        is_settled = False  # a layer that may widen has spoken, so the tool's default does not count
        for layer, rules in self._rules_for(spec.name):
            rule = _strictest(rules, asked, principal)
            if rule is None:
                continue
            is_settled = is_settled or not layer.narrows_only
            if found is None or STRICTNESS[rule.answer] > STRICTNESS[found[0]]:
                found = (rule.answer, layer.name, rule)
        default = self._default(spec)
        if found is None or (not is_settled and STRICTNESS[default] >= STRICTNESS[found[0]]):
            return PolicyDecision(default, "default", None, self._default_reason(spec), spec.name, asked.text)
        answer, where, rule = found
        return PolicyDecision(answer, where, rule, rule.reason or f"{where}: {rule}", spec.name, asked.text)

    def _rules_for(self, tool: str) -> list[tuple[PolicyLayer, list[PolicyRule]]]:
        """Return each layer's rules about the tool, strictest first; allows that count for nothing are left out."""
        known = self._by_tool.get(tool)
        if known is None:
            known = [(layer, _about_tool(layer, tool)) for layer in self.layers]
            if len(self._by_tool) < _MAX_TOOLS:
                self._by_tool[tool] = known
        return known

    def _default(self, spec: ToolSpec) -> PolicyAnswer:
        return "ask" if spec.name in self._unsandboxed and spec.default_policy == "allow" else spec.default_policy

    def _default_reason(self, spec: ToolSpec) -> str:
        if spec.name in self._unsandboxed and spec.default_policy == "allow":
            return f"{spec.name} runs without a sandbox here"
        return f"the default of {spec.name}"

    def to_json(self) -> dict[str, Any]:
        """Return the layers and their rules, strongest first, for `/policy`."""
        return {
            "layers": [
                {"layer": layer.name, "narrows_only": layer.narrows_only, "rules": [r.to_json() for r in layer.rules]}
                for layer in self.layers
            ],
            "unsandboxed": sorted(self._unsandboxed),
        }


def _about_tool(layer: PolicyLayer, tool: str) -> list[PolicyRule]:
    rules = [
        rule
        for rule in layer.rules
        if rule.tool_pattern.permits(tool) and not (layer.narrows_only and rule.answer == "allow")
    ]
    return sorted(rules, key=lambda rule: -STRICTNESS[rule.answer])


def _strictest(rules: Sequence[PolicyRule], asked: _Asked, principal: Principal) -> PolicyRule | None:
    """Return the first rule that matches; they stand strictest first."""
    commands = None if asked.command is None else (asked.command,)
    for rule in rules:
        pattern = rule.subject_pattern
        if pattern.is_any:
            matches = True
        elif rule.answer == "allow":
            matches = pattern.permits(asked.text, commands=commands, is_command=asked.is_command)
        else:
            matches = pattern.touches(asked.spellings())
        if matches and rule.is_about(principal):
            return rule
    return None


def _plain(subject: str) -> _Asked:
    return _Asked(subject, False, None, _once(lambda: spellings_of(subject)))


def _line(subject: str, commands: Sequence[str]) -> _Asked:
    return _Asked(
        subject, True, None, _once(lambda: spellings_of(subject, commands=commands or [subject], is_command=True))
    )


def _command(command: str) -> _Asked:
    return _Asked(command, True, command, _once(lambda: spellings_of(command, commands=[command], is_command=True)))


def _once(make: Callable[[], Sequence[str]]) -> Callable[[], Sequence[str]]:
    made: list[Sequence[str]] = []

    def get() -> Sequence[str]:
        if not made:
            made.append(make())
        return made[0]

    return get
