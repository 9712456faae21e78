"""The rules of OpenAI's Responses API for `instructions` and `input`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kipu.testing.validators.json_value import check_json, parse_object
from kipu.testing.validators.openai_response_content import ResponseContent
from kipu.testing.validators.violation import Findings, Violation

MAX_ID_CHARS = 64

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs"}

_PAIRS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
}
_OUTPUTS = {output: call for call, output in _PAIRS.items()}
_CALL_KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "function_call": (("call_id", "name", "arguments"), ("id", "status", "namespace", "caller", "async")),
    "function_call_output": (("call_id", "output"), ("id", "status", "name", "namespace", "caller")),
    "custom_tool_call": (("call_id", "name", "input"), ("id", "status", "namespace", "caller", "async")),
    "custom_tool_call_output": (("call_id", "output"), ("id", "caller")),
    "reasoning": (("summary",), ("id", "content", "encrypted_content", "status")),
    "item_reference": (("id",), ()),
}
_SERVER_CALLS = frozenset(
    {
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "local_shell_call",
        "mcp_call",
        "mcp_list_tools",
        "mcp_approval_request",
        "tool_search_call",
        "program",
    }
)
_OTHERS = frozenset(
    {
        "local_shell_call_output",
        "mcp_approval_response",
        "tool_search_output",
        "program_output",
        "compaction",
        "compaction_trigger",
        "additional_tools",
        "configuration_update",
    }
)
_TYPES = frozenset({"message", *_CALL_KEYS, *_PAIRS, *_OUTPUTS, *_SERVER_CALLS, *_OTHERS})
_Item = tuple[str, str, Mapping[str, object]]


def validate_openai_responses(
    items: Sequence[Mapping[str, object]] | str,
    instructions: object = None,
    *,
    strict_roles: bool = True,
    stored: bool = True,
    continues: bool = False,
) -> list[Violation]:
    """Return every rule of the Responses API that a request breaks.

    `strict_roles` wants system and developer messages only at the start. `stored` is false for `store: false`: then
    nothing can be looked up by id. `continues` is true with `previous_response_id` or `conversation`: then calls and
    user messages may lie in the part that the provider keeps.
    """
    findings = Findings("openai_responses")
    check_json(findings, items, path="/input")
    check_json(findings, instructions, path="/instructions")
    if instructions is not None:
        findings.text(instructions, "/instructions")
    if isinstance(items, str):
        findings.text(items, "/input")
        return findings.result()
    array = findings.array(items, "/input")
    if array is None:
        return findings.result()
    if not array:
        findings.add("input_empty", "/input", message="needs at least one item")
    known = _Items(findings, stored=stored).read(array)
    _check_roles(findings, known, strict_roles=strict_roles, continues=continues)
    _check_ids(findings, known)
    _check_pairs(findings, known, continues=continues)
    _check_reasoning_order(findings, known)
    return findings.result()


class _Items:
    def __init__(self, findings: Findings, *, stored: bool) -> None:
        self.findings = findings
        self.stored = stored
        self.content = ResponseContent(findings)

    def read(self, items: Sequence[object]) -> list[_Item]:
        known: list[_Item] = []
        for index, value in enumerate(items):
            path = f"/input/{index}"
            item = self.findings.mapping(value, path)
            if item is None:
                continue
            kind = item.get("type", "message" if "role" in item else None)
            if not isinstance(kind, str) or kind not in _TYPES:
                self.findings.add("item_unknown", path, message=f"{kind!r} is not a type of item")
                continue
            known.append((path, kind, item))
            self._check(item, path, kind=kind)
        return known

    def _check(self, item: Mapping[str, object], path: str, *, kind: str) -> None:
        if kind == "message":
            self.content.check_message(item, path)
            return
        if kind not in _CALL_KEYS:
            if kind in _PAIRS or kind in _OUTPUTS:
                self._check_call_id(item.get("call_id"), f"{path}/call_id")
            return
        required, allowed = _CALL_KEYS[kind]
        if not self.findings.keys(item, path, required=("type", *required), allowed=allowed):
            return
        if kind == "reasoning":
            self._check_reasoning(item, path)
        elif kind == "item_reference":
            if not self.stored:
                self.findings.add("not_stored", path, message="nothing is stored that could be referred to")
        else:
            self._check_call(item, path, kind=kind)

    def _check_call(self, item: Mapping[str, object], path: str, *, kind: str) -> None:
        self._check_call_id(item["call_id"], f"{path}/call_id")
        if kind in _OUTPUTS:
            self.content.check_output(item["output"], f"{path}/output")
            return
        name = item["name"]
        if not (isinstance(name, str) and _NAME.fullmatch(name)):
            self.findings.add("function_name", f"{path}/name", message=f"{name!r} is not 1-64 of a-z A-Z 0-9 _ -")
        given = "arguments" if kind == "function_call" else "input"
        text = self.findings.string(item[given], f"{path}/{given}")
        if text is not None and given == "arguments" and parse_object(text) is None:
            self.findings.add("arguments_json", f"{path}/arguments", message="is not the text of a JSON object")

    def _check_call_id(self, value: object, path: str) -> None:
        text = self.findings.string(value, path)
        if text is not None and not 1 <= len(text) <= MAX_ID_CHARS:
            self.findings.add("call_id_length", path, message=f"needs 1 to {MAX_ID_CHARS} characters")

    def _check_reasoning(self, item: Mapping[str, object], path: str) -> None:
        for key, kind in (("summary", "summary_text"), ("content", "reasoning_text")):
            if item.get(key) is not None:
                self.content.check_reasoning_texts(item[key], f"{path}/{key}", kind=kind)
        sealed = item.get("encrypted_content")
        if sealed is not None:
            self.findings.text(sealed, f"{path}/encrypted_content")
        elif not self.stored:
            self.findings.add("not_stored", path, message="without storage, reasoning needs its encrypted_content")
        elif "id" not in item:
            self.findings.add("key_missing", path, message="needs an id or encrypted_content")


def _check_roles(findings: Findings, known: Sequence[_Item], *, strict_roles: bool, continues: bool) -> None:
    roles = [(path, item.get("role")) for path, kind, item in known if kind == "message"]
    if not continues and not any(role == "user" for _, role in roles):
        findings.add("user_missing", "/input", message="needs at least one user message")
    begun = False
    for path, kind, item in known:
        if kind != "message" or item.get("role") not in ("system", "developer"):
            begun = True
        elif begun and strict_roles:
            findings.add("system_position", path, message="instructions belong before all other items")


def _check_ids(findings: Findings, known: Sequence[_Item]) -> None:
    seen: set[str] = set()
    for path, kind, item in known:
        if item.get("id") is None:
            continue
        value = findings.string(item["id"], f"{path}/id")
        if value is None:
            continue
        where = f"{path}/id"
        if not _ID.fullmatch(value):
            findings.add("item_id", where, message=f"{value!r} is not of letters, digits, underscores, dashes")
        elif len(value) > MAX_ID_CHARS:
            findings.add("item_id_length", where, message=f"is longer than {MAX_ID_CHARS} characters")
        elif not value.startswith(_PREFIXES.get(kind, "")):
            findings.add("item_id_prefix", where, message=f"{value!r} must begin with {_PREFIXES[kind]!r}")
        if value in seen:
            findings.add("item_id_duplicate", where, message=f"{value!r} stands twice")
        seen.add(value)


def _check_pairs(findings: Findings, known: Sequence[_Item], *, continues: bool) -> None:
    calls: dict[tuple[str, str], str] = {}
    answered: set[tuple[str, str]] = set()
    for path, kind, item in known:
        call_id = item.get("call_id")
        if not isinstance(call_id, str):
            continue
        if kind in _PAIRS:
            if (kind, call_id) in calls:
                findings.add("call_id_duplicate", f"{path}/call_id", message=f"{call_id!r} was called before")
            calls.setdefault((kind, call_id), path)
        elif kind in _OUTPUTS:
            pair = (_OUTPUTS[kind], call_id)
            if pair in answered:
                findings.add("output_duplicate", path, message=f"{call_id!r} has its output already")
            elif pair not in calls and not continues:
                findings.add("output_orphan", path, message=f"no {_OUTPUTS[kind]} {call_id!r} comes before it")
            answered.add(pair)
    for pair, path in calls.items():
        if pair not in answered:
            findings.add("output_missing", path, message=f"the call {pair[1]!r} has no output")


def _check_reasoning_order(findings: Findings, known: Sequence[_Item]) -> None:
    # An item by reference can be anything, so it is taken for what the reasoning led to.
    produced = {*_PAIRS, *_SERVER_CALLS, "item_reference"}
    for index, (path, kind, _) in enumerate(known):
        if kind != "reasoning":
            continue
        following = next((entry for entry in known[index + 1 :] if entry[1] != "reasoning"), None)
        if following is None:
            findings.add("reasoning_alone", path, message="is not followed by the item that it led to")
            continue
        assistant = following[1] == "message" and following[2].get("role") == "assistant"
        if not assistant and following[1] not in produced:
            findings.add("reasoning_alone", path, message="is not followed by the item that it led to")
