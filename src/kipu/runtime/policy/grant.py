"""A grant: what a person allowed for more than once, bound to what they saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, get_args

from kipu.ports.principal import Principal
from kipu.runtime.policy.subject_pattern import SubjectPattern

GrantScope: TypeAlias = Literal["session", "project", "user"]
GrantMatch: TypeAlias = Literal["exact", "below", "pattern"]
SCOPES: tuple[GrantScope, ...] = get_args(GrantScope)
MATCHES: tuple[GrantMatch, ...] = get_args(GrantMatch)


@dataclass(frozen=True, slots=True)
class Grant:
    """Calls of `tool` on subjects that `subject` means are allowed to `principal` within `scope`, without asking again.

    `match` says how `subject` is read: `exact` the very text, `below` a path and everything under it, `pattern` with `*` and
    `?`; for command lines `below` means the command and any arguments. `target` is the id of the session, or the project; ""
    for a user. `by` decided it, in approval `approval_id`.
    """

    grant_id: str
    tool: str
    subject: str
    match: GrantMatch
    scope: GrantScope
    target: str
    principal: str
    tenant: str
    created_at: str
    by: str
    approval_id: str

    def covers(
        self,
        tool_name: str,
        subject: str,
        *,
        principal: Principal,
        session_id: str,
        project: str | None,
        commands: Sequence[str] | None = None,
    ) -> bool:
        """Say whether this call is within the grant. What hides what it does is only covered when it was granted exactly.

        `commands` are those of a subject that is a command line (none: it cannot be split), None for other subjects.
        """
        if (self.tool, self.principal, self.tenant) != (tool_name, principal.id, principal.tenant):
            return False
        if self.target != {"session": session_id, "project": project, "user": ""}[self.scope]:
            return False
        if self.match == "exact":
            return self.subject == subject
        parts = [subject] if commands is None else commands
        if not parts or (self.match == "below" and not all(part.startswith(self._base) for part in parts)):
            return False
        pattern = self._pattern(is_command=commands is not None)
        if commands is None:
            return pattern.permits(subject)
        return all(pattern.permits(command, commands=[command], is_command=True) for command in commands)

    @property
    def _base(self) -> str:
        return self.subject.rstrip(" /")

    def _pattern(self, *, is_command: bool) -> SubjectPattern:
        if self.match == "pattern":
            return SubjectPattern(self.subject)
        if is_command:
            return SubjectPattern.below(self.subject.rstrip(), separator=" ")
        return SubjectPattern.below(self.subject.rstrip("/"), separator="/")

    def to_json(self) -> dict[str, str]:
        """Return it as it is kept and shown."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: object) -> Grant | None:
        """Return what `to_json` gave; None for what is no grant of this version, which then allows nothing."""
        names = cls.__slots__
        if not isinstance(data, Mapping) or not all(isinstance(data.get(name), str) for name in names):
            return None
        values: dict[str, Any] = {name: data[name] for name in names}
        return cls(**values) if values["scope"] in SCOPES and values["match"] in MATCHES else None
