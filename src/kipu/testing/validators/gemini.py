"""The rules of Google's generateContent API for `systemInstruction` and `contents`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from kipu.testing.validators.gemini_parts import PartRules, camel_keys
from kipu.testing.validators.json_value import check_json
from kipu.testing.validators.violation import Findings, Violation

MAX_INLINE_BYTES = 20 * 1024 * 1024

_ROLES = ("user", "model")


@dataclass(slots=True)
class _Turn:
    role: str
    path: str
    parts: list[tuple[str, Mapping[str, object]]] = field(default_factory=list)

    def of(self, key: str) -> list[tuple[str, Mapping[str, object]]]:
        """Return the bodies of the parts that hold `key`."""
        bodies = [(f"{path}/{key}", part[key]) for path, part in self.parts if key in part]
        return [(path, body) for path, body in bodies if isinstance(body, Mapping)]


def validate_gemini(
    contents: Sequence[Mapping[str, object]],
    system_instruction: object = None,
    *,
    strict_roles: bool = True,
    may_end_with_model: bool = False,
    thought_signatures: bool = False,
) -> list[Violation]:
    """Return every rule of generateContent that a request breaks.

    `strict_roles` wants user and model to alternate. `may_end_with_model` judges a history to which a user message is
    still to come. `thought_signatures` wants the signatures that Gemini 3 and later demand in the current turn.
    """
    findings = Findings("gemini")
    check_json(findings, contents, path="/contents")
    check_json(findings, system_instruction, path="/systemInstruction")
    rules = PartRules(findings)
    if system_instruction is not None:
        _check_system(findings, rules, system_instruction)
    items = findings.array(contents, "/contents")
    if items is None:
        return findings.result()
    if not items:
        findings.add("contents_empty", "/contents", message="needs at least one content")
    turns = [turn for index, item in enumerate(items) if (turn := _read(findings, rules, item, index=index))]
    if rules.inline_bytes > MAX_INLINE_BYTES:
        findings.add("inline_size", "/contents", message=f"inline data is more than {MAX_INLINE_BYTES} bytes")
    _check_order(findings, turns, strict_roles=strict_roles, may_end_with_model=may_end_with_model)
    _check_pairs(findings, turns)
    if thought_signatures:
        _check_signatures(findings, turns)
    return findings.result()


def _check_system(findings: Findings, rules: PartRules, value: object) -> None:
    content = findings.mapping(value, "/systemInstruction")
    if content is None or not findings.keys(content, "/systemInstruction", required=("parts",), allowed=("role",)):
        return
    parts = findings.array(content["parts"], "/systemInstruction/parts")
    if parts is not None and not parts:
        findings.add("parts_empty", "/systemInstruction/parts", message="needs at least one part")
    for index, value_part in enumerate(parts or ()):
        path = f"/systemInstruction/parts/{index}"
        part = findings.mapping(value_part, path)
        if part is not None and set(part) != {"text"}:
            findings.add("system_text", path, message="system instructions take text only")
        elif part is not None:
            rules.check(part, path, role="user")


def _read(findings: Findings, rules: PartRules, value: object, *, index: int) -> _Turn | None:
    path = f"/contents/{index}"
    content = findings.mapping(value, path)
    if content is None:
        return None
    findings.keys(content, path, required=("role", "parts"))
    role = content.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        findings.add("role_unknown", f"{path}/role", message=f"{role!r} is not one of {_ROLES}")
        return None
    turn = _Turn(role, path)
    parts = findings.array(content.get("parts"), f"{path}/parts")
    if parts is not None and not parts:
        findings.add("parts_empty", f"{path}/parts", message="needs at least one part")
    for number, item in enumerate(parts or ()):
        where = f"{path}/parts/{number}"
        raw = findings.mapping(item, where)
        if raw is not None:
            part = camel_keys(raw)
            rules.check(part, where, role=role)
            turn.parts.append((where, part))
    return turn


def _check_order(findings: Findings, turns: Sequence[_Turn], *, strict_roles: bool, may_end_with_model: bool) -> None:
    if not turns:
        return
    if turns[0].role != "user":
        findings.add("first_not_user", turns[0].path, message="the first content must be the user's")
    if strict_roles:
        for before, turn in pairwise(turns):
            if before.role == turn.role:
                findings.add("roles_alternate", turn.path, message=f"follows another {turn.role} content")
    if turns[-1].role == "model" and not may_end_with_model:
        findings.add(
            "ends_with_model",
            turns[-1].path,
            message="must end with the user; pass may_end_with_model=True for a history that is not sent yet",
        )


def _check_pairs(findings: Findings, turns: Sequence[_Turn]) -> None:
    for index, turn in enumerate(turns):
        calls, responses = turn.of("functionCall"), turn.of("functionResponse")
        before = turns[index - 1] if index else None
        if calls and (before is None or before.role != "user"):
            findings.add("call_position", turn.path, message="calls come right after a user or response turn")
        if responses and (before is None or not before.of("functionCall")):
            findings.add("response_orphan", turn.path, message="responses come right after a call turn")
        if calls:
            following = turns[index + 1] if index + 1 < len(turns) else None
            _check_answers(findings, turn, calls, following.of("functionResponse") if following else [])


def _check_answers(
    findings: Findings,
    turn: _Turn,
    calls: Sequence[tuple[str, Mapping[str, object]]],
    responses: Sequence[tuple[str, Mapping[str, object]]],
) -> None:
    if len(calls) != len(responses):
        message = f"{len(calls)} calls are followed by {len(responses)} responses"
        findings.add("response_count", turn.path, message=message)
        return
    called = Counter(str(call.get("name")) for _, call in calls)
    answered = Counter(str(response.get("name")) for _, response in responses)
    for name in sorted((answered - called).keys()):
        findings.add("response_name", responses[0][0], message=f"{name!r} was not called so often just before")
    call_ids = [call["id"] for _, call in calls if isinstance(call.get("id"), str)]
    for call_id, count in Counter(call_ids).items():
        if count > 1:
            findings.add("call_id_duplicate", calls[0][0], message=f"{call_id!r} stands twice in one turn")
    seen: set[object] = set()
    for path, response in responses:
        given = response.get("id")
        if not isinstance(given, str):
            continue
        if call_ids and given not in call_ids:
            findings.add("response_id", path, message=f"{given!r} was not called just before")
        if given in seen:
            findings.add("response_duplicate", path, message=f"{given!r} has its response already")
        seen.add(given)


def _check_signatures(findings: Findings, turns: Sequence[_Turn]) -> None:
    """Demand a signature on the first call of each step since the user last spoke."""
    start = 0
    for index, turn in enumerate(turns):
        if turn.role == "user" and not turn.of("functionResponse"):
            start = index
    for turn in turns[start:]:
        calls = [(path, part) for path, part in turn.parts if "functionCall" in part]
        if calls and "thoughtSignature" not in calls[0][1]:
            findings.add(
                "signature_missing", calls[0][0], message="the first call of a step needs its thoughtSignature"
            )
