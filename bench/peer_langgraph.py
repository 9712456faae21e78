"""LangGraph's SqliteSaver on the figures' work: one checkpoint for each event. Runs in .venv-bench."""

from __future__ import annotations

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

from bench.stopwatch import Stopwatch
from bench.workload import WINDOW, Turn, turns


def _messages(turn: Turn) -> list[AnyMessage]:
    call = {"name": "shell", "args": turn.call_input, "id": turn.call_id}
    return [
        HumanMessage(turn.user),
        AIMessage("", tool_calls=[call]),
        ToolMessage(turn.result, tool_call_id=turn.call_id),
        AIMessage(turn.answer),
    ]


def _graph(path: Path) -> Any:
    connection = sqlite3.connect(path, check_same_thread=False)
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {})
    builder.add_edge(START, "model")
    return builder.compile(checkpointer=SqliteSaver(connection))


def _turn(graph: Any, config: dict[str, Any], turn: Turn) -> int:
    messages = _messages(turn)
    graph.update_state(config, {"messages": messages[:1]}, as_node="model")
    window = graph.get_state(config).values["messages"][-WINDOW:]
    for message in messages[1:]:
        graph.update_state(config, {"messages": [message]}, as_node="model")
    return len(window)


def one_session(directory: Path, *, count: int) -> dict[str, float]:
    """W1: every message its own durable checkpoint, the window read from the state each turn."""
    conversation = turns(count)
    graph = _graph(directory / "peer.db")
    config = {"configurable": {"thread_id": "t"}}
    watch = Stopwatch()
    for turn in conversation:
        _turn(graph, config, turn)
        watch.lap()
    return watch.report() | {"bytes": sum(file.stat().st_size for file in directory.iterdir())}


def many_sessions(directory: Path, *, sessions: int, turns_each: int, at_once: int) -> dict[str, float]:
    """W2: many threads in one database, so many at once."""
    conversation = turns(turns_each)
    graph = _graph(directory / "peer.db")

    def one(number: int) -> None:
        config = {"configurable": {"thread_id": f"t{number}"}}
        for turn in conversation:
            _turn(graph, config, turn)

    start_s = time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(one, range(sessions)))
    wall_s = time.perf_counter() - start_s
    return {"wall_s": wall_s, "turns_per_s": sessions * turns_each / wall_s}
