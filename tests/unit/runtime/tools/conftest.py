"""Every test of a tool gets a directory of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.runtime.tools.tool_bench import ToolBench


@pytest.fixture
def bench(tmp_path: Path) -> ToolBench:
    root = tmp_path / "workspace"
    root.mkdir()
    return ToolBench(root)
