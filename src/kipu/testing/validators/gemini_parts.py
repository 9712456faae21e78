"""The rules of Google's generateContent API for one part."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping

from kipu.testing.validators.media_data import check_base64, check_media_type
from kipu.testing.validators.violation import Findings

MAX_PART_BYTES = 20 * 1024 * 1024

_FUNCTION_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_SNAKE = re.compile(r"_([a-z])")
_STAND_INS = frozenset({"skip_thought_signature_validator", "context_engineering_is_the_way_to_go"})
"""What Google documents for calls that its model did not make."""
_DATA = (
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
)
_METADATA = frozenset(
    {
        "thought",
        "thoughtSignature",
        "videoMetadata",
        "partMetadata",
        "mediaResolution",
        "mediaProcessing",
        "speechMetadata",
        "documentMetadata",
        "spreadsheetMetadata",
        "audioMetadata",
    }
)
_MODEL_ONLY = frozenset({"functionCall", "executableCode", "codeExecutionResult", "toolCall", "thought"})
_USER_ONLY = frozenset({"functionResponse"})
_MEDIA_TYPES = frozenset(
    {
        *(f"image/{kind}" for kind in ("png", "jpeg", "webp", "heic", "heif", "gif", "bmp")),
        *(f"audio/{kind}" for kind in ("wav", "mp3", "mpeg", "aiff", "aac", "ogg", "flac", "m4a", "mp4", "webm")),
        *(
            f"video/{kind}"
            for kind in ("mp4", "mpeg", "mov", "quicktime", "avi", "x-flv", "mpg", "webm", "wmv", "3gpp")
        ),
        *(f"text/{kind}" for kind in ("plain", "html", "css", "csv", "xml", "rtf", "markdown", "md", "javascript")),
        *(f"application/{kind}" for kind in ("pdf", "json", "x-javascript", "x-python", "rtf", "xml")),
    }
)


def camel_keys(part: Mapping[str, object]) -> dict[str, object]:
    """Return `part` under the names of the JSON mapping; its reader takes the snake_case ones too."""
    return {_SNAKE.sub(lambda match: match[1].upper(), str(key)): value for key, value in part.items()}


class PartRules:
    """Check parts one by one, and add up the inline data."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.inline_bytes = 0

    def check(self, part: Mapping[str, object], path: str, *, role: str) -> None:
        """Report all that is wrong with one part by itself."""
        self.findings.keys(part, path, allowed=(*_DATA, *_METADATA))
        held = [key for key in _DATA if key in part]
        if not held:
            self.findings.add("part_empty", path, message=f"needs one of {_DATA}")
        elif len(held) > 1:
            self.findings.add("part_ambiguous", path, message=f"holds {held}; a part takes one kind of data")
        misplaced = _MODEL_ONLY if role == "user" else _USER_ONLY
        for key in sorted(misplaced & part.keys()):
            self.findings.add("part_role", path, message=f"{key} does not belong to the {role} role")
        self._check_thought(part, path, role=role)
        for key in held:
            if key == "text":
                self._check_text(part, path)
            elif key in {"inlineData", "fileData", "functionCall", "functionResponse"}:
                self._check_body(part[key], f"{path}/{key}", key=key)

    def _check_text(self, part: Mapping[str, object], path: str) -> None:
        # A stream may bring its last signature in a part of its own, with no text.
        if part.get("text") != "" or "thoughtSignature" not in part:
            self.findings.text(part["text"], f"{path}/text")

    def _check_thought(self, part: Mapping[str, object], path: str, *, role: str) -> None:
        if "thought" in part and not isinstance(part["thought"], bool):
            self.findings.add("type", f"{path}/thought", message="must be a boolean")
        if "thoughtSignature" not in part:
            return
        where = f"{path}/thoughtSignature"
        if role == "user":
            self.findings.add("signature_role", where, message="only the model's parts carry a signature")
        value = self.findings.string(part["thoughtSignature"], where)
        if value is not None and value not in _STAND_INS and not _is_base64(value):
            self.findings.add("signature_base64", where, message="is not base64")

    def _check_body(self, value: object, path: str, *, key: str) -> None:
        mapping = self.findings.mapping(value, path)
        if mapping is None:
            return
        body = camel_keys(mapping)
        if key == "inlineData":
            self._check_blob(body, path)
        elif key == "fileData":
            if self.findings.keys(body, path, required=("fileUri",), allowed=("mimeType", "displayName")):
                self.findings.text(body["fileUri"], f"{path}/fileUri")
        elif key == "functionCall":
            self._check_call(body, path)
        else:
            self._check_response(body, path)

    def _check_blob(self, body: Mapping[str, object], path: str) -> None:
        if self.findings.keys(body, path, required=("mimeType", "data"), allowed=("displayName",)):
            check_media_type(self.findings, body["mimeType"], path=f"{path}/mimeType", among=_MEDIA_TYPES)
            self.inline_bytes += check_base64(
                self.findings, body["data"], path=f"{path}/data", max_bytes=MAX_PART_BYTES
            )

    def _check_call(self, body: Mapping[str, object], path: str) -> None:
        self.findings.keys(body, path, required=("name",), allowed=("id", "args"))
        self._check_name_and_id(body, path)
        if body.get("args") is not None and not isinstance(body["args"], Mapping):
            self.findings.add("call_args", f"{path}/args", message="must be an object, not its text")

    def _check_response(self, body: Mapping[str, object], path: str) -> None:
        allowed = ("id", "parts", "scheduling", "willContinue")
        whole = self.findings.keys(body, path, required=("name", "response"), allowed=allowed)
        self._check_name_and_id(body, path)
        if whole and not isinstance(body["response"], Mapping):
            self.findings.add("response_object", f"{path}/response", message="must be an object: wrap plain results")
        elif whole and not body["response"]:
            self.findings.add("response_empty", f"{path}/response", message="needs a result for the model")
        if body.get("parts") is None:
            return
        for index, item in enumerate(self.findings.array(body["parts"], f"{path}/parts") or ()):
            where = f"{path}/parts/{index}"
            part = self.findings.mapping(item, where)
            inner = camel_keys(part) if part is not None else {}
            if part is not None and not {"inlineData", "fileData"} & inner.keys():
                self.findings.add("part_empty", where, message="needs inlineData or fileData")
            elif "inlineData" in inner:
                self._check_body(inner["inlineData"], f"{where}/inlineData", key="inlineData")

    def _check_name_and_id(self, body: Mapping[str, object], path: str) -> None:
        name = body.get("name")
        if "name" in body and not (isinstance(name, str) and _FUNCTION_NAME.fullmatch(name)):
            message = f"{name!r} is not 1-64 of a-z A-Z 0-9 _ . : - with a letter or _ first"
            self.findings.add("function_name", f"{path}/name", message=message)
        if body.get("id") is not None:
            self.findings.text(body["id"], f"{path}/id")


def _is_base64(value: str) -> bool:
    standard = value.replace("-", "+").replace("_", "/")
    try:
        return bool(base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True))
    except (binascii.Error, ValueError):
        return False
