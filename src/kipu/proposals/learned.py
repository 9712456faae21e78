"""What people approved, as agents are told it: instructions, skills, and the memory policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kipu.errors import InvalidProposalError
from kipu.ports.memory_policy import MemoryPolicy
from kipu.ports.principal import Principal
from kipu.proposals.ledger import Ledgers
from kipu.proposals.limits import policy_of
from kipu.proposals.proposal import Proposal
from kipu.proposals.state import LedgerState
from kipu.proposals.target import INSTRUCTIONS, ProposalScope, Target
from kipu.proposals.text_check import SECTION_MARK

_INTRODUCTION = """\
How this person wants you to work, as they approved it. Only they change it; what you learn you propose with the tool `propose`."""
_HEADINGS: tuple[tuple[ProposalScope, str], ...] = (("user", "In all their work:"), ("project", "In this project:"))
_DESCRIPTION = 200


@dataclass(frozen=True, slots=True)
class Learned:
    """What is in force for one person's sessions in one project: texts by scope, skills by name."""

    instructions: Mapping[ProposalScope, str] = field(default_factory=dict)
    skills: Mapping[str, str] = field(default_factory=dict)
    memory_policy: MemoryPolicy = field(default_factory=MemoryPolicy)

    def section(self, *, in_full: str | None = None) -> str:
        """Return it as an instruction says it, "" where nothing was approved; the skill `in_full` with its whole text."""
        parts = [
            f"{heading}\n\n{text.strip()}" for scope, heading in _HEADINGS if (text := self.instructions.get(scope))
        ]
        if self.skills:
            listed = "\n".join(f"- {name}: {description_of(text)}" for name, text in sorted(self.skills.items()))
            parts.append(f"Skills. Read one with the tool `read_skill` before you do what it is about:\n\n{listed}")
        if in_full is not None and in_full in self.skills:
            parts.append(f"The skill {in_full}:\n\n{self.skills[in_full].strip()}")
        return "\n\n".join([_INTRODUCTION, *parts]) if parts else ""


def learned_from(state: LedgerState, *, project: str | None, also: Proposal | None = None) -> Learned:
    """Return what is in force in `project` (None: in none), as it would be with the proposal `also` approved."""
    texts = {target: versions.text for target, versions in state.versions.items()}
    if also is not None:
        texts[also.target] = also.after
    instructions: dict[ProposalScope, str] = {}
    skills: dict[str, str] = {}
    policy = MemoryPolicy()
    scopes: tuple[tuple[ProposalScope, str], ...] = (("user", ""), ("project", project or ""))
    for scope, place in scopes:  # the narrower scope comes last, and counts
        if scope == "project" and not place:
            continue
        found = {target: text for target, text in texts.items() if (target.scope, target.project) == (scope, place)}
        for target, text in found.items():
            if text is None:
                continue
            if target.kind == "skill":
                skills[target.name] = text
            elif target.kind == "memory_policy":
                policy = _policy(text, default=policy)
        own = texts.get(Target("instruction", scope, place, INSTRUCTIONS))
        if own is not None:
            instructions[scope] = own
    return Learned(instructions, skills, policy)


def with_section(instruction: str, section: str) -> str:
    """Return an instruction with this section of what was learned in place of the one it has, or without any.

    >>> with_section(with_section("Be brief.", "Use make."), "")
    'Be brief.'
    """
    before, mark, _ = instruction.rpartition(f"\n\n{SECTION_MARK}\n")
    own = before if mark else instruction
    return f"{own}\n\n{SECTION_MARK}\n{section}" if section else own


def description_of(skill: str) -> str:
    r"""Return what a skill is about: its `description:` where it begins with a header, else its first line.

    >>> description_of("# How to release\n\nTag it.")
    'How to release'
    """
    lines = [line.strip() for line in skill.strip().splitlines()]
    if lines and lines[0] == "---":
        header = lines[1 : lines.index("---", 1)] if "---" in lines[1:] else []
        given = (line.partition(":")[2].strip() for line in header if line.startswith("description:"))
        return (next(given, "") or "no description")[:_DESCRIPTION]
    first = next((line.lstrip("# ") for line in lines if line.lstrip("# ")), "no description")
    return first[:_DESCRIPTION]


class LearnedSource:
    """Tell what is in force now, in any process, from people's ledgers."""

    def __init__(self, ledgers: Ledgers) -> None:
        self._ledgers = ledgers

    async def learned(self, owner: Principal, *, project: str | None) -> Learned:
        """Return what this person approved for their sessions in `project`."""
        return learned_from(await self._ledgers.of(owner).state(), project=project)

    async def memory_policy(self, owner: Principal, *, project: str | None) -> MemoryPolicy:
        """Return the memory policy in force (contract: `MemoryPolicySource`)."""
        return (await self.learned(owner, project=project)).memory_policy


def _policy(text: str, *, default: MemoryPolicy) -> MemoryPolicy:
    """Return what an approved text says; one that only a newer version could read leaves what was in force."""
    try:
        return policy_of(text)
    except InvalidProposalError:
        return default
