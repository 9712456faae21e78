"""Request bodies of an ordinary coding session: images, parallel calls, reasoning, an interrupted call, Chinese text."""

from __future__ import annotations

from typing import Any

from tests.unit.testing.validators.rule_case import PNG

_SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}

OPENAI_CHAT: dict[str, Any] = {
    "model": "gpt-4o",
    "stream": True,
    "tools": [{"type": "function", "function": {"name": "read_file", "parameters": _SCHEMA}}],
    "messages": [
        {"role": "system", "content": "You are a careful programmer."},
        {
            "role": "user",
            "name": "ana",
            "content": [
                {"type": "text", "text": "为什么这个页面是空白的？"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "high"}},
            ],
        },
        {
            "role": "assistant",
            "content": "Let me look at both files.",
            "tool_calls": [
                {
                    "id": "call_a1",
                    "type": "function",
                    "function": {"name": "read_file", "arguments": '{"path":"a.ts"}'},
                },
                {
                    "id": "call_a2",
                    "type": "function",
                    "function": {"name": "read_file", "arguments": '{"path":"b.ts"}'},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "call_a1", "content": "export const a = 1;\n"},
        {"role": "tool", "tool_call_id": "call_a2", "content": "[interrupted: the tool did not finish]"},
        {"role": "assistant", "content": "The second file could not be read."},
        {"role": "user", "content": "Try again."},
    ],
}

OPENAI_RESPONSES: dict[str, Any] = {
    "model": "gpt-5",
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "instructions": "You are a careful programmer.",
    "input": [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "为什么这个页面是空白的？"},
                {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"},
            ],
        },
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAABn"},
        {"type": "function_call", "id": "fc_1", "call_id": "call_a1", "name": "read_file", "arguments": '{"path":"a"}'},
        {"type": "function_call", "id": "fc_2", "call_id": "call_a2", "name": "read_file", "arguments": '{"path":"b"}'},
        {"type": "function_call_output", "call_id": "call_a2", "output": "export const b = 2;\n"},
        {"type": "function_call_output", "call_id": "call_a1", "output": [{"type": "input_text", "text": "no file"}]},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "The first is not there.", "annotations": []}],
        },
        {"role": "user", "content": "Try again."},
    ],
}

ANTHROPIC: dict[str, Any] = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 8192,
    "thinking": {"type": "enabled", "budget_tokens": 4096},
    "system": [
        {"type": "text", "text": "You are a careful programmer.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    ],
    "tools": [{"name": "read_file", "input_schema": _SCHEMA}],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "为什么这个页面是空白的？"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Both files matter.", "signature": "EqQBCkYIBRgCKkA="},
                {"type": "text", "text": "Let me look at both files."},
                {"type": "tool_use", "id": "toolu_01", "name": "read_file", "input": {"path": "a.ts"}},
                {"type": "tool_use", "id": "toolu_02", "name": "read_file", "input": {"path": "b.ts"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_01", "content": "export const a = 1;\n"},
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_02",
                    "is_error": True,
                    "content": [{"type": "text", "text": "no such file"}],
                },
                {"type": "text", "text": "By the way, hurry."},
            ],
        },
    ],
}

GEMINI: dict[str, Any] = {
    "systemInstruction": {"parts": [{"text": "You are a careful programmer."}]},
    "tools": [{"functionDeclarations": [{"name": "read_file", "parameters": _SCHEMA}]}],
    "generationConfig": {"thinkingConfig": {"includeThoughts": True}},
    "contents": [
        {
            "role": "user",
            "parts": [
                {"text": "为什么这个页面是空白的？"},
                {"inlineData": {"mimeType": "image/png", "data": PNG}},
            ],
        },
        {
            "role": "model",
            "parts": [
                {"text": "Both files matter.", "thought": True},
                {
                    "functionCall": {"id": "f1", "name": "read_file", "args": {"path": "a.ts"}},
                    "thoughtSignature": "CiQB0e2Kb7I=",
                },
                {"functionCall": {"id": "f2", "name": "read_file", "args": {"path": "b.ts"}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "f1", "name": "read_file", "response": {"output": "export const a = 1;"}}},
                {"functionResponse": {"id": "f2", "name": "read_file", "response": {"error": "no such file"}}},
            ],
        },
        {"role": "model", "parts": [{"text": "The second is not there."}]},
        {"role": "user", "parts": [{"text": "Try again."}]},
    ],
}

NEUTRAL: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "You are a careful programmer."}]},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "为什么这个页面是空白的？"},
                {"type": "media", "media_type": "image/png", "blob": "0f" * 32, "size": 70, "name": "页面.png"},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {
                    "type": "reasoning",
                    "text": "Both files matter.",
                    "opaque": {"signature": "EqQB"},
                    "provider": "anthropic",
                    "model": "claude-sonnet-4-5",
                },
                {"type": "text", "text": "Let me look at both files."},
                {"type": "tool_call", "id": "call_1", "name": "read_file", "input": {"path": "a.ts"}},
                {"type": "tool_call", "id": "call_2", "name": "read_file", "raw": '{"path": "b.'},
            ],
        },
        {
            "role": "tool",
            "content": [
                {
                    "type": "tool_result",
                    "id": "call_1",
                    "name": "read_file",
                    "content": [{"type": "text", "text": "export const a = 1;\n"}],
                    "is_error": False,
                },
                {
                    "type": "tool_result",
                    "id": "call_2",
                    "name": "read_file",
                    "content": [{"type": "text", "text": "the arguments did not parse"}],
                    "is_error": True,
                },
            ],
        },
    ]
}

PAYLOADS: dict[str, dict[str, Any]] = {
    "openai_chat": OPENAI_CHAT,
    "openai_responses": OPENAI_RESPONSES,
    "anthropic": ANTHROPIC,
    "gemini": GEMINI,
    "neutral": NEUTRAL,
}
