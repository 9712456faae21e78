"""The rules of Anthropic's Messages API for one content block."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kipu.testing.validators.image_header import read_image_header
from kipu.testing.validators.media_data import IMAGE_TYPES, check_base64, check_media_type, check_url
from kipu.testing.validators.violation import Findings

MAX_IMAGE_BASE64_CHARS = 5 * 1024 * 1024
MAX_IMAGE_PIXELS = 8000
MANY_IMAGES = 20
MAX_PIXELS_OF_MANY_IMAGES = 2000
MAX_DOCUMENT_BYTES = 32 * 1024 * 1024
MAX_CACHE_MARKS = 4

TOOL_ID = re.compile(r"[a-zA-Z0-9_-]+")
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,200}")

SERVER_RESULTS = frozenset(
    {
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
    }
)
USER_BLOCKS = frozenset({"text", "image", "document", "search_result", "tool_result", "container_upload"})
ASSISTANT_BLOCKS = frozenset({"text", "thinking", "redacted_thinking", "tool_use", "server_tool_use"}) | SERVER_RESULTS
RESULT_BLOCKS = frozenset({"text", "image", "document", "search_result", "tool_reference"})
SYSTEM_BLOCKS = frozenset({"text"})

_KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "text": (("text",), ("citations", "cache_control")),
    "image": (("source",), ("cache_control", "transformations")),
    "document": (("source",), ("title", "context", "citations", "cache_control")),
    "search_result": (("source", "title", "content"), ("citations", "cache_control")),
    "container_upload": (("file_id",), ("cache_control",)),
    "thinking": (("thinking", "signature"), ()),
    "redacted_thinking": (("data",), ()),
    "tool_use": (("id", "name", "input"), ("cache_control", "caller", "toolset_name")),
    "server_tool_use": (("id", "name", "input"), ("cache_control", "caller")),
    "tool_result": (("tool_use_id",), ("content", "is_error", "cache_control", "toolset_name")),
    "tool_reference": (("tool_name",), ("cache_control",)),
    **dict.fromkeys(SERVER_RESULTS, (("tool_use_id", "content"), ("cache_control", "caller"))),
}
_SOURCE_KEYS: dict[str, tuple[str, ...]] = {
    "base64": ("media_type", "data"),
    "url": ("url",),
    "file": ("file_id",),
    "text": ("media_type", "data"),
    "content": ("content",),
}
_SOURCES = {"image": ("base64", "url", "file"), "document": ("base64", "url", "file", "text", "content")}


class BlockRules:
    """Check content blocks one by one, and count what has a limit over the whole request."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.cache_marks = 0
        self.images = 0
        self.wide_images: list[str] = []

    def check(self, block: Mapping[str, object], path: str, *, among: frozenset[str], place: str) -> None:
        """Report all that is wrong with one block by itself."""
        kind = block.get("type")
        if not isinstance(kind, str) or kind not in among:
            self.findings.add("block_unknown", path, message=f"{place} takes {sorted(among)}, not {kind!r}")
            return
        required, allowed = _KEYS[kind]
        whole = self.findings.keys(block, path, required=("type", *required), allowed=allowed)
        self._check_cache_control(block, path)
        if not whole:
            return
        if kind == "text":
            self.findings.text(block["text"], f"{path}/text")
        elif kind in {"image", "document"}:
            self._check_source(block["source"], f"{path}/source", kind=kind)
        elif kind in {"thinking", "redacted_thinking"}:
            self._check_thinking(block, path, kind=kind)
        elif kind in {"tool_use", "server_tool_use"}:
            self._check_use(block, path)
        elif kind == "tool_result":
            self._check_result(block, path)
        elif kind in SERVER_RESULTS:
            self.check_id(block["tool_use_id"], f"{path}/tool_use_id")

    def check_list(self, content: object, path: str, *, among: frozenset[str], place: str) -> Sequence[object]:
        """Check a list of blocks, and return it."""
        blocks = self.findings.array(content, path) or ()
        for index, item in enumerate(blocks):
            block = self.findings.mapping(item, f"{path}/{index}")
            if block is not None:
                self.check(block, f"{path}/{index}", among=among, place=place)
        return blocks

    def check_id(self, value: object, path: str) -> None:
        """Report an id with characters that are not accepted."""
        text = self.findings.string(value, path)
        if text is not None and not TOOL_ID.fullmatch(text):
            self.findings.add("tool_id", path, message=f"{value!r} does not match ^[a-zA-Z0-9_-]+$")

    def _check_cache_control(self, block: Mapping[str, object], path: str) -> None:
        if block.get("cache_control") is None:
            return
        self.cache_marks += 1
        if self.cache_marks == MAX_CACHE_MARKS + 1:
            self.findings.add("cache_marks", path, message=f"a request takes {MAX_CACHE_MARKS} cache_control marks")
        where = f"{path}/cache_control"
        mark = self.findings.mapping(block["cache_control"], where)
        if mark is not None and self.findings.keys(mark, where, required=("type",), allowed=("ttl",)):
            self.findings.choice(mark["type"], f"{where}/type", among=("ephemeral",))
            if "ttl" in mark:
                self.findings.choice(mark["ttl"], f"{where}/ttl", among=("5m", "1h"))

    def _check_source(self, value: object, path: str, *, kind: str) -> None:
        if kind == "image":
            self.images += 1
        source = self.findings.mapping(value, path)
        if source is None:
            return
        form = source.get("type")
        if not isinstance(form, str) or form not in _SOURCES[kind]:
            self.findings.add("source_unknown", path, message=f"{form!r} is not one of {_SOURCES[kind]}")
            return
        if not self.findings.keys(source, path, required=("type", *_SOURCE_KEYS[form])):
            return
        if form == "base64":
            self._check_base64_source(source, path, kind=kind)
        elif form == "text":
            check_media_type(self.findings, source["media_type"], path=f"{path}/media_type", among={"text/plain"})
            self.findings.text(source["data"], f"{path}/data")
        elif form == "url":
            check_url(self.findings, source["url"], path=f"{path}/url", data_types=(), max_bytes=0)
        elif form == "content" and not isinstance(source["content"], str):
            self.check_list(source["content"], f"{path}/content", among=frozenset({"text", "image"}), place="a source")

    def _check_base64_source(self, source: Mapping[str, object], path: str, *, kind: str) -> None:
        types = IMAGE_TYPES if kind == "image" else frozenset({"application/pdf"})
        check_media_type(self.findings, source["media_type"], path=f"{path}/media_type", among=types)
        data = source["data"]
        check_base64(self.findings, data, path=f"{path}/data", max_bytes=MAX_DOCUMENT_BYTES)
        if kind == "image" and isinstance(data, str):
            self._check_image(data, f"{path}/data", declared=source["media_type"])

    def _check_image(self, data: str, path: str, *, declared: object) -> None:
        # The limit is on the text, not on the picture.
        if len(data) > MAX_IMAGE_BASE64_CHARS:
            self.findings.add(
                "media_size", path, message=f"{len(data)} characters are more than {MAX_IMAGE_BASE64_CHARS}"
            )
        header = read_image_header(data)
        if header is None:
            return
        if declared in sorted(IMAGE_TYPES) and header.media_type != declared:
            self.findings.add("media_mismatch", path, message=f"is {header.media_type}, not {declared!r}")
        side = max(header.width, header.height)
        if side > MAX_IMAGE_PIXELS:
            self.findings.add("image_pixels", path, message=f"is more than {MAX_IMAGE_PIXELS} pixels wide or high")
        elif side > MAX_PIXELS_OF_MANY_IMAGES:
            self.wide_images.append(path)

    def _check_thinking(self, block: Mapping[str, object], path: str, *, kind: str) -> None:
        # The text may be empty: a model told not to show its thinking sends the signature alone.
        if kind == "thinking":
            self.findings.string(block["thinking"], f"{path}/thinking")
        key = "signature" if kind == "thinking" else "data"
        opaque = self.findings.string(block[key], f"{path}/{key}")
        if opaque is not None and not opaque.strip():
            self.findings.add("thinking_signature", f"{path}/{key}", message="must be what the model sent, not empty")

    def _check_use(self, block: Mapping[str, object], path: str) -> None:
        self.check_id(block["id"], f"{path}/id")
        name = block["name"]
        if not (isinstance(name, str) and TOOL_NAME.fullmatch(name)):
            self.findings.add("tool_name", f"{path}/name", message=f"{name!r} is not 1-200 of a-z A-Z 0-9 _ -")
        if not isinstance(block["input"], Mapping):
            self.findings.add("tool_input", f"{path}/input", message="must be an object, not its text")

    def _check_result(self, block: Mapping[str, object], path: str) -> None:
        self.check_id(block["tool_use_id"], f"{path}/tool_use_id")
        is_error = block.get("is_error")
        if is_error is not None and not isinstance(is_error, bool):
            self.findings.add("type", f"{path}/is_error", message="must be a boolean")
        content = block.get("content")
        blocks: Sequence[object] = ()
        if isinstance(content, str):
            # Unlike a text block, a plain string may be empty, but nothing is told by white space alone.
            if content and not content.strip():
                self.findings.add("text_blank", f"{path}/content", message="holds white space only")
        elif content is not None:
            blocks = self.check_list(content, f"{path}/content", among=RESULT_BLOCKS, place="a tool result")
        if not content:
            self.findings.add("tool_result_empty", path, message="needs content, so that the model is told something")
        elif is_error is True and any(isinstance(b, Mapping) and b.get("type") != "text" for b in blocks):
            self.findings.add("error_not_text", path, message="an error result takes text only")
