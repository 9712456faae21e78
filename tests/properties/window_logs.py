"""Arbitrary logs for windows: any order, any ids, missing, doubled, undone and odd parts."""

from __future__ import annotations

import base64
from typing import Any

from hypothesis import strategies as st

from kipu.context.item import Item
from kipu.context.policy import LADDER, WindowPolicy
from kipu.context.tokens import EstimateCounter, event_tokens
from kipu.events.codec import event_from_fields
from kipu.events.event import SessionEvent

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABXvMqOgAAAABJRU5ErkJggg=="
)
BLOB = "b" * 64
BLOBS = {BLOB: PNG}

_TEXTS = st.sampled_from(
    ["hello", "", " \n", "\x1b[2J\x07", "会话", "{}", "x" * 900, "line\n" * 400, "answer \t", "\ufffd", "🙂" * 40]
)
_IDS = st.sampled_from(["call_0", "call_0-2", "A", "B", "", " ", "functions.bash:0", "ид", "x" * 70, "call_1"])
_NAMES = st.sampled_from(["bash", "read file", "", "工具", "1st", "n" * 90, "mcp__a.b"])
_TURNS = st.sampled_from([None, "t1", "t2"])
_SEQS = st.integers(0, 40)
_INPUTS = st.sampled_from([{}, {"cmd": "ls"}, {"a": [1, {"b": None}], "c": 1.5}, {"text": "y" * 3000}])
_RESULTS = st.sampled_from(
    [
        "ok",
        "",
        None,
        " ",
        {"a": [1, 2]},
        [1, "two"],
        "z" * 5000,
        False,
        [
            {"type": "text", "text": "seen"},
            {"type": "media", "media_type": "image/png", "blob": BLOB, "size": len(PNG)},
        ],
        [{"type": "media", "media_type": "image/png"}],
    ]
)
_MEDIA = st.sampled_from(
    [
        {"type": "media", "media_type": "image/png", "blob": BLOB, "size": len(PNG)},
        {"type": "media", "media_type": "image/png", "data": base64.b64encode(PNG).decode()},
        {"type": "media", "media_type": "image/png", "data": "not base64!"},
        {"type": "media", "media_type": "image/tiff", "blob": BLOB, "size": 3},
        {"type": "media", "media_type": "application/pdf", "blob": "c" * 64, "size": 10},
        {"type": "media", "media_type": "image/png", "blob": BLOB, "size": 9_000_000},
    ]
)
_CONTENT = st.one_of(
    _TEXTS, st.lists(st.one_of(_TEXTS.map(lambda text: {"type": "text", "text": text}), _MEDIA), max_size=3)
)
_OPAQUE = st.sampled_from(
    [
        None,
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        [{"type": "redacted_thinking", "data": "ZGF0YQ=="}],
        {"items": [{"type": "reasoning", "id": "rs_1", "encrypted_content": "c2VhbA==", "summary": []}]},
        {"thought_signature": "c2ln"},
        {"thought_signature": "no base64!"},
        {"type": "reasoning", "id": "1", "encrypted_content": "c2VhbA==", "summary": 7},
        {"type": "thinking", "thinking": "hm", "signature": ""},
        "opaque",
        7,
    ]
)
_MARKS = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {"name": st.sampled_from(["p", "q"]), "model": st.sampled_from(["m", "n"]), "opaque": _OPAQUE}
    ),
)


def _event(kind: str, /, **fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"event_type": st.just(kind), "turn_id": _TURNS, **fields})


_EVENTS = st.one_of(
    _event("user_message", content=_CONTENT, queued=st.booleans()),
    _event("agent_message", content=_CONTENT, reasoning=st.one_of(st.none(), _TEXTS), provider=_MARKS),
    _event("tool_call", tool_name=_NAMES, tool_call_id=_IDS, tool_input=_INPUTS, provider=_MARKS),
    _event("tool_call", tool_name=_NAMES, tool_call_id=_IDS, raw=_TEXTS, parse_error=st.just("bad")),
    _event("tool_result", tool_call_id=_IDS, result=_RESULTS, is_error=st.booleans(), pinned=st.booleans()),
    _event("tool_result", tool_call_id=_IDS, result=_RESULTS, error_info=_TEXTS, synthetic=st.just("interrupted")),
    _event("turn_started", turn_id=st.just("t1"), consumes=st.lists(_SEQS, max_size=3)),
    _event("turn_steered", turn_id=st.just("t1"), consumes=st.lists(_SEQS, max_size=2)),
    _event("message_settled", seqs=st.lists(_SEQS, max_size=2), reason=st.just("cancelled")),
    _event("memory_recalled", facts=st.lists(st.sampled_from([{"text": "likes tea"}, {}, {"text": ""}]), max_size=2)),
    _event("instruction", content=_TEXTS),
    _event("compaction", from_seq=_SEQS, to_seq=_SEQS, first_kept_seq=_SEQS, summary=_TEXTS),
    _event("consolidation", to_seq=_SEQS),
    _event("rewind", to_seq=_SEQS, window_seq=_SEQS),
    _event("event_pinned", seqs=st.lists(_SEQS, max_size=2), on=st.booleans()),
    _event("model_call", model=st.just("m"), window=st.just({"from": 1})),
    _event("note", kind=st.just("kipu.window"), data=st.fixed_dictionaries({"from": _SEQS, "user": st.lists(_SEQS)})),
    _event("damaged", reason=st.just("torn")),
    _event("from_the_future", what=_TEXTS),
)


def _numbered(given: list[dict[str, Any]], gaps: list[int]) -> list[Item]:
    counter = EstimateCounter()
    items: list[Item] = []
    seq = 0
    for index, fields in enumerate(given):
        seq += 1 + gaps[index % len(gaps)]
        event: SessionEvent = event_from_fields({**fields, "seq": seq})
        items.append(Item(seq, event, event_tokens(event, counter)))
    return items


logs = st.builds(_numbered, st.lists(_EVENTS, max_size=40), st.lists(st.integers(0, 2), min_size=1, max_size=4))
"""Items in the order of their seq, with gaps."""

policies = st.builds(
    WindowPolicy,
    max_tokens=st.sampled_from([60, 400, 4_000, 100_000]),
    max_messages=st.sampled_from([1, 3, 12, 500]),
    ladder=st.sampled_from(LADDER),
    media_max_count=st.sampled_from([1, 20]),
)
