"""The rules of Anthropic's Messages API for `system` and `messages`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kipu.testing.validators.anthropic_blocks import (
    ASSISTANT_BLOCKS,
    MANY_IMAGES,
    MAX_PIXELS_OF_MANY_IMAGES,
    SERVER_RESULTS,
    SYSTEM_BLOCKS,
    USER_BLOCKS,
    BlockRules,
)
from kipu.testing.validators.json_value import check_json
from kipu.testing.validators.violation import Findings, Violation

MAX_MESSAGES = 100_000
MAX_IMAGES = 100

_TOOL_DEFINITION_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_THINKING = frozenset({"thinking", "redacted_thinking"})
_BLOCKS = {"user": USER_BLOCKS, "assistant": ASSISTANT_BLOCKS, "system": SYSTEM_BLOCKS}


@dataclass(slots=True)
class _Turn:
    """Hold what the API makes of neighbouring messages of one role: one turn."""

    role: str
    path: str
    blocks: list[tuple[str, Mapping[str, object]]] = field(default_factory=list)

    def of(self, *kinds: str) -> list[tuple[str, Mapping[str, object]]]:
        return [(path, block) for path, block in self.blocks if block.get("type") in kinds]


def validate_anthropic(
    messages: Sequence[Mapping[str, object]],
    system: object = None,
    *,
    tools: object = None,
    strict_roles: bool = True,
    may_end_with_model: bool = False,
    system_messages: bool = False,
    thinking: bool | None = None,
) -> list[Violation]:
    """Return every rule of the Messages API that a request breaks.

    `strict_roles` reports neighbours of one role, which the API would merge. `may_end_with_model` judges a history to
    which a user message is still to come; newer models refuse such a prefill. `system_messages` admits `role: system`
    after a user turn, which only newer models know. `thinking` says that thinking is on (True) or off (False).
    """
    findings = Findings("anthropic")
    for value, path in ((messages, "/messages"), (system, "/system"), (tools, "/tools")):
        check_json(findings, value, path=path)
    request = _Request(findings, strict_roles=strict_roles, system_messages=system_messages)
    request.check_system(system)
    _check_tools(findings, tools)
    items = findings.array(messages, "/messages")
    if items is None:
        return findings.result()
    turns = request.read(items)
    _check_order(findings, turns, may_end_with_model=may_end_with_model)
    _check_pairs(findings, turns)
    _check_unique_ids(findings, turns)
    for turn in turns:
        _check_thinking_order(findings, turn)
    _check_server_tools(findings, turns)
    if thinking is not None:
        _check_thinking_mode(findings, turns, thinking=thinking)
    return findings.result()


class _Request:
    def __init__(self, findings: Findings, *, strict_roles: bool, system_messages: bool) -> None:
        self.findings = findings
        self.rules = BlockRules(findings)
        self.strict_roles = strict_roles
        self.roles = _BLOCKS if system_messages else {k: v for k, v in _BLOCKS.items() if k != "system"}

    def check_system(self, system: object) -> None:
        if isinstance(system, str):
            self.findings.text(system, "/system")
        elif system is not None:
            self.rules.check_list(system, "/system", among=SYSTEM_BLOCKS, place="system")

    def read(self, items: Sequence[object]) -> list[_Turn]:
        if not items:
            self.findings.add("messages_empty", "/messages", message="needs at least one message")
        if len(items) > MAX_MESSAGES:
            self.findings.add("messages_too_many", "/messages", message=f"holds more than {MAX_MESSAGES} messages")
        turns: list[_Turn] = []
        for index, item in enumerate(items):
            path = f"/messages/{index}"
            message = self.findings.mapping(item, path)
            if message is None:
                continue
            self.findings.keys(message, path, required=("role", "content"))
            role = message.get("role")
            if not isinstance(role, str) or role not in self.roles:
                self.findings.add(
                    "role_unknown", f"{path}/role", message=f"{role!r} is not one of {sorted(self.roles)}"
                )
                continue
            if not turns or turns[-1].role != role:
                turns.append(_Turn(role, path))
            elif self.strict_roles:
                self.findings.add("roles_alternate", path, message=f"follows another {role} message")
            turns[-1].blocks += self._read_content(message.get("content"), f"{path}/content", role=role)
        self._check_images()
        return turns

    def _check_images(self) -> None:
        if self.rules.images > MAX_IMAGES:
            self.findings.add("images_too_many", "/messages", message=f"holds more than {MAX_IMAGES} images")
        if self.rules.images > MANY_IMAGES:
            limit = MAX_PIXELS_OF_MANY_IMAGES
            for path in self.rules.wide_images:
                message = f"among more than {MANY_IMAGES} images, none may be more than {limit} pixels wide or high"
                self.findings.add("image_pixels_of_many", path, message=message)

    def _read_content(self, content: object, path: str, *, role: str) -> list[tuple[str, Mapping[str, object]]]:
        if isinstance(content, str):
            self.findings.text(content, path)
            return [(path, {"type": "text", "text": content})]
        if content is None:
            return []
        blocks = self.rules.check_list(content, path, among=self.roles[role], place=f"a {role} message")
        if isinstance(content, (list, tuple)) and not content:
            self.findings.add("content_empty", path, message="needs at least one block")
        typed = [b if isinstance(b, Mapping) and isinstance(b.get("type"), str) else None for b in blocks]
        return [(f"{path}/{index}", block) for index, block in enumerate(typed) if block is not None]


def _check_order(findings: Findings, turns: Sequence[_Turn], *, may_end_with_model: bool) -> None:
    if not turns:
        return
    if turns[0].role != "user":
        findings.add("first_not_user", turns[0].path, message="the first message must be the user's")
    for index, turn in enumerate(turns):
        if turn.role != "system":
            continue
        after = turns[index - 1] if index else None
        following = turns[index + 1] if index + 1 < len(turns) else None
        server_tool = after is not None and after.role == "assistant" and _ends_in_server_tool(after)
        if after is None or not (after.role == "user" or server_tool):
            findings.add("system_position", turn.path, message="must follow a user message")
        if following is not None and following.role != "assistant":
            findings.add("system_position", turn.path, message="must be last or come before an assistant message")
    last = turns[-1]
    if last.role != "assistant":
        return
    if not may_end_with_model and not _ends_in_server_tool(last):
        findings.add(
            "ends_with_assistant",
            last.path,
            message="newer models take no prefill; pass may_end_with_model=True for a history that is not sent yet",
        )
    if last.blocks and last.blocks[-1][1].get("type") == "text":
        path, block = last.blocks[-1]
        text = block.get("text")
        if isinstance(text, str) and text != text.rstrip():
            findings.add("trailing_whitespace", path, message="the final assistant text must not end with white space")


def _ends_in_server_tool(turn: _Turn) -> bool:
    return bool(turn.blocks) and turn.blocks[-1][1].get("type") in {"server_tool_use", *SERVER_RESULTS}


def _check_pairs(findings: Findings, turns: Sequence[_Turn]) -> None:
    open_ids: dict[str, str] = {}
    for turn in turns:
        if turn.role == "assistant":
            _report_missing(findings, open_ids)
            open_ids = {str(b["id"]): path for path, b in turn.of("tool_use") if isinstance(b.get("id"), str)}
            continue
        answered: set[str] = set()
        for path, block in turn.of("tool_result"):
            call_id = block.get("tool_use_id")
            if not isinstance(call_id, str):
                continue
            if call_id in answered:
                findings.add("tool_result_duplicate", path, message=f"{call_id!r} has its result already")
            elif call_id not in open_ids:
                findings.add("tool_result_orphan", path, message=f"{call_id!r} is not in the assistant message before")
            else:
                del open_ids[call_id]
                answered.add(call_id)
        _report_missing(findings, open_ids)
        open_ids = {}
        _check_results_first(findings, turn)
    _report_missing(findings, open_ids)


def _report_missing(findings: Findings, open_ids: Mapping[str, str]) -> None:
    for call_id, path in open_ids.items():
        findings.add("tool_result_missing", path, message=f"{call_id!r} has no tool_result in the next message")


def _check_results_first(findings: Findings, turn: _Turn) -> None:
    other_seen = False
    for path, block in turn.blocks:
        if block.get("type") != "tool_result":
            other_seen = True
        elif other_seen:
            findings.add("tool_result_first", path, message="tool results come before all other blocks")


def _check_unique_ids(findings: Findings, turns: Sequence[_Turn]) -> None:
    seen: set[str] = set()
    for turn in turns:
        for path, block in turn.of("tool_use", "server_tool_use"):
            call_id = block.get("id")
            if not isinstance(call_id, str):
                continue
            if call_id in seen:
                findings.add("tool_id_duplicate", f"{path}/id", message=f"{call_id!r} stands twice in the request")
            seen.add(call_id)


def _check_thinking_order(findings: Findings, turn: _Turn) -> None:
    if turn.role != "assistant" or not turn.blocks:
        return
    if turn.of(*_THINKING) and turn.blocks[0][1].get("type") not in _THINKING:
        findings.add("thinking_first", turn.blocks[0][0], message="a message with thinking must start with it")
    if turn.blocks[-1][1].get("type") in _THINKING:
        findings.add("thinking_last", turn.blocks[-1][0], message="the final block must not be thinking")


def _check_server_tools(findings: Findings, turns: Sequence[_Turn]) -> None:
    for index, turn in enumerate(turns):
        open_ids: dict[object, str] = {}
        for path, block in turn.of("server_tool_use", *SERVER_RESULTS):
            if block.get("type") == "server_tool_use":
                open_ids[str(block.get("id"))] = path
            elif open_ids.pop(str(block.get("tool_use_id")), None) is None:
                findings.add("server_result_orphan", path, message="has no server_tool_use before it")
        # A paused turn ends in open server calls; the API goes on with them.
        if index + 1 < len(turns):
            for path in open_ids.values():
                findings.add("server_result_missing", path, message="has no result in its message")


def _check_thinking_mode(findings: Findings, turns: Sequence[_Turn], *, thinking: bool) -> None:
    if not turns:
        return
    last = turns[-1]
    if not thinking:
        if last.role == "assistant" and last.of(*_THINKING):
            findings.add("thinking_off", last.path, message="with thinking off, the final message may hold none")
        return
    if last.role == "assistant":
        findings.add("thinking_prefill", last.path, message="with thinking on, no prefill is accepted")
        return
    first_of_loop: _Turn | None = None
    for turn in turns:
        if turn.role == "assistant":
            first_of_loop = first_of_loop or turn
        elif turn.role == "user" and not turn.of("tool_result"):
            first_of_loop = None
    if first_of_loop is not None and first_of_loop.blocks:
        path, block = first_of_loop.blocks[0]
        if block.get("type") not in _THINKING:
            findings.add("thinking_missing", path, message="with thinking on, a tool loop must start with its thinking")


def _check_tools(findings: Findings, tools: object) -> None:
    if tools is None:
        return
    seen: set[str] = set()
    for index, item in enumerate(findings.array(tools, "/tools") or ()):
        path = f"/tools/{index}"
        tool = findings.mapping(item, path)
        # Anthropic's own tools have dated types and forms of their own.
        if tool is None or tool.get("type", "custom") != "custom":
            continue
        name = tool.get("name")
        if not (isinstance(name, str) and _TOOL_DEFINITION_NAME.fullmatch(name)):
            findings.add("tool_definition_name", f"{path}/name", message=f"{name!r} is not 1-128 of a-z A-Z 0-9 _ -")
        elif name in seen:
            findings.add("tool_definition_duplicate", f"{path}/name", message=f"{name!r} is defined twice")
        else:
            seen.add(name)
        schema = tool.get("input_schema")
        if not (isinstance(schema, Mapping) and schema.get("type") == "object"):
            findings.add("tool_definition_schema", path, message="input_schema must be a schema of type 'object'")
