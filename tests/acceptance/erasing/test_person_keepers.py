"""What Kipu keeps for a person in sessions of its own goes with the person, in whatever order their sessions go (C20, B58)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kipu.ports.store import SessionQuery
from kipu.wiring import open_store
from tests.unit.cli.command_line import CommandLine


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
async def test_person_leaves_no_session_of_kipus_own(kind: str, tmp_path: Path) -> None:
    """Grants and proposals that a person's sessions led to leave no session of that person behind (C15, C20, C26)."""
    url = f"{kind}:///{tmp_path / 'store'}"
    kipu = CommandLine(tmp_path / "home", url)
    kipu.home.mkdir()
    assert kipu.process("run", "write a.txt: x").code == 11
    (waiting,) = kipu.process("approvals", "--json").json
    assert kipu.process("approve", waiting["approval_id"], "--always", "user").code == 0
    given = {"kind": "instruction", "text": "Be brief.", "reason": "asked for"}
    assert kipu.process("run", f"call propose with {json.dumps(given)}").code == 0
    assert kipu.process("erase", "--person", "local", "--yes").code == 0
    store = await open_store(url)
    left = [head.key for head in (await store.list(SessionQuery(owner="local", limit=100))).items]
    await store.close()
    assert left == []
