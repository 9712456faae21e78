"""Stores of every kind below one folder, with everything else of Kipu beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kipu.security.key_file import key_line
from tests.acceptance.erasing.crowded_session import environment

STORES = {
    "sqlite": "sqlite:///{}/store/sessions.db",
    "jsonl": "jsonl:///{}/store/sessions?segment_bytes=8192",
    "fallback": "sqlite:///{}/store/sessions.db?fallback=jsonl:///{}/store/spool",
    "sealed_sqlite": "sqlite:///{}/store/sessions.db?encrypt=env:KIPU_TEST_KEY",
    "sealed_jsonl": "jsonl:///{}/store/sessions?segment_bytes=8192&encrypt=env:KIPU_TEST_KEY",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the one folder below which everything is kept."""
    monkeypatch.setenv("KIPU_TEST_KEY", key_line(bytes(range(32))).strip())
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "store").mkdir()
    return tmp_path


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, home: Path) -> str:
    """Return the URL of an empty store."""
    return STORES[request.param].replace("{}", str(home))
