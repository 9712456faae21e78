"""Settings that are Kipu's own: who may use a session does not thereby say where tools work, or what was allowed."""

from __future__ import annotations

from typing import Any

import pytest

from kipu.errors import InputError
from kipu.ports.principal import Principal
from kipu.wiring import open_manager

ADA = Principal("ada", "acme")


@pytest.mark.parametrize("name", ["kipu.workspace", "kipu.parent", "grant.x"])
async def test_owner_of_a_tenant_sets_no_setting_of_kipus_own(name: str) -> None:
    """Directory, parent and grants of a session are set by Kipu, not by whoever owns the session (A19, C19)."""
    async with await open_manager("memory://") as manager:
        session = await manager.get_or_create("web:1", principal=ADA)
        wanted: dict[str, Any] = {name: {"path": "/"}}
        with pytest.raises(InputError, match="Kipu's own"):
            await session.set_metadata(principal=ADA, **wanted)
        with pytest.raises(InputError, match="Kipu's own"):
            await session.set_metadata(unset=[name], principal=ADA)
        with pytest.raises(InputError, match="Kipu's own"):
            await manager.create_session(initial_context=wanted, principal=ADA)
        assert session.head.metadata == {}


async def test_local_user_and_admin_may() -> None:
    """Who works on this machine alone, and an administrator, say where a session works (B41)."""
    async with await open_manager("memory://") as manager:
        session = await manager.get_or_create("cli:1")
        wanted: dict[str, Any] = {"kipu.workspace": {"kind": "directory", "path": "/w"}}
        await session.set_metadata(**wanted)
        assert session.head.workspace == {"kind": "directory", "path": "/w"}
