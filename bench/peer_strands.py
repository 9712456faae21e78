"""Strands' FileSessionManager on the figures' work: a file for each message, no fsync. Runs in .venv-bench."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from strands.session.file_session_manager import FileSessionManager
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

from bench.stopwatch import Stopwatch
from bench.workload import WINDOW, Turn, turns


def _messages(turn: Turn) -> list[Any]:
    use = {"toolUse": {"toolUseId": turn.call_id, "name": "shell", "input": turn.call_input}}
    result = {"toolResult": {"toolUseId": turn.call_id, "status": "success", "content": [{"text": turn.result}]}}
    return [
        {"role": "user", "content": [{"text": turn.user}]},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": [{"text": turn.answer}]},
    ]


def one_session(directory: Path, *, count: int) -> dict[str, float]:
    """W1 without its durability: this peer has none to give."""
    conversation = turns(count)
    store = FileSessionManager(session_id="s", storage_dir=str(directory))
    if store.read_session("s") is None:
        store.create_session(Session(session_id="s", session_type=SessionType.AGENT))
    agent = SessionAgent(agent_id="a", state={}, conversation_manager_state={})
    store.create_agent("s", agent)
    number = 0
    watch = Stopwatch()
    for turn in conversation:
        for position, message in enumerate(_messages(turn)):
            store.create_message("s", "a", SessionMessage(message=message, message_id=number))
            number += 1
            if position == 0:
                store.list_messages("s", "a", limit=WINDOW, offset=max(0, number - WINDOW))
        watch.lap()
    size = sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())
    return watch.report() | {"bytes": size}
