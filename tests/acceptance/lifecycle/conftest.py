"""The key of stores under seal, where their URLs look for it."""

from __future__ import annotations

import pytest

from kipu.security.key_file import key_line


@pytest.fixture(autouse=True)
def key_in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIPU_TEST_KEY", key_line(bytes(range(32))).strip())
