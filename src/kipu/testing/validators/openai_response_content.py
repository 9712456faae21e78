"""The rules of OpenAI's Responses API for messages and for what tools give back."""

from __future__ import annotations

from collections.abc import Mapping

from kipu.testing.validators.media_data import IMAGE_TYPES, check_url
from kipu.testing.validators.violation import Findings

MAX_TEXT_CHARS = 10_485_760
MAX_MEDIA_BYTES = 20 * 1024 * 1024

_ROLES = ("user", "assistant", "system", "developer")
_INPUT_PARTS = frozenset({"input_text", "input_image", "input_file"})
_OUTPUT_PARTS = frozenset({"output_text", "refusal"})
_PART_KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "input_text": (("text",), ("prompt_cache_breakpoint",)),
    "input_image": ((), ("image_url", "file_id", "detail", "prompt_cache_breakpoint")),
    "input_file": ((), ("file_id", "file_url", "file_data", "filename", "detail", "prompt_cache_breakpoint")),
    "output_text": (("text",), ("annotations", "logprobs")),
    "refusal": (("refusal",), ()),
}
_SOURCES = {"input_image": ("image_url", "file_id"), "input_file": ("file_id", "file_url", "file_data")}


class ResponseContent:
    """Check the content of messages, tool outputs and reasoning items."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings

    def check_message(self, item: Mapping[str, object], path: str) -> None:
        """Report all that is wrong with one message by itself."""
        whole = self.findings.keys(item, path, required=("role", "content"), allowed=("type", "id", "status", "phase"))
        role = item.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            self.findings.add("role_unknown", f"{path}/role", message=f"{role!r} is not one of {_ROLES}")
            return
        if item.get("status") is not None:
            statuses = ("in_progress", "completed", "incomplete")
            self.findings.choice(item["status"], f"{path}/status", among=statuses)
        if not whole:
            return
        among = _OUTPUT_PARTS if role == "assistant" else _INPUT_PARTS
        self._check_parts(item["content"], f"{path}/content", among=among, place=f"a {role} message")

    def check_output(self, output: object, path: str) -> None:
        """Report all that is wrong with what a tool gave back."""
        self._check_parts(output, path, among=_INPUT_PARTS, place="a tool output")

    def check_reasoning_texts(self, value: object, path: str, *, kind: str) -> None:
        """Report all that is wrong with the visible texts of a reasoning item."""
        for index, entry in enumerate(self.findings.array(value, path) or ()):
            where = f"{path}/{index}"
            part = self.findings.mapping(entry, where)
            if part is None or not self.findings.keys(part, where, required=("type", "text")):
                continue
            self.findings.choice(part["type"], f"{where}/type", among=(kind,))
            self.findings.string(part["text"], f"{where}/text")

    def _check_parts(self, content: object, path: str, *, among: frozenset[str], place: str) -> None:
        if isinstance(content, str):
            self._check_text(content, path)
            return
        parts = self.findings.array(content, path)
        if parts is None:
            return
        if not parts:
            self.findings.add("content_empty", path, message=f"{place} needs at least one part")
        for index, value in enumerate(parts):
            where = f"{path}/{index}"
            part = self.findings.mapping(value, where)
            if part is None:
                continue
            kind = part.get("type")
            if not isinstance(kind, str) or kind not in among:
                self.findings.add("part_unknown", where, message=f"{place} takes {sorted(among)}, not {kind!r}")
                continue
            required, allowed = _PART_KEYS[kind]
            if self.findings.keys(part, where, required=("type", *required), allowed=allowed):
                self._check_part(part, where, kind=kind)

    def _check_part(self, part: Mapping[str, object], path: str, *, kind: str) -> None:
        if kind in {"input_text", "output_text"}:
            self._check_text(part["text"], f"{path}/text")
            return
        if kind == "refusal":
            self._check_text(part["refusal"], f"{path}/refusal")
            return
        sources = [key for key in _SOURCES[kind] if part.get(key) is not None]
        if len(sources) != 1:
            self.findings.add("media_source", path, message=f"needs exactly one of {_SOURCES[kind]}")
            return
        if sources[0] != "file_id":
            types = IMAGE_TYPES if kind == "input_image" else None
            value = part[sources[0]]
            check_url(self.findings, value, path=f"{path}/{sources[0]}", data_types=types, max_bytes=MAX_MEDIA_BYTES)
        if sources[0] == "file_data" and not part.get("filename"):
            self.findings.add("key_missing", path, message="file_data needs a filename")
        if kind == "input_image" and part.get("detail") is not None:
            details = ("low", "high", "auto", "original")
            self.findings.choice(part["detail"], f"{path}/detail", among=details)

    def _check_text(self, value: object, path: str) -> None:
        text = self.findings.text(value, path)
        if text is not None and len(text) > MAX_TEXT_CHARS:
            self.findings.add("text_too_long", path, message=f"is longer than {MAX_TEXT_CHARS} characters")
