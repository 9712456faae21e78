"""Make the same conversation for every contestant: turns of exact sizes, unlike each other, from a seed.

Standard library only, since the peers' environment imports it too.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

USER_BYTES = 200
CALL_BYTES = 300
RESULT_BYTES = 4_000
ANSWER_BYTES = 1_000
EVENTS_PER_TURN = 4
WINDOW = 200

_WORD_TEXT = (
    "the build server reports that module cache was stale so we cleared it and ran tests again before "
    "merging branch release notes mention session store index search window token budget error timeout "
    "retry network database schema column user account invoice total payment refund customer message "
    "deploy rollback cluster node memory latency graph median result value function returns list of items"
)
_WORDS = _WORD_TEXT.split()
_CHINESE = "会话存储索引检索窗口预算错误重试网络数据库用户账单部署回滚集群内存延迟中位数结果函数返回列表"


@dataclass(frozen=True)
class Turn:
    """One turn of the figures: a question, a tool call, its result and an answer, of fixed sizes."""

    number: int
    user: str
    call_id: str
    call_input: dict[str, str]
    result: str
    answer: str

    @property
    def payload_bytes(self) -> int:
        """Count what a user would call content: texts and the call's arguments as JSON."""
        call = len(json.dumps(self.call_input, ensure_ascii=False).encode())
        return call + sum(len(text.encode()) for text in (self.user, self.result, self.answer))


def text_of(size_bytes: int, rng: random.Random) -> str:
    """Return prose of exactly `size_bytes` ASCII bytes."""
    words: list[str] = []
    length = 0
    while length <= size_bytes:
        word = rng.choice(_WORDS)
        words.append(word)
        length += len(word) + 1
    return " ".join(words)[:size_bytes]


def log_of(size_bytes: int, rng: random.Random) -> str:
    """Return what a tool prints: lines of JSON and paths, exactly `size_bytes` ASCII bytes."""
    lines: list[str] = []
    length = 0
    while length <= size_bytes:
        fields = {"ts": rng.randrange(10**9), "path": f"src/{rng.choice(_WORDS)}.py", "msg": text_of(60, rng)}
        line = json.dumps(fields)
        lines.append(line)
        length += len(line) + 1
    return "\n".join(lines)[:size_bytes]


def turns(count: int, *, seed: int = 7) -> list[Turn]:
    """Return `count` turns; the same seed gives the same bytes on every machine."""
    rng = random.Random(seed)
    return [_turn(number, rng) for number in range(count)]


def _turn(number: int, rng: random.Random) -> Turn:
    empty_call = len(json.dumps({"command": "", "why": ""}))
    return Turn(
        number=number,
        user=text_of(USER_BYTES, rng),
        call_id=f"call_{number}",
        call_input={"command": text_of(CALL_BYTES - 80, rng), "why": text_of(80 - empty_call, rng)},
        result=log_of(RESULT_BYTES, rng),
        answer=text_of(ANSWER_BYTES, rng),
    )


def message_text(number: int, rng: random.Random) -> str:
    """Return one searchable message of about 120 bytes, one in four of them Chinese and mixed."""
    if number % 4:
        return f"{text_of(110, rng)} ticket{number}"
    start = rng.randrange(len(_CHINESE) - 12)
    return f"{_CHINESE[start : start + 12]} ticket{number} {_CHINESE[::-1][start : start + 12]} {rng.choice(_WORDS)}"


def event_dicts(turn: Turn, *, session_id: str) -> list[dict[str, object]]:
    """Return the turn's four events as plain dictionaries, in the field names of Kipu's log."""
    shared = {"session_id": session_id, "turn_id": f"t{turn.number}", "timestamp": "2026-11-29T12:00:00.000000Z"}
    ids = [f"{turn.number:08d}-{part}" for part in range(EVENTS_PER_TURN)]
    return [
        {"event_id": ids[0], "event_type": "user_message", **shared, "content": turn.user},
        {
            "event_id": ids[1],
            "event_type": "tool_call",
            **shared,
            "tool_call_id": turn.call_id,
            "tool_name": "shell",
            "tool_input": turn.call_input,
        },
        {
            "event_id": ids[2],
            "event_type": "tool_result",
            **shared,
            "tool_call_id": turn.call_id,
            "result": turn.result,
            "is_error": False,
        },
        {"event_id": ids[3], "event_type": "agent_message", **shared, "content": turn.answer},
    ]
