"""The rules of OpenAI's Chat Completions API for `messages`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from kipu.testing.validators.json_value import check_json, parse_object
from kipu.testing.validators.media_data import IMAGE_TYPES, check_base64, check_url
from kipu.testing.validators.violation import Findings, Violation

MAX_MESSAGES = 2048
MAX_TOOL_CALLS = 128
MAX_TEXT_CHARS = 10_485_760
MAX_TOOL_CALL_ID_CHARS = 40
MAX_MEDIA_BYTES = 20 * 1024 * 1024

_FUNCTION_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PARTICIPANT_NAME = re.compile(r"[^\s<|\\/>]{1,64}")
_PART_KEYS = ("prompt_cache_breakpoint",)
_ROLE_PARTS = {
    "system": {"text"},
    "developer": {"text"},
    "user": {"text", "image_url", "input_audio", "file"},
    "assistant": {"text", "refusal"},
    "tool": {"text"},
}
_ROLE_KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "system": (("role", "content"), ("name",)),
    "developer": (("role", "content"), ("name",)),
    "user": (("role", "content"), ("name",)),
    "assistant": (("role",), ("content", "name", "tool_calls", "refusal", "audio")),
    "tool": (("role", "content", "tool_call_id"), ()),
}


def validate_openai_chat(
    messages: Sequence[Mapping[str, object]],
    *,
    strict_roles: bool = True,
    max_tool_call_id_chars: int = MAX_TOOL_CALL_ID_CHARS,
    extra_message_keys: Collection[str] = (),
) -> list[Violation]:
    """Return every rule of Chat Completions that `messages` breaks.

    `strict_roles` also wants instructions only at the start, as many compatible servers do. Newer models take ids of
    64 characters. `extra_message_keys` are a compatible server's own, such as `reasoning_content`.
    """
    findings = Findings("openai_chat")
    check_json(findings, messages, path="/messages")
    items = findings.array(messages, "/messages")
    if items is not None:
        chat = _Chat(findings, id_chars=max_tool_call_id_chars, extra_keys=tuple(extra_message_keys))
        chat.check(items, strict_roles=strict_roles)
    return findings.result()


class _Chat:
    def __init__(self, findings: Findings, *, id_chars: int, extra_keys: tuple[str, ...]) -> None:
        self.findings = findings
        self.id_chars = id_chars
        self.extra_keys = extra_keys

    def check(self, items: Sequence[object], *, strict_roles: bool) -> None:
        if not items:
            self.findings.add("messages_empty", "/messages", message="needs at least one message")
        if len(items) > MAX_MESSAGES:
            self.findings.add("messages_too_many", "/messages", message=f"holds more than {MAX_MESSAGES} messages")
        known: list[tuple[str, str, Mapping[str, object]]] = []
        for index, item in enumerate(items):
            path = f"/messages/{index}"
            message = self.findings.mapping(item, path)
            if message is None:
                continue
            role = message.get("role")
            if not isinstance(role, str) or role not in _ROLE_KEYS:
                self.findings.add("role_unknown", f"{path}/role", message=f"{role!r} is not {sorted(_ROLE_KEYS)}")
                continue
            self._check_message(message, path, role=role)
            known.append((path, role, message))
        self._check_roles(known, strict_roles=strict_roles)
        _check_pairs(self.findings, known)

    def _check_roles(self, known: Sequence[tuple[str, str, Mapping[str, object]]], *, strict_roles: bool) -> None:
        if known and not any(role == "user" for _, role, _ in known):
            self.findings.add("user_missing", "/messages", message="needs at least one user message")
        begun = False
        for path, role, _ in known:
            if role not in {"system", "developer"}:
                begun = True
            elif begun and strict_roles:
                self.findings.add("system_position", path, message="instructions belong before all other messages")

    def _check_message(self, message: Mapping[str, object], path: str, *, role: str) -> None:
        required, allowed = _ROLE_KEYS[role]
        self.findings.keys(message, path, required=required, allowed=(*allowed, *self.extra_keys))
        name = message.get("name")
        if name is not None and not (isinstance(name, str) and _PARTICIPANT_NAME.fullmatch(name)):
            self.findings.add("participant_name", f"{path}/name", message=f"{name!r} is not an accepted name")
        if role == "assistant":
            self._check_assistant(message, path)
        elif "content" in message:
            self._check_content(message["content"], f"{path}/content", role=role)
        if role == "tool" and "tool_call_id" in message:
            self._check_call_id(message["tool_call_id"], f"{path}/tool_call_id")

    def _check_assistant(self, message: Mapping[str, object], path: str) -> None:
        if message.get("content") is not None:
            self._check_content(message["content"], f"{path}/content", role="assistant")
        if message.get("refusal") is not None:
            self.findings.text(message["refusal"], f"{path}/refusal")
        if "tool_calls" in message:
            self._check_tool_calls(message["tool_calls"], f"{path}/tool_calls")
        if all(message.get(key) is None for key in ("content", "tool_calls", "refusal", "audio")):
            self.findings.add("assistant_empty", path, message="needs content, tool_calls, refusal or audio")

    def _check_content(self, content: object, path: str, *, role: str) -> None:
        if isinstance(content, str):
            self._check_text(content, path)
            return
        parts = self.findings.array(content, path)
        if parts is None:
            return
        if not parts:
            self.findings.add("content_empty", path, message="needs at least one part")
        for index, item in enumerate(parts):
            where = f"{path}/{index}"
            part = self.findings.mapping(item, where)
            if part is None:
                continue
            kind = part.get("type")
            if not isinstance(kind, str) or kind not in _ROLE_PARTS[role]:
                allowed = sorted(_ROLE_PARTS[role])
                self.findings.add("part_unknown", where, message=f"a {role} message takes {allowed}, not {kind!r}")
            else:
                self._check_part(part, where, kind=kind)

    def _check_part(self, part: Mapping[str, object], path: str, *, kind: str) -> None:
        if not self.findings.keys(part, path, required=("type", kind), allowed=_PART_KEYS):
            return
        if kind in {"text", "refusal"}:
            self._check_text(part[kind], f"{path}/{kind}")
            return
        body = self.findings.mapping(part[kind], f"{path}/{kind}")
        if body is None:
            return
        {"image_url": self._check_image, "input_audio": self._check_audio, "file": self._check_file}[kind](
            body, f"{path}/{kind}"
        )

    def _check_text(self, value: object, path: str) -> None:
        text = self.findings.text(value, path)
        if text is not None and len(text) > MAX_TEXT_CHARS:
            self.findings.add("text_too_long", path, message=f"is longer than {MAX_TEXT_CHARS} characters")

    def _check_image(self, body: Mapping[str, object], path: str) -> None:
        if self.findings.keys(body, path, required=("url",), allowed=("detail",)):
            check_url(self.findings, body["url"], path=f"{path}/url", data_types=IMAGE_TYPES, max_bytes=MAX_MEDIA_BYTES)
        if "detail" in body:
            self.findings.choice(body["detail"], f"{path}/detail", among=("auto", "low", "high", "original"))

    def _check_audio(self, body: Mapping[str, object], path: str) -> None:
        if self.findings.keys(body, path, required=("data", "format")):
            check_base64(self.findings, body["data"], path=f"{path}/data", max_bytes=MAX_MEDIA_BYTES)
            self.findings.choice(body["format"], f"{path}/format", among=("wav", "mp3"))

    def _check_file(self, body: Mapping[str, object], path: str) -> None:
        self.findings.keys(body, path, allowed=("file_id", "file_data", "filename"))
        if ("file_id" in body) == ("file_data" in body):
            self.findings.add("file_source", path, message="needs either file_id or file_data")
        elif "file_data" in body:
            check_url(
                self.findings, body["file_data"], path=f"{path}/file_data", data_types=None, max_bytes=MAX_MEDIA_BYTES
            )
            if "filename" not in body:
                self.findings.add("key_missing", path, message="file_data needs a filename")

    def _check_tool_calls(self, value: object, path: str) -> None:
        calls = self.findings.array(value, path)
        if calls is None:
            return
        if not calls:
            self.findings.add("tool_calls_empty", path, message="must not be empty: leave the key out")
        if len(calls) > MAX_TOOL_CALLS:
            self.findings.add("tool_calls_too_many", path, message=f"holds more than {MAX_TOOL_CALLS} calls")
        seen: set[object] = set()
        for index, item in enumerate(calls):
            where = f"{path}/{index}"
            call = self.findings.mapping(item, where)
            if call is None:
                continue
            self._check_call(call, where)
            call_id = call.get("id")
            if isinstance(call_id, str) and call_id in seen:
                self.findings.add("tool_call_id_duplicate", f"{where}/id", message=f"{call_id!r} stands twice")
            seen.add(call_id if isinstance(call_id, str) else None)

    def _check_call(self, call: Mapping[str, object], path: str) -> None:
        kind = call.get("type")
        if not isinstance(kind, str) or kind not in {"function", "custom"}:
            self.findings.add("tool_call_type", f"{path}/type", message=f"{kind!r} is not 'function' or 'custom'")
            return
        if not self.findings.keys(call, path, required=("id", "type", kind)):
            return
        self._check_call_id(call["id"], f"{path}/id")
        body = self.findings.mapping(call[kind], f"{path}/{kind}")
        given = "arguments" if kind == "function" else "input"
        if body is None or not self.findings.keys(body, f"{path}/{kind}", required=("name", given)):
            return
        name = body["name"]
        if not (isinstance(name, str) and _FUNCTION_NAME.fullmatch(name)):
            self.findings.add(
                "function_name", f"{path}/{kind}/name", message=f"{name!r} is not 1-64 of a-z A-Z 0-9 _ -"
            )
        text = self.findings.string(body[given], f"{path}/{kind}/{given}")
        if text is not None and kind == "function" and parse_object(text) is None:
            self.findings.add(
                "arguments_json", f"{path}/function/arguments", message="is not the text of a JSON object"
            )

    def _check_call_id(self, value: object, path: str) -> None:
        text = self.findings.string(value, path)
        if text is not None and not 1 <= len(text) <= self.id_chars:
            self.findings.add("tool_call_id_length", path, message=f"needs 1 to {self.id_chars} characters")


def _check_pairs(findings: Findings, known: Sequence[tuple[str, str, Mapping[str, object]]]) -> None:
    open_ids: dict[str, str] = {}
    answered: set[str] = set()
    for path, role, message in known:
        if role == "tool":
            call_id = message.get("tool_call_id")
            if not isinstance(call_id, str):
                continue
            if call_id in answered:
                findings.add("tool_result_duplicate", path, message=f"{call_id!r} has its result already")
            elif call_id not in open_ids:
                findings.add("tool_result_orphan", path, message=f"{call_id!r} was not called just before")
            else:
                del open_ids[call_id]
                answered.add(call_id)
            continue
        _report_open(findings, open_ids)
        answered = set()
        open_ids = dict(_call_ids(message, path)) if role == "assistant" else {}
    _report_open(findings, open_ids)


def _report_open(findings: Findings, open_ids: Mapping[str, str]) -> None:
    for call_id, path in open_ids.items():
        findings.add("tool_result_missing", path, message=f"{call_id!r} has no tool message right after it")


def _call_ids(message: Mapping[str, object], path: str) -> Iterator[tuple[str, str]]:
    calls = message.get("tool_calls")
    for index, call in enumerate(calls if isinstance(calls, (list, tuple)) else ()):
        if isinstance(call, Mapping) and isinstance(call.get("id"), str):
            yield str(call["id"]), f"{path}/tool_calls/{index}"
