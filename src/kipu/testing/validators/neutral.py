"""The rules of Kipu's neutral messages, the unit of record of a window."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kipu.testing.validators.json_value import check_json
from kipu.testing.validators.media_data import check_base64, check_media_type
from kipu.testing.validators.violation import Findings, Violation

MAX_MEDIA_BYTES = 32 * 1024 * 1024

_SHA256 = re.compile(r"[0-9a-f]{64}")
_ROLE_BLOCKS = {
    "system": frozenset({"text"}),
    "user": frozenset({"text", "media"}),
    "assistant": frozenset({"reasoning", "text", "tool_call"}),
    "tool": frozenset({"tool_result"}),
}
_KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "text": (("text",), ()),
    "media": (("media_type",), ("blob", "data", "size", "name")),
    "reasoning": (("provider", "model"), ("text", "opaque")),
    "tool_call": (("id", "name"), ("input", "raw")),
    "tool_result": (("id", "name", "content", "is_error"), ()),
}
_Block = tuple[str, Mapping[str, object]]


def validate_neutral(messages: Sequence[Mapping[str, object]], *, may_end_with_model: bool = False) -> list[Violation]:
    """Return every rule of neutral messages that `messages` breaks.

    `may_end_with_model` judges a history to which a user message is still to come.
    """
    findings = Findings("neutral")
    check_json(findings, messages, path="/messages")
    items = findings.array(messages, "/messages")
    if items is None:
        return findings.result()
    if not items:
        findings.add("messages_empty", "/messages", message="needs at least one message")
    rules = _BlockRules(findings)
    known = [entry for index, item in enumerate(items) if (entry := rules.read(item, f"/messages/{index}"))]
    _check_order(findings, known, may_end_with_model=may_end_with_model)
    _check_pairs(findings, known)
    return findings.result()


class _BlockRules:
    def __init__(self, findings: Findings) -> None:
        self.findings = findings

    def read(self, value: object, path: str) -> tuple[str, str, list[_Block]] | None:
        message = self.findings.mapping(value, path)
        if message is None:
            return None
        self.findings.keys(message, path, required=("role", "content"))
        role = message.get("role")
        if not isinstance(role, str) or role not in _ROLE_BLOCKS:
            self.findings.add("role_unknown", f"{path}/role", message=f"{role!r} is not one of {sorted(_ROLE_BLOCKS)}")
            return None
        blocks = self._read_blocks(message.get("content"), f"{path}/content", among=_ROLE_BLOCKS[role])
        if role == "assistant" and blocks and all(block.get("type") == "reasoning" for _, block in blocks):
            self.findings.add("reasoning_alone", path, message="an assistant message needs text or a call as well")
        return path, role, blocks

    def _read_blocks(self, value: object, path: str, *, among: frozenset[str]) -> list[_Block]:
        content = self.findings.array(value, path)
        if content is None:
            return []
        if not content:
            self.findings.add("content_empty", path, message="needs at least one block")
        blocks: list[_Block] = []
        for index, item in enumerate(content):
            where = f"{path}/{index}"
            block = self.findings.mapping(item, where)
            if block is None:
                continue
            kind = block.get("type")
            if not isinstance(kind, str) or kind not in among:
                self.findings.add("block_unknown", where, message=f"{kind!r} is not one of {sorted(among)}")
                continue
            blocks.append((where, block))
            required, allowed = _KEYS[kind]
            if self.findings.keys(block, where, required=("type", *required), allowed=allowed):
                self._check(block, where, kind=kind)
        return blocks

    def _check(self, block: Mapping[str, object], path: str, *, kind: str) -> None:
        if kind == "text":
            self.findings.text(block["text"], f"{path}/text")
        elif kind == "media":
            self._check_media(block, path)
        elif kind == "reasoning":
            self._check_reasoning(block, path)
        elif kind == "tool_call":
            self._check_call(block, path)
        else:
            self._check_result(block, path)

    def _check_media(self, block: Mapping[str, object], path: str) -> None:
        check_media_type(self.findings, block["media_type"], path=f"{path}/media_type", among=None)
        if ("blob" in block) == ("data" in block):
            self.findings.add("media_source", path, message="needs either blob or data")
        elif "data" in block:
            check_base64(self.findings, block["data"], path=f"{path}/data", max_bytes=MAX_MEDIA_BYTES)
        else:
            blob, size = block["blob"], block.get("size")
            if not (isinstance(blob, str) and _SHA256.fullmatch(blob)):
                self.findings.add("media_blob", f"{path}/blob", message=f"{blob!r} is not a SHA-256 in hex")
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                self.findings.add("media_blob", f"{path}/size", message="a blob needs its size in bytes")
        if "name" in block:
            self.findings.text(block["name"], f"{path}/name")

    def _check_reasoning(self, block: Mapping[str, object], path: str) -> None:
        for key in ("provider", "model"):
            self.findings.text(block[key], f"{path}/{key}")
        if "text" not in block and "opaque" not in block:
            self.findings.add("reasoning_empty", path, message="needs text or opaque")
        if "text" in block:
            self.findings.text(block["text"], f"{path}/text")
        if "opaque" in block and not isinstance(block["opaque"], Mapping):
            self.findings.add("type", f"{path}/opaque", message="must be an object")

    def _check_call(self, block: Mapping[str, object], path: str) -> None:
        for key in ("id", "name"):
            self.findings.text(block[key], f"{path}/{key}")
        if ("input" in block) == ("raw" in block):
            self.findings.add("tool_input", path, message="needs either input or raw")
        elif "raw" in block:
            self.findings.string(block["raw"], f"{path}/raw")
        elif not isinstance(block["input"], Mapping):
            self.findings.add("tool_input", f"{path}/input", message="must be an object")

    def _check_result(self, block: Mapping[str, object], path: str) -> None:
        for key in ("id", "name"):
            self.findings.text(block[key], f"{path}/{key}")
        if not isinstance(block["is_error"], bool):
            self.findings.add("type", f"{path}/is_error", message="must be a boolean")
        self._read_blocks(block["content"], f"{path}/content", among=_ROLE_BLOCKS["user"])


def _check_order(
    findings: Findings, known: Sequence[tuple[str, str, list[_Block]]], *, may_end_with_model: bool
) -> None:
    for index, (path, role, _) in enumerate(known):
        if role == "system" and index:
            findings.add("system_position", path, message="there is at most one system message, and it is first")
    talk = [(path, role) for path, role, _ in known if role != "system"]
    if not talk:
        findings.add("user_missing", "/messages", message="needs at least one user message")
        return
    if talk[0][1] != "user":
        findings.add("first_not_user", talk[0][0], message="the first message after system must be the user's")
    if talk[-1][1] == "assistant" and not may_end_with_model:
        findings.add(
            "ends_with_assistant",
            talk[-1][0],
            message="the model has nothing to answer; pass may_end_with_model=True for a history that is not sent yet",
        )


def _check_pairs(findings: Findings, known: Sequence[tuple[str, str, list[_Block]]]) -> None:
    seen: set[str] = set()
    waiting: dict[str, tuple[str, object]] = {}
    for path, role, blocks in known:
        if role == "tool":
            _check_tool_message(findings, path, blocks, waiting=waiting)
            waiting = {}
            continue
        _report_missing(findings, waiting)
        waiting = {}
        for where, block in blocks:
            call_id = block.get("id")
            if block.get("type") != "tool_call" or not isinstance(call_id, str):
                continue
            if call_id in seen:
                findings.add("tool_call_id_duplicate", f"{where}/id", message=f"{call_id!r} stands twice")
            seen.add(call_id)
            waiting[call_id] = (where, block.get("name"))
    _report_missing(findings, waiting)


def _report_missing(findings: Findings, waiting: Mapping[str, tuple[str, object]]) -> None:
    for call_id, (path, _) in waiting.items():
        findings.add("tool_result_missing", path, message=f"{call_id!r} has no result in the next message")


def _check_tool_message(
    findings: Findings, path: str, blocks: Sequence[_Block], *, waiting: Mapping[str, tuple[str, object]]
) -> None:
    answered: list[str] = []
    for where, block in blocks:
        call_id = block.get("id")
        if not isinstance(call_id, str):
            continue
        if call_id in answered:
            findings.add("tool_result_duplicate", where, message=f"{call_id!r} has its result already")
        elif call_id not in waiting:
            findings.add("tool_result_orphan", where, message=f"{call_id!r} was not called just before")
        else:
            answered.append(call_id)
            if block.get("name") != waiting[call_id][1]:
                findings.add("tool_result_name", f"{where}/name", message="is not the name of the call")
    if answered != [call_id for call_id in waiting if call_id in answered]:
        findings.add("tool_result_order", path, message="results stand in the order of their calls")
    _report_missing(findings, {key: value for key, value in waiting.items() if key not in answered})
