"""What a proposal would change: one text, in one scope."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from kipu.errors import InvalidProposalError

ProposalKind: TypeAlias = Literal["instruction", "skill", "memory_policy"]
ProposalScope: TypeAlias = Literal["user", "project"]
KINDS: tuple[ProposalKind, ...] = get_args(ProposalKind)
SCOPES: tuple[ProposalScope, ...] = get_args(ProposalScope)
INSTRUCTIONS = "instructions"  # the name of the one text of the kind `instruction` in a scope
MEMORY = "memory"  # the same of the kind `memory_policy`
_SKILL_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Target:
    """One text: the instructions of a scope, one of its skills, or its memory policy.

    `project` is the directory or repository that a session works in, "" for the scope `user`.
    """

    kind: ProposalKind
    scope: ProposalScope
    project: str
    name: str

    @classmethod
    def of(cls, kind: str, scope: str, *, project: str | None, name: str | None = None) -> Target:
        """Return a target from what a caller gave. Raises: InvalidProposalError."""
        if kind not in KINDS:
            raise InvalidProposalError(reason=f"kind is one of {', '.join(KINDS)}")
        if scope not in SCOPES:
            raise InvalidProposalError(reason=f"scope is one of {', '.join(SCOPES)}")
        if scope == "project" and not project:
            raise InvalidProposalError(reason="the session works in no project; propose it for the user")
        if kind == "skill" and not _SKILL_NAME.fullmatch(name or ""):
            raise InvalidProposalError(reason="a skill is named by 1-64 of a-z, 0-9 and '-', such as release-notes")
        own_name = {"instruction": INSTRUCTIONS, "skill": name, "memory_policy": MEMORY}[kind]
        return cls(kind, scope, project if scope == "project" and project else "", own_name or "")

    @property
    def label(self) -> str:
        """Return it in a few words: what, and for whom."""
        what = {"instruction": "instructions", "skill": f"skill {self.name}", "memory_policy": "memory policy"}[
            self.kind
        ]
        return f"{what} of {self.project or 'the user'}"

    def to_json(self) -> dict[str, str]:
        """Return it as the log keeps it."""
        return {"kind": self.kind, "scope": self.scope, "project": self.project, "name": self.name}

    @classmethod
    def from_json(cls, data: Any) -> Target | None:
        """Return what `to_json` gave, None for what is no target of this version."""
        if not isinstance(data, Mapping):
            return None
        parts = [data.get(name) for name in ("kind", "scope", "project", "name")]
        if not all(isinstance(part, str) for part in parts):
            return None
        kind, scope, project, name = (str(part) for part in parts)
        try:
            return cls.of(kind, scope, project=project, name=name)
        except InvalidProposalError:
            return None
