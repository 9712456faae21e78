"""A command line over each kind of store that keeps sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.command_line import CommandLine


@pytest.fixture(params=["sqlite", "jsonl"])
def kipu(request: pytest.FixtureRequest, tmp_path: Path) -> CommandLine:
    name = "sessions.db" if request.param == "sqlite" else "sessions"
    return CommandLine(tmp_path, f"{request.param}:///{tmp_path / name}")


@pytest.fixture
def kipu_sqlite(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path, f"sqlite:///{tmp_path / 'sessions.db'}")


@pytest.fixture
def work(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return an empty directory, in which the commands of the test run."""
    folder = tmp_path / "work"
    folder.mkdir()
    for name in {"kipu", "kipu_sqlite"} & set(request.fixturenames):
        request.getfixturevalue(name).home = folder
    return folder
