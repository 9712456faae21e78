"""Files of a session kept in a store and laid out elsewhere, and the same with tar."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kipu.manager.manager import SessionManager


def fill(folder: Path, *, files: int, megabytes: int) -> list[Path]:
    """Make a tree of text-like files of many sizes."""
    chance = random.Random(7)
    each = megabytes * 1_000_000 // files
    made: list[Path] = []
    for number in range(files):
        path = folder / f"package{number % 40}" / f"module{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chance.randbytes(chance.randrange(each // 2, each + each // 2) // 2).hex().encode())
        made.append(path)
    return made


def change(paths: list[Path], *, count: int) -> None:
    """Add a line to some files."""
    for path in paths[:: max(1, len(paths) // count)][:count]:
        with path.open("ab") as file:
            file.write(b"# changed\n")


def tar(directory: Path, *, files: int, megabytes: int, changed: int) -> dict[str, float]:
    """Keep and lay out with tar: whole archives, and incremental ones by its list of what it saw."""
    source, target = directory / "source", directory / "target"
    made = fill(source, files=files, megabytes=megabytes)
    listing, archive, more = directory / "list", directory / "whole.tar", directory / "more.tar"
    time.sleep(1.1)  # tar takes what changed within the second of its last look

    def keep(name: Path) -> None:
        command = ["tar", "--create", f"--file={name}", f"--listed-incremental={listing}", "-C", str(source), "."]
        subprocess.run(command, check=True, capture_output=True)
        with name.open("rb") as file:
            os.fsync(file.fileno())

    first_ms = _ms(lambda: keep(archive))
    same_ms = _ms(lambda: keep(directory / "same.tar"))
    change(made, count=changed)
    changed_ms = _ms(lambda: keep(more))
    target.mkdir()
    extract = ["tar", "--extract", f"--file={archive}", "-C", str(target)]
    out_ms = _ms(lambda: (subprocess.run(extract, check=True), subprocess.run(["sync", "-f", str(target)], check=True)))
    return {
        "first_ms": first_ms,
        "same_ms": same_ms,
        "changed_ms": changed_ms,
        "out_ms": out_ms,
        "changed_kb": more.stat().st_size / 1000,
    }


def kipu(directory: Path, *, store: str, files: int, megabytes: int, changed: int) -> dict[str, float]:
    """Keep and lay out as workers of two machines do."""
    if store == "postgresql":
        from bench.kipu_postgres import serve

        url = serve(directory)
    else:
        url = f"sqlite:///{directory}/store.db"
    return asyncio.run(_kipu(directory, url, files=files, megabytes=megabytes, changed=changed))


async def _kipu(directory: Path, url: str, *, files: int, megabytes: int, changed: int) -> dict[str, float]:
    from kipu.runtime.session_workspaces import SessionWorkspaces
    from kipu.runtime.workspaces.place import Placing
    from kipu.runtime.workspaces.provision import WorkspaceProvision
    from kipu.wiring import open_manager

    async with await open_manager(url) as manager:
        machines = [Placing("stored", folder=directory / name) for name in ("one", "two")]
        one, two = (SessionWorkspaces(manager, WorkspaceProvision(each.base, placing=each)) for each in machines)
        session = await manager.get_or_create("bench:1")
        found: dict[str, float] = {}

        async def timed(name: str, work: Callable[[], Awaitable[object]]) -> None:
            start_s = time.perf_counter()
            await work()
            found[name] = (time.perf_counter() - start_s) * 1000

        async with session.holding():
            workspace = await one.open(session)
            made = fill(workspace.root, files=files, megabytes=megabytes)
            carried = workspace.carried
            assert carried is not None
            await asyncio.sleep(0.1)

            async def keep() -> None:
                await carried.keep(lambda events: session.add_events(events, token=session.lock.token))

            await timed("first_ms", keep)
            await timed("same_ms", keep)
            before = await _bytes(manager, session.session_id)
            change(made, count=changed)
            await timed("changed_ms", keep)
            found["changed_kb"] = (await _bytes(manager, session.session_id) - before) / 1000
            await timed("out_ms", lambda: two.open(session))
            there = await two.open(session)
            assert there.carried is not None
            for path in sorted(there.root.rglob("*.py"))[:changed]:
                path.write_bytes(path.read_bytes() + b"# there\n")
            await there.carried.keep(lambda events: session.add_events(events, token=session.lock.token))
            await timed("back_ms", lambda: one.open(session))
        shutil.rmtree(directory / "one")
        return found


async def _bytes(manager: SessionManager, session_id: str) -> int:
    store = manager.store
    return sum([len(await store.get_blob(session_id, digest)) for digest in await store.blobs(session_id)])


def _ms(work: Callable[[], object]) -> float:
    start_s = time.perf_counter()
    work()
    return (time.perf_counter() - start_s) * 1000
