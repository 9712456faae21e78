"""Importing Kipu is cheap, silent and complete."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import types
from pathlib import Path

import kipu

CPU_LIMIT_S = 0.25
HEAVY = {
    "aiohttp", "anthropic", "click", "fastapi", "httpcore2", "httpx", "httpx2", "mcp", "openai", "prompt_toolkit",
    "psycopg", "pydantic_ai", "requests", "rich", "splintr", "starlette", "textual", "tiktoken", "typer", "uvicorn",
    "xllamacpp",
}  # fmt: skip
MODEL_LIBRARIES = {"anthropic", "openai", "pydantic_ai", "textual", "xllamacpp"}


def _run(program: str, *, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_loads_no_model_server_or_screen_library(tmp_path: Path) -> None:
    """`import kipu` loads no model, server or user-interface library, not even an installed one."""
    loaded = json.loads(_run("import sys, json, kipu; print(json.dumps(sorted(sys.modules)))", folder=tmp_path))
    assert not HEAVY & {name.split(".", 1)[0] for name in loaded}


def test_import_of_the_command_loads_no_model_library(tmp_path: Path) -> None:
    """Loading the `kipu` command loads no model library and no full-screen interface."""
    loaded = json.loads(_run("import sys, json, kipu.cli; print(json.dumps(sorted(sys.modules)))", folder=tmp_path))
    assert not MODEL_LIBRARIES & {name.split(".", 1)[0] for name in loaded}


def test_import_does_nothing_else(tmp_path: Path) -> None:
    """`import kipu` prints nothing, starts no thread and writes no file."""
    program = "import threading, kipu; assert threading.active_count() == 1"
    assert _run(program, folder=tmp_path) == ""
    assert list(tmp_path.iterdir()) == []


def test_import_costs_little_processor_time(tmp_path: Path) -> None:
    """`import kipu` takes under 0.25 s of processor time with compiled bytecode."""
    program = "import time; start = time.process_time(); import kipu; print(time.process_time() - start)"
    assert min(float(_run(program, folder=tmp_path)) for _ in range(4)) < CPU_LIMIT_S


def test_public_door_lists_its_names_in_order() -> None:
    """`kipu.__all__` is sorted, without doubles, and every name in it is there."""
    assert list(kipu.__all__) == sorted(set(kipu.__all__))
    assert [name for name in kipu.__all__ if not hasattr(kipu, name)] == []


def test_public_door_hides_what_it_does_not_list() -> None:
    """Nothing public hangs in the package beside the names in `__all__` and its own modules."""
    beside = {
        name
        for name, value in vars(kipu).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType) and name != "annotations"
    }
    assert beside - set(kipu.__all__) - {"TYPE_CHECKING"} == set()


def test_public_names_say_what_they_are() -> None:
    """Every public class and function has a docstring of its own."""
    silent = [
        name
        for name in kipu.__all__
        if (inspect.isclass(value := getattr(kipu, name)) or inspect.isroutine(value)) and not value.__doc__
    ]
    assert silent == []
